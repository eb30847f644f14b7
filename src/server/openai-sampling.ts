import type { SamplingOptions, SamplingParams } from '../core/sampling.ts';
import { parseSamplingParams } from '../core/sampling-parse.ts';
import type { FieldReader } from './field-reader.ts';

/** The API's names of the parameters that both endpoints have. Each endpoint reads `logprobs` and `max_tokens` itself. */
const wireNames = {
  n: 'n',
  temperature: 'temperature',
  top_k: 'topK',
  top_p: 'topP',
  min_p: 'minP',
  repetition_penalty: 'repetitionPenalty',
  presence_penalty: 'presencePenalty',
  frequency_penalty: 'frequencyPenalty',
  logit_bias: 'logitBias',
  seed: 'seed',
  min_tokens: 'minTokens',
  stop: 'stop',
  stop_token_ids: 'stopTokenIds',
  ignore_eos: 'ignoreEos',
  include_stop_str_in_output: 'includeStopStrInOutput',
  skip_special_tokens: 'skipSpecialTokens',
} as const satisfies Record<string, keyof SamplingParams>;

/** The parameters that each endpoint reads itself. */
export interface PerEndpoint {
  readonly logprobs: number | undefined;
  readonly promptLogprobs?: number | undefined;
  readonly maxTokens: number | undefined;
  readonly ignoresMinTokens?: boolean;
}

/**
 * The sampling parameters of a request, checked by the rules of `core/sampling-parse.ts`. Absent parameters stay absent,
 * because the engine sets the defaults that depend on the prompt.
 */
export function readSamplingParams(
  reader: FieldReader,
  { ignoresMinTokens, ...perEndpoint }: PerEndpoint,
  vocabSize: number,
): SamplingOptions {
  const raw: Partial<Record<keyof SamplingParams, unknown>> = { ...perEndpoint };
  for (const [wire, name] of Object.entries(wireNames)) raw[name] = reader.raw(wire);
  if (ignoresMinTokens === true) raw.minTokens = undefined;
  raw.seed = wrapSeed(raw.seed);
  // OpenAI takes 0: only the most probable token.
  if (raw.topP === 0) raw.topP = SMALLEST_TOP_P;
  const checked = parseSamplingParams(raw, {
    vocabSize,
    maxTokensDefault: Number.MAX_SAFE_INTEGER,
    drawSeed: () => 0n,
  });
  return Object.fromEntries(
    Object.entries(checked).filter(([name]) => raw[name as keyof SamplingParams] !== undefined),
  );
}

const SMALLEST_TOP_P = 1e-300;

/** OpenAI's seeds are signed 64-bit integers. `JSON.parse` rounds a large seed, always to the same number. */
function wrapSeed(seed: unknown): unknown {
  if (!Number.isInteger(seed) || Math.abs(seed as number) > 2 ** 64) return seed;
  return BigInt.asUintN(64, BigInt(seed as number));
}
