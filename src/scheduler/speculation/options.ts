import { defineError } from '../../base/errors.ts';
import type { JsonObject } from '../../base/json.ts';

/** How drafts are proposed; read from vLLM's `--speculative-config`. */
export type SpeculationOptions = OwnTextOptions | DraftModelOptions;

interface CommonOptions {
  /** The largest number of drafts of a request in a step. */
  readonly numSpeculativeTokens: number;
}

export interface OwnTextOptions extends CommonOptions {
  readonly method: 'ngram';
  /** How many of the last tokens must occur before: at least, and at most as far as more make a better match. */
  readonly promptLookupMin: number;
  readonly promptLookupMax: number;
}

export interface DraftModelOptions extends CommonOptions {
  readonly method: 'draft_model';
  /** A GGUF file or a name on Hugging Face, as in `EngineOptions.model`. */
  readonly model: string;
}

/** vLLM's `--speculative-config` in camelCase. */
export interface SpeculativeConfig {
  /**
   * `ngram`: drafts from the request's own text (prompt lookup). `draft_model`: drafts from a small model. Default: `draft_model` if
   * there is a `model`, else `ngram`.
   */
  readonly method?: 'ngram' | 'draft_model';
  /** The draft model, with the same vocabulary: a GGUF file or a name on Hugging Face. */
  readonly model?: string;
  /** The largest number of drafts of a request in a step. */
  readonly numSpeculativeTokens: number;
  /** For `ngram`: how many of the last tokens must occur earlier in the text; default: `promptLookupMax`, or 5. */
  readonly promptLookupMin?: number;
  /** For `ngram`: longer matches are no better; default: `promptLookupMin`, or 5. */
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
  const { method, model } = methodOf(given);
  const known = KEYS[method];
  for (const key of given.keys())
    if (!known.includes(key))
      throw invalid(`the key "${key}" is unknown for the method "${method}"; its keys are ${known.join(', ')}`);
  const integer = (key: string, max: number): number | undefined => {
    const value = given.get(key);
    if (value === undefined || value === null) return undefined;
    if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= max) return value;
    throw invalid(`${key} is ${JSON.stringify(value)}, but must be a whole number from 1 to ${max}`);
  };
  const numSpeculativeTokens = integer('num_speculative_tokens', TOKENS_MAX);
  if (numSpeculativeTokens === undefined) throw invalid('num_speculative_tokens is missing');
  if (method === 'draft_model') return { method, model, numSpeculativeTokens };
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

const KEYS: Readonly<Record<SpeculationOptions['method'], readonly string[]>> = {
  ngram: ['method', 'num_speculative_tokens', 'prompt_lookup_min', 'prompt_lookup_max'],
  draft_model: ['method', 'model', 'num_speculative_tokens'],
};

function methodOf(
  given: ReadonlyMap<string, unknown>,
):
  | { readonly method: 'ngram'; readonly model: undefined }
  | { readonly method: 'draft_model'; readonly model: string } {
  const model = given.get('model');
  const method = given.get('method') ?? (model === undefined ? 'ngram' : 'draft_model');
  if (method === 'ngram') return { method, model: undefined };
  if (method !== 'draft_model')
    throw invalid(`method ${JSON.stringify(method)} is not supported; the methods are "ngram" and "draft_model"`);
  if (typeof model !== 'string' || model === '')
    throw invalid('the method "draft_model" needs "model": a GGUF file, or a name on Hugging Face');
  return { method, model };
}

const snakeCase = (key: string): string => key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
