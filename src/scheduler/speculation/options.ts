import { defineError } from '../../base/errors.ts';
import { type FieldFault, FieldReader, inSnakeCase } from '../../base/field-reader.ts';
import { parseJsonObject } from '../../base/json.ts';

/** How drafts are proposed; read from vLLM's `--speculative-config`. */
export type SpeculationOptions = OwnTextOptions | SuffixOptions | PredictionOptions | DraftModelOptions;

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

/** The model's own layer for multi-token prediction drafts. */
export interface PredictionOptions extends CommonOptions {
  readonly method: 'mtp';
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
   * of earlier requests. `mtp`: drafts from the model's own layer for multi-token prediction. `draft_model`: drafts from a small model.
   * Default: `draft_model` if there is a `model`, else `ngram`.
   */
  readonly method?: 'ngram' | 'suffix' | 'mtp' | 'draft_model';
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

/**
 * Reads vLLM's keys, in snake_case or in camelCase, with vLLM's defaults.
 * @throws KvasirError `speculativeConfigInvalid` that names the wrong key.
 */
export function readSpeculativeConfig(config: object): SpeculationOptions {
  const given = inSnakeCase(config, (key) => invalid(`${key} is given in two spellings`));
  const usual: Method = (given.model ?? undefined) === undefined ? 'ngram' : 'draft_model';
  const method = readerOf(given, usual).choice('method', methods) ?? usual;
  const reader = readerOf(given, method);
  reader.string('method');
  for (const [key, reason] of unsupported) reader.refuse(key, () => false, reason);
  const options = readOptions[method](reader);
  reader.finish();
  return options;
}

const readOptions: Readonly<Record<Method, (reader: FieldReader) => SpeculationOptions>> = {
  ngram: (reader) => {
    const numSpeculativeTokens = requiredTokens(reader);
    const range = { min: 1, max: LOOKUP_MAX };
    const [min, max] = [reader.integer('prompt_lookup_min', range), reader.integer('prompt_lookup_max', range)];
    // As in vLLM: 5 and 5, and one of them if only the other one is given.
    const promptLookupMin = min ?? max ?? 5;
    const promptLookupMax = max ?? min ?? 5;
    if (promptLookupMin > promptLookupMax)
      throw invalid(`prompt_lookup_min ${promptLookupMin} is larger than prompt_lookup_max ${promptLookupMax}`);
    return { method: 'ngram', numSpeculativeTokens, promptLookupMin, promptLookupMax };
  },
  suffix: (reader) => {
    const number = (key: string, max: number) => reader.number(`suffix_decoding_${key}`, { min: 0, max });
    const integer = (key: string, min: number, max: number) => reader.integer(`suffix_decoding_${key}`, { min, max });
    const depth = integer('max_tree_depth', 1, TREE_DEPTH_MAX) ?? 24;
    return {
      method: 'suffix',
      numSpeculativeTokens: speculativeTokens(reader) ?? Math.min(depth, speculativeTokensMax),
      suffixDecodingMaxTreeDepth: depth,
      suffixDecodingMaxCachedRequests: integer('max_cached_requests', 0, CACHED_REQUESTS_MAX) ?? 10_000,
      suffixDecodingMaxSpecFactor: number('max_spec_factor', SPEC_FACTOR_MAX) ?? 1,
      suffixDecodingMinTokenProb: number('min_token_prob', 1) ?? 0.1,
    };
  },
  mtp: (reader) => ({ method: 'mtp', numSpeculativeTokens: requiredTokens(reader) }),
  draft_model: (reader) => {
    const model = reader.text('model');
    if (model === undefined)
      throw invalid('the method "draft_model" needs "model": a GGUF file, or a name on Hugging Face');
    return { method: 'draft_model', model, numSpeculativeTokens: requiredTokens(reader) };
  },
};

const speculativeTokens = (reader: FieldReader): number | undefined =>
  reader.integer('num_speculative_tokens', { min: 1, max: speculativeTokensMax });

const requiredTokens = (reader: FieldReader): number =>
  reader.required('num_speculative_tokens', speculativeTokens(reader), `an integer from 1 to ${speculativeTokensMax}`);

/** @throws KvasirError `speculativeConfigInvalid`. */
export const parseSpeculativeConfig = (text: string): SpeculationOptions =>
  readSpeculativeConfig(parseJsonObject(text, invalid));

type Method = SpeculationOptions['method'];
const methods: readonly Method[] = ['ngram', 'suffix', 'mtp', 'draft_model'];

/** Keys of vLLM, and why there is nothing that they could set. */
const unsupported: ReadonlyMap<string, string> = new Map([
  ['rejection_sample_method', 'a draft is accepted only if it equals the sampled token'],
  ['draft_sample_method', 'the draft model drafts greedily'],
  ['use_heterogeneous_vocab', 'the draft model must have the same vocabulary'],
  ['draft_tensor_parallel_size', 'the draft model runs in the process of the engine'],
]);

const invalid = (problem: string): Error => speculativeConfigInvalid({ problem, example: EXAMPLE });

const readerOf = (given: object, method: Method): FieldReader =>
  new FieldReader(given, (fault) => invalid(problemOf(fault, method)));

function problemOf(fault: FieldFault, method: Method): string {
  const { parameter: key, actual } = fault;
  if (fault.kind === 'missing') return `${key} is missing`;
  if (fault.kind === 'unsupported') return `vLLM's key "${key}" is not supported: ${fault.detail}`;
  if (fault.kind === 'invalid') return `${key} is ${actual}, but must be ${fault.expected}`;
  return `the key "${key}" is unknown for the method "${method}"; its keys are ${fault.known.join(', ')}`;
}
