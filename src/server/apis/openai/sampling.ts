import { ExactNumber } from '../../../base/exact-json.ts';
import { type FieldReader, shapes, snakeCase } from '../../../base/field-reader.ts';
import type { SamplingParams } from '../../../core/sampling.ts';
import { type CheckedSampling, checkSampling } from '../../../core/sampling-parse.ts';

/** The parameters that both endpoints have. Each endpoint reads `logprobs` and `max_tokens` itself. */
const common: readonly (keyof SamplingParams)[] = [
  ...(['n', 'temperature', 'topK', 'topP', 'minP', 'repetitionPenalty', 'presencePenalty'] as const),
  ...(['frequencyPenalty', 'logitBias', 'minTokens', 'stop', 'stopTokenIds', 'ignoreEos'] as const),
  ...(['includeStopStrInOutput', 'skipSpecialTokens'] as const),
];

/** The parameters that each endpoint reads itself. */
export interface PerEndpoint {
  readonly logprobs: number | undefined;
  readonly promptLogprobs?: number | undefined;
  readonly maxTokens: number | undefined;
  readonly ignoresMinTokens?: boolean;
  /** In the place of fields. */
  readonly own?: Partial<Record<keyof SamplingParams, unknown>>;
}

/** The sampling parameters of a request, checked by the rules of `core/sampling-parse.ts`, so that the engine need not. */
export function readSamplingParams(
  reader: FieldReader,
  { ignoresMinTokens, own, ...perEndpoint }: PerEndpoint,
  vocabSize: number,
): CheckedSampling {
  const raw: Partial<Record<keyof SamplingParams, unknown>> = { ...perEndpoint };
  for (const name of common) raw[name] = own?.[name] ?? reader.plain(snakeCase(name));
  if (ignoresMinTokens === true) raw.minTokens = undefined;
  raw.seed = readSeed(reader);
  // OpenAI takes 0: only the most probable token.
  if (raw.topP === 0) raw.topP = SMALLEST_TOP_P;
  // Each endpoint has described the parameters that it reads itself.
  const observer = reader.observed(snakeCase);
  const names: ReadonlySet<string> = new Set(common);
  return checkSampling(raw, vocabSize, observer && ((name, shape) => names.has(name) && observer(name, shape)));
}

const SMALLEST_TOP_P = 1e-300;

const seedRange = { min: -(2n ** 63n), end: 2n ** 64n } as const;

/** OpenAI's and vLLM's seeds are signed 64-bit integers. Each has the bits of an unsigned one, which is taken too. */
function readSeed(reader: FieldReader): bigint | undefined {
  const value = reader.exact('seed', shapes.integer);
  if (value === undefined) return undefined;
  const seed = integerOf(value);
  if (seed !== undefined && seed >= seedRange.min && seed < seedRange.end) return BigInt.asUintN(64, seed);
  throw reader.invalid('seed', 'an integer from -2^63 to 2^64 - 1');
}

function integerOf(value: unknown): bigint | undefined {
  if (value instanceof ExactNumber && /^-?\d+$/.test(value.text)) return BigInt(value.text);
  const number = value instanceof ExactNumber ? value.valueOf() : value;
  return Number.isInteger(number) ? BigInt(number as number) : undefined;
}
