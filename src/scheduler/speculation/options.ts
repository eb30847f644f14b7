import { defineError } from '../../base/errors.ts';
import type { JsonObject } from '../../base/json.ts';

/** How drafts are proposed; read from vLLM's `--speculative-config`. */
export interface SpeculationOptions {
  readonly method: 'ngram';
  /** The largest number of drafts of a request in a step. */
  readonly numSpeculativeTokens: number;
  /** How many of the last tokens must occur before: at least, and at most as far as more make a better match. */
  readonly promptLookupMin: number;
  readonly promptLookupMax: number;
}

/** vLLM's `--speculative-config` in camelCase. */
export interface SpeculativeConfig {
  /** Default `ngram`: drafts from the request's own text (prompt lookup). */
  readonly method?: 'ngram';
  /** The largest number of drafts of a request in a step. */
  readonly numSpeculativeTokens: number;
  /** How many of the last tokens must occur earlier in the text; default: `promptLookupMax`, or 5. */
  readonly promptLookupMin?: number;
  /** Longer matches are no better; default: `promptLookupMin`, or 5. */
  readonly promptLookupMax?: number;
}

export const speculativeConfigInvalid = defineError(
  'KVASIR_SPECULATIVE_CONFIG_INVALID',
  'The speculative config is invalid: {problem}. An example: {example}',
  400,
);

const EXAMPLE = '{"method":"ngram","num_speculative_tokens":8,"prompt_lookup_min":2,"prompt_lookup_max":5}';
/** As many rows as a step of one request has with it: more drafts cost more than they can save. */
const TOKENS_MAX = 64;
const LOOKUP_MAX = 32;

const invalid = (problem: string) => speculativeConfigInvalid({ problem, example: EXAMPLE });

/**
 * Reads vLLM's keys, in snake_case or in camelCase.
 * @throws KvasirError `speculativeConfigInvalid` that names the wrong key.
 */
export function readSpeculativeConfig(config: JsonObject | object): SpeculationOptions {
  const given = new Map(Object.entries(config).map(([key, value]) => [snakeCase(key), value as unknown]));
  for (const key of given.keys())
    if (!KEYS.includes(key)) throw invalid(`the key "${key}" is unknown; known keys are ${KEYS.join(', ')}`);
  const method = given.get('method') ?? 'ngram';
  if (method !== 'ngram') throw invalid(`method ${JSON.stringify(method)} is not supported; the method is "ngram"`);
  const integer = (key: string, max: number): number | undefined => {
    const value = given.get(key);
    if (value === undefined || value === null) return undefined;
    if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= max) return value;
    throw invalid(`${key} is ${JSON.stringify(value)}, but must be a whole number from 1 to ${max}`);
  };
  const numSpeculativeTokens = integer('num_speculative_tokens', TOKENS_MAX);
  if (numSpeculativeTokens === undefined) throw invalid('num_speculative_tokens is missing');
  const [min, max] = [integer('prompt_lookup_min', LOOKUP_MAX), integer('prompt_lookup_max', LOOKUP_MAX)];
  // As in vLLM: 5 and 5, and one of them if only the other one is given.
  const promptLookupMin = min ?? max ?? 5;
  const promptLookupMax = max ?? min ?? 5;
  if (promptLookupMin > promptLookupMax)
    throw invalid(`prompt_lookup_min ${promptLookupMin} is larger than prompt_lookup_max ${promptLookupMax}`);
  return { method, numSpeculativeTokens, promptLookupMin, promptLookupMax };
}

/** @throws KvasirError `speculativeConfigInvalid`. */
export function parseSpeculativeConfig(text: string): SpeculationOptions {
  let config: unknown;
  try {
    config = JSON.parse(text);
  } catch {
    throw invalid('it is not JSON');
  }
  if (typeof config !== 'object' || config === null || Array.isArray(config)) throw invalid('it is not a JSON object');
  return readSpeculativeConfig(config);
}

const KEYS: readonly string[] = ['method', 'num_speculative_tokens', 'prompt_lookup_min', 'prompt_lookup_max'];

const snakeCase = (key: string): string => key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
