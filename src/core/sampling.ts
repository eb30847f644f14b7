import type { TokenId } from './ids.ts';
import type { ReadStructuredOutputs, StructuredOutputs } from './structured-outputs.ts';

/**
 * How to choose tokens and when to stop. `parseSamplingParams` validates them, fills in defaults and freezes them.
 * Names and meanings are vLLM's.
 */
export interface SamplingParams {
  /** Number of completions of one prompt. The engine turns it into `n` requests with seeds `seed`, `seed + 1`, ... */
  readonly n: number;
  /** 0 = greedy. */
  readonly temperature: number;
  /** 0 = all tokens. */
  readonly topK: number;
  /** (0, 1] */
  readonly topP: number;
  /** [0, 1], relative to the most probable token. */
  readonly minP: number;
  /** > 0; 1 = no penalty; counts tokens of prompt and output. */
  readonly repetitionPenalty: number;
  /** [-2, 2]; counts output tokens. */
  readonly presencePenalty: number;
  /** [-2, 2]; counts output tokens. */
  readonly frequencyPenalty: number;
  /** Added to the logits, [-100, 100]. */
  readonly logitBias: ReadonlyMap<TokenId, number>;
  /**
   * Unsigned 64-bit, as a bigint. If the user gives none, the engine draws one, so recovery repeats the same tokens.
   */
  readonly seed: bigint;
  /** 0: the prompt is computed, and no token is sampled. */
  readonly maxTokens: number;
  readonly minTokens: number;
  /** Texts that end the completion; they are not part of it unless `includeStopStrInOutput`. */
  readonly stop: readonly string[];
  readonly stopTokenIds: readonly TokenId[];
  readonly ignoreEos: boolean;
  readonly includeStopStrInOutput: boolean;
  /** Whether control tokens are left out of the text. */
  readonly skipSpecialTokens: boolean;
  /** How many top tokens to report beside the chosen token; absent = no logprobs at all. */
  readonly logprobs?: number;
  /**
   * The same for the tokens of the prompt. Every prompt position is computed then, so the request takes no hit of the
   * prefix cache.
   */
  readonly promptLogprobs?: number;
  /** What the output must look like; absent = any text. */
  readonly structuredOutputs?: ReadStructuredOutputs;
}

/** What a caller may write: everything is optional, and numbers are plain where the engine has branded types. */
export type SamplingOptions = Partial<
  Omit<SamplingParams, 'seed' | 'stop' | 'stopTokenIds' | 'logitBias' | 'structuredOutputs'>
> & {
  readonly structuredOutputs?: StructuredOutputs;
  /** A number where 53 bits are enough. */
  readonly seed?: bigint | number;
  readonly stop?: string | readonly string[];
  readonly stopTokenIds?: readonly number[];
  readonly logitBias?: ReadonlyMap<number, number> | Readonly<Record<number, number>>;
};
