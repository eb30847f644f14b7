import { TemplateError } from './errors.ts';

/**
 * The work that a rendering may still do. Templates come from model files, so a template may be hostile: loops in loops,
 * texts that double. Each evaluated expression costs 1, and operations on texts and lists cost more with their length. The same
 * template and input fail at the same place on every machine.
 *
 * Rendering is synchronous, so one variable for the whole thread is enough.
 */
let left = 0;

/** More characters than any prompt has. JavaScript's own limit is 2^29. */
const textLengthMax = 2 ** 26;

/** Characters that cost as much as one evaluated expression. */
const charactersPerStep = 16;

export function withWork<T>(steps: number, run: () => T): T {
  const before = left;
  left = steps;
  try {
    return run();
  } finally {
    left = before;
  }
}

export function charge(steps: number): void {
  left -= steps;
  if (left < 0) throw new TemplateError('the template needs too much work for these messages');
}

/** Before an operation that reads or writes so many characters. */
export function chargeText(characters: number): void {
  if (characters > textLengthMax) throw new TemplateError(`a text of more than ${textLengthMax} characters`);
  charge(1 + characters / charactersPerStep);
}

export function joinTexts(separator: string, texts: readonly string[]): string {
  const length = texts.reduce((sum, text) => sum + text.length, separator.length * texts.length);
  chargeText(length);
  return texts.join(separator);
}

/** Before a concatenation, which does not copy its parts. */
export function checkLength(characters: number): void {
  if (characters > textLengthMax) throw new TemplateError(`a text of more than ${textLengthMax} characters`);
}
