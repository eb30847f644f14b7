/** The work of a step that decides its duration. */
export interface StepLoad {
  /** Requests that need one scheduled token for their next output token. */
  decodes: number;
  /** Of these, requests whose client has received a token already, and notices the duration of the step. */
  streams: number;
  /** Draft tokens of these requests: one more row each. */
  draftTokens: number;
  /** The sum of the context tokens that the drafts attend to. */
  draftContext: number;
  /** The sum of the context tokens that the decodes attend to. */
  decodeContext: number;
  promptTokens: number;
  /** The sum of the tokens that each prompt token attends to. */
  promptContext: number;
  /** The sum of the contexts of all chunks: a chunk reads the KV of its context once for all of its tokens. */
  promptReach: number;
  /** The share of the layers that are computed for the prompt tokens: 1, or less for a chunk by layers (ADR 27). */
  layerShare: number;
}

export const emptyLoad = (): StepLoad => ({
  decodes: 0,
  streams: 0,
  draftTokens: 0,
  draftContext: 0,
  decodeContext: 0,
  promptTokens: 0,
  promptContext: 0,
  promptReach: 0,
  layerShare: 1,
});

/** Adds the tokens [start, end) of a prompt. */
export function addPrompt(load: StepLoad, start: number, end: number): void {
  load.promptTokens += end - start;
  load.promptContext += ((start + end + 1) * (end - start)) / 2;
  load.promptReach += end;
}

/** The features of a step with prompt tokens; their relative costs on a typical machine are `PROMPT_SHAPE`. */
export const promptFeatures = ({
  decodes,
  decodeContext,
  promptTokens,
  promptContext,
  promptReach,
  layerShare,
}: StepLoad): number[] => [
  1,
  decodes + promptTokens * layerShare,
  promptContext * layerShare,
  promptReach * layerShare,
  decodeContext,
];

/** The load with the tokens [start, start + tokens) of a prompt. */
export function withPrompt(load: StepLoad, start: number, tokens: number): StepLoad {
  const sum = { ...load };
  addPrompt(sum, start, start + tokens);
  return sum;
}

export const PROMPT_SHAPE = [4, 1, 1 / 1500, 1 / 100, 1 / 400];
