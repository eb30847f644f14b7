import { describeValue } from '../base/describe-value.ts';
import { invalidParameter } from './errors.ts';
import type { SamplingParams } from './sampling.ts';
import {
  readBoolean,
  readInteger,
  readLogitBias,
  readNumber,
  readSeed,
  readStopStrings,
  readTokenIds,
} from './sampling-read.ts';
import { readStructuredOutputs } from './structured-outputs.ts';

/** What a request's parameters are checked against. */
export interface SamplingLimits {
  /** Token ids in `logitBias` and `stopTokenIds` are below it. */
  readonly vocabSize: number;
  /** For a request without `maxTokens`; the engine passes the model's length less the prompt. At least 1. */
  readonly maxTokensDefault: number;
  /** Draws the seed of a request without one. Called at most once. */
  drawSeed(): bigint;
}

export const completionsMax = 128;
const stopStringsMax = 16;
const stopTokenIdsMax = 128;
export const logprobsMax = 20;
const logitBiasMax = 1024;

const known: ReadonlySet<string> = new Set<keyof SamplingParams>([
  'n',
  'temperature',
  'topK',
  'topP',
  'minP',
  'repetitionPenalty',
  'presencePenalty',
  'frequencyPenalty',
  'logitBias',
  'seed',
  'maxTokens',
  'minTokens',
  'stop',
  'stopTokenIds',
  'ignoreEos',
  'includeStopStrInOutput',
  'skipSpecialTokens',
  'logprobs',
  'promptLogprobs',
  'structuredOutputs',
]);

/**
 * Turns a caller's input into `SamplingParams`: checked, complete, frozen. Absent, `undefined` and `null` mean the
 * default. It also accepts `seed` as a safe integer, `stop` as one string, `logitBias` as a plain object, and
 * `topK: -1` for "all" (as in vLLM).
 *
 * @throws KvasirError `invalidParameter` with the parameter's name, the expected value and the actual value.
 */
export function parseSamplingParams(input: unknown, limits: SamplingLimits): SamplingParams {
  const raw = readObject(input);
  const topK = readInteger(raw, 'topK', 0, { min: -1 });
  const maxTokens = readInteger(raw, 'maxTokens', limits.maxTokensDefault, { min: 0 });
  const minTokens = readInteger(raw, 'minTokens', 0, { min: 0 });
  if (minTokens > maxTokens) {
    throw invalidParameter({
      parameter: 'minTokens',
      expected: `at most maxTokens (${maxTokens})`,
      actual: String(minTokens),
    });
  }
  const logprobs = readCount(raw, 'logprobs');
  const promptLogprobs = readCount(raw, 'promptLogprobs');
  return Object.freeze({
    n: readInteger(raw, 'n', 1, { min: 1, max: completionsMax }),
    temperature: readNumber(raw, 'temperature', 1, { min: 0 }),
    topK: Math.max(topK, 0),
    topP: readNumber(raw, 'topP', 1, { above: 0, max: 1 }),
    minP: readNumber(raw, 'minP', 0, { min: 0, max: 1 }),
    repetitionPenalty: readNumber(raw, 'repetitionPenalty', 1, { above: 0 }),
    presencePenalty: readNumber(raw, 'presencePenalty', 0, { min: -2, max: 2 }),
    frequencyPenalty: readNumber(raw, 'frequencyPenalty', 0, { min: -2, max: 2 }),
    logitBias: readLogitBias(raw.logitBias, logitBiasMax, limits.vocabSize),
    seed: isAbsent(raw.seed) ? BigInt.asUintN(64, limits.drawSeed()) : readSeed(raw.seed),
    maxTokens,
    minTokens,
    stop: readStopStrings(raw.stop, stopStringsMax),
    stopTokenIds: readTokenIds(raw.stopTokenIds, stopTokenIdsMax, limits.vocabSize),
    ignoreEos: readBoolean(raw, 'ignoreEos', false),
    includeStopStrInOutput: readBoolean(raw, 'includeStopStrInOutput', false),
    skipSpecialTokens: readBoolean(raw, 'skipSpecialTokens', true),
    ...(logprobs === undefined ? {} : { logprobs }),
    ...(promptLogprobs === undefined ? {} : { promptLogprobs }),
    ...(isAbsent(raw.structuredOutputs) ? {} : { structuredOutputs: readStructuredOutputs(raw.structuredOutputs) }),
  });
}

function readCount(raw: Readonly<Record<string, unknown>>, name: string): number | undefined {
  return isAbsent(raw[name]) ? undefined : readInteger(raw, name, 0, { min: 0, max: logprobsMax });
}

function readObject(input: unknown): Readonly<Record<string, unknown>> {
  if (isAbsent(input)) return {};
  if (typeof input !== 'object' || Array.isArray(input)) {
    throw invalidParameter({ parameter: 'params', expected: 'an object', actual: describeValue(input) });
  }
  // Without this check, a misspelt name would silently mean the default.
  for (const key of Object.keys(input)) {
    if (known.has(key)) continue;
    throw invalidParameter({
      parameter: key.slice(0, 40),
      expected: `absent: it is no sampling parameter (known: ${[...known].join(', ')})`,
      actual: describeValue((input as Record<string, unknown>)[key]),
    });
  }
  return input as Record<string, unknown>;
}

const isAbsent = (value: unknown): value is undefined | null => value === undefined || value === null;
