import type { AnswerPart } from './tool.ts';

/** Calls `step` until it says that nothing more can be read, and returns the parts that it found. */
export function readSteps(step: (parts: AnswerPart[]) => boolean): AnswerPart[] {
  const parts: AnswerPart[] = [];
  let goesOn: boolean;
  do goesOn = step(parts);
  while (goesOn);
  return parts;
}
