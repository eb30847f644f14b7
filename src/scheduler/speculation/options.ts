import { defineError } from '../../base/errors.ts';
import type { JsonObject } from '../../base/json.ts';

/** How drafts are proposed; read from vLLM's `--speculative-config`. */
export type SpeculationOptions = OwnTextOptions | SuffixOptions | DraftModelOptions;

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

export interface SuffixOptions extends CommonOptions {
  readonly method: 'suffix';
  /** A match and its drafts are together at most so long. */
  readonly suffixDecodingMaxTreeDepth: number;
  /** How many outputs of earlier requests are searched. 0: none. */
  readonly suffixDecodingMaxCachedRequests: number;
  /** The largest number of drafts for each token of the match. */
  readonly suffixDecodingMaxSpecFactor: number;
  /** A draft ends before tokens that followed a smaller share of the earlier occurrences. */
  readonly suffixDecodingMinTokenProb: number;
}

export interface DraftModelOptions extends CommonOptions {
  readonly method: 'draft_model';
  /** A GGUF file or a name on Hugging Face, as in `EngineOptions.model`. */
  readonly model: string;
}

/** vLLM's `--speculative-config` in camelCase. */
export interface SpeculativeConfig {
  /**
   * `ngram`: drafts from the request's own text (prompt lookup). `suffix`: the most frequent continuations in the own text and in outputs
   * of earlier requests. `draft_model`: drafts from a small model. Default: `draft_model` if there is a `model`, else `ngram`.
   */
  readonly method?: 'ngram' | 'suffix' | 'draft_model';
  /** The draft model, with the same vocabulary: a GGUF file or a name on Hugging Face. */
  readonly model?: string;
  /** The largest number of drafts of a request in a step. Required, but for `suffix` it is `suffixDecodingMaxTreeDepth` by default. */
  readonly numSpeculativeTokens?: number;
  /** For `ngram`: how many of the last tokens must occur earlier in the text; default: `promptLookupMax`, or 5. */
  readonly promptLookupMin?: number;
  /** For `ngram`: longer matches are no better; default: `promptLookupMin`, or 5. */
  readonly promptLookupMax?: number;
  /** For `suffix`: a match and its drafts are together at most so long; default: 24. */
  readonly suffixDecodingMaxTreeDepth?: number;
  /** For `suffix`: how many outputs of earlier requests with the same cache salt are searched; 0: none; default: 10000. */
  readonly suffixDecodingMaxCachedRequests?: number;
  /** For `suffix`: at most so many drafts for each token of the match; default: 1. */
  readonly suffixDecodingMaxSpecFactor?: number;
  /** For `suffix`: a draft ends before tokens that followed a smaller share of the earlier occurrences; default: 0.1. */
  readonly suffixDecodingMinTokenProb?: number;
}

export const speculativeConfigInvalid = defineError(
  'KVASIR_SPECULATIVE_CONFIG_INVALID',
  'The speculative config is invalid: {problem}. An example: {example}',
  400,
);

const EXAMPLE = '{"method":"ngram","num_speculative_tokens":8,"prompt_lookup_min":2,"prompt_lookup_max":5}';
/** As many rows as a step of one request has with it: more drafts cost more than they can save. */
export const speculativeTokensMax = 64;
const LOOKUP_MAX = 32;
/** The work for each token of the text grows with it. */
const TREE_DEPTH_MAX = 128;
const CACHED_REQUESTS_MAX = 1_000_000;
const SPEC_FACTOR_MAX = 64;

const invalid = (problem: string) => speculativeConfigInvalid({ problem, example: EXAMPLE });

/**
 * Reads vLLM's keys, in snake_case or in camelCase.
 * @throws KvasirError `speculativeConfigInvalid` that names the wrong key.
 */
export function readSpeculativeConfig(config: JsonObject | object): SpeculationOptions {
  const given = new Map(Object.entries(config).map(([key, value]) => [snakeCase(key), value as unknown]));
  const { method, model } = methodOf(given);
  const known = KEYS[method];
  for (const key of given.keys()) {
    const unsupported = UNSUPPORTED.get(key);
    if (unsupported !== undefined) throw invalid(`vLLM's key "${key}" is not supported: ${unsupported}`);
    if (!known.includes(key))
      throw invalid(`the key "${key}" is unknown for the method "${method}"; its keys are ${known.join(', ')}`);
  }
  const integer = integersOf(given);
  if (method === 'suffix') return suffixOptions(given);
  const numSpeculativeTokens = integer('num_speculative_tokens', 1, speculativeTokensMax);
  if (numSpeculativeTokens === undefined) throw invalid('num_speculative_tokens is missing');
  if (method === 'draft_model') return { method, model, numSpeculativeTokens };
  const [min, max] = [integer('prompt_lookup_min', 1, LOOKUP_MAX), integer('prompt_lookup_max', 1, LOOKUP_MAX)];
  // As in vLLM: 5 and 5, and one of them if only the other one is given.
  const promptLookupMin = min ?? max ?? 5;
  const promptLookupMax = max ?? min ?? 5;
  if (promptLookupMin > promptLookupMax)
    throw invalid(`prompt_lookup_min ${promptLookupMin} is larger than prompt_lookup_max ${promptLookupMax}`);
  return { method, numSpeculativeTokens, promptLookupMin, promptLookupMax };
}

/** With vLLM's defaults. */
function suffixOptions(given: ReadonlyMap<string, unknown>): SuffixOptions {
  const integer = integersOf(given);
  const number = numbersOf(given);
  const depth = integer('suffix_decoding_max_tree_depth', 1, TREE_DEPTH_MAX) ?? 24;
  return {
    method: 'suffix',
    numSpeculativeTokens:
      integer('num_speculative_tokens', 1, speculativeTokensMax) ?? Math.min(depth, speculativeTokensMax),
    suffixDecodingMaxTreeDepth: depth,
    suffixDecodingMaxCachedRequests: integer('suffix_decoding_max_cached_requests', 0, CACHED_REQUESTS_MAX) ?? 10_000,
    suffixDecodingMaxSpecFactor: number('suffix_decoding_max_spec_factor', 0, SPEC_FACTOR_MAX) ?? 1,
    suffixDecodingMinTokenProb: number('suffix_decoding_min_token_prob', 0, 1) ?? 0.1,
  };
}

type Reader = (key: string, min: number, max: number) => number | undefined;

const integersOf = (given: ReadonlyMap<string, unknown>): Reader => reader(given, 'a whole number', Number.isInteger);
const numbersOf = (given: ReadonlyMap<string, unknown>): Reader => reader(given, 'a number', Number.isFinite);

function reader(given: ReadonlyMap<string, unknown>, kind: string, isKind: (value: number) => boolean): Reader {
  return (key, min, max) => {
    const value = given.get(key);
    if (value === undefined || value === null) return undefined;
    if (typeof value === 'number' && isKind(value) && value >= min && value <= max) return value;
    throw invalid(`${key} is ${JSON.stringify(value)}, but must be ${kind} from ${min} to ${max}`);
  };
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
  suffix: [
    'method',
    'num_speculative_tokens',
    'suffix_decoding_max_tree_depth',
    'suffix_decoding_max_cached_requests',
    'suffix_decoding_max_spec_factor',
    'suffix_decoding_min_token_prob',
  ],
  draft_model: ['method', 'model', 'num_speculative_tokens'],
};

/** Keys of vLLM, and why there is nothing that they could set. */
const UNSUPPORTED: ReadonlyMap<string, string> = new Map([
  ['rejection_sample_method', 'a draft is accepted only if it equals the sampled token'],
  ['draft_sample_method', 'the draft model drafts greedily'],
  ['use_heterogeneous_vocab', 'the draft model must have the same vocabulary'],
  ['draft_tensor_parallel_size', 'the draft model runs in the process of the engine'],
]);

function methodOf(
  given: ReadonlyMap<string, unknown>,
):
  | { readonly method: 'ngram' | 'suffix'; readonly model: undefined }
  | { readonly method: 'draft_model'; readonly model: string } {
  const model = given.get('model');
  const method = given.get('method') ?? (model === undefined ? 'ngram' : 'draft_model');
  if (method === 'ngram' || method === 'suffix') return { method, model: undefined };
  if (method !== 'draft_model')
    throw invalid(
      `method ${JSON.stringify(method)} is not supported; the methods are "ngram", "suffix" and "draft_model"`,
    );
  if (typeof model !== 'string' || model === '')
    throw invalid('the method "draft_model" needs "model": a GGUF file, or a name on Hugging Face');
  return { method, model };
}

const snakeCase = (key: string): string => key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
