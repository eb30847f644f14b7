import { packedBytes } from '../../core/packed-logprobs.ts';
import type { RequestNeeds } from '../http/request-memory.ts';
import type { Prompt } from './generation.ts';
import type { ParsedGeneration } from './request.ts';

interface Generation {
  readonly parsed: ParsedGeneration;
  readonly prompts: readonly Prompt[];
  /** How many prompts may be computed at the same time. Default: all. */
  readonly promptsAtOnce?: number;
}

/** Of a completion, besides its tokens: its state in the engine and in the scheduler. */
const BYTES_PER_COMPLETION = 4096;
/** Of an input or output token: its id in the scheduler and in the answer, its text. */
const BYTES_PER_TOKEN = 16;

/** What a stream may have for a reader that is too slow. Then its request ends. */
export const unreadMaxBytes = 16 * 1024 * 1024;

/**
 * The memory that the answer to a request may need, estimated before anything is computed. Logprobs of a prompt are stored once. They
 * count for each choice whose answer has them, so that the length of the answer is bounded too: in JSON, a byte of this estimate
 * becomes about eight bytes.
 */
export function needsOf({ parsed, prompts, promptsAtOnce = prompts.length }: Generation): RequestNeeds {
  const { params, stream, promptLogprobs, echoedLogprobs } = parsed;
  const { n = 1, logprobs } = params;
  const scores = (topCount: number | undefined): number => (topCount === undefined ? 0 : packedBytes(topCount));
  const perInput = BYTES_PER_TOKEN + scores(promptLogprobs) + scores(echoedLogprobs);
  const perOutput = BYTES_PER_TOKEN + scores(logprobs);
  let inputs = 0;
  let outputs = 0;
  for (const { tokens, maxTokens } of prompts) {
    inputs += n * (BYTES_PER_COMPLETION + tokens.length * perInput);
    outputs += n * maxTokens * perOutput;
  }
  const bytes = inputs + (stream ? Math.min(outputs, unreadMaxBytes) : outputs);
  return { bytes, completions: n * promptsAtOnce };
}

/** Of `/v1/embeddings`: tokens and vectors. */
export function needsOfVectors(prompts: readonly ArrayLike<number>[], vectorLength: number): RequestNeeds {
  let bytes = 0;
  for (const { length } of prompts) bytes += BYTES_PER_COMPLETION + BYTES_PER_TOKEN * length + 4 * vectorLength;
  return { bytes, completions: prompts.length };
}

/** Of `/tokenize` and `/detokenize`. */
export const needsOfTokens = (tokens: number): RequestNeeds => ({ bytes: BYTES_PER_TOKEN * tokens, completions: 1 });
