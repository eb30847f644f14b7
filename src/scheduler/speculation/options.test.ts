import { expect, test } from 'vitest';
import { parseSpeculativeConfig, readSpeculativeConfig } from './options.ts';

test("vLLM's keys are read in both spellings, with vLLM's defaults", () => {
  const defaults = { method: 'ngram', numSpeculativeTokens: 4, promptLookupMin: 5, promptLookupMax: 5 };
  expect(readSpeculativeConfig({ method: 'ngram', num_speculative_tokens: 4 })).toEqual(defaults);
  expect(readSpeculativeConfig({ numSpeculativeTokens: 4 })).toEqual(defaults);
  expect(readSpeculativeConfig({ num_speculative_tokens: 4, prompt_lookup_max: 3 })).toMatchObject({
    promptLookupMin: 3,
    promptLookupMax: 3,
  });
  expect(parseSpeculativeConfig('{"num_speculative_tokens":4,"prompt_lookup_min":2}')).toMatchObject({
    promptLookupMin: 2,
    promptLookupMax: 2,
  });
});

test("suffix decoding has vLLM's keys and defaults, and needs no number of drafts", () => {
  const defaults = {
    method: 'suffix',
    numSpeculativeTokens: 24,
    suffixDecodingMaxTreeDepth: 24,
    suffixDecodingMaxCachedRequests: 10_000,
    suffixDecodingMaxSpecFactor: 1,
    suffixDecodingMinTokenProb: 0.1,
  };
  expect(readSpeculativeConfig({ method: 'suffix' })).toEqual(defaults);
  expect(readSpeculativeConfig(defaults)).toEqual(defaults);
  const text =
    '{"method":"suffix","num_speculative_tokens":5,"suffix_decoding_max_tree_depth":64,"suffix_decoding_max_cached_requests":0,"suffix_decoding_max_spec_factor":2.5,"suffix_decoding_min_token_prob":0}';
  expect(parseSpeculativeConfig(text)).toEqual({
    method: 'suffix',
    numSpeculativeTokens: 5,
    suffixDecodingMaxTreeDepth: 64,
    suffixDecodingMaxCachedRequests: 0,
    suffixDecodingMaxSpecFactor: 2.5,
    suffixDecodingMinTokenProb: 0,
  });
  const deep = (depth: number) => readSpeculativeConfig({ method: 'suffix', suffix_decoding_max_tree_depth: depth });
  expect([deep(1), deep(40), deep(128)].map(({ numSpeculativeTokens }) => numSpeculativeTokens)).toEqual([1, 40, 64]);
});

test('a draft model is a file or a name', () => {
  const options = { method: 'draft_model', model: 'small.gguf', numSpeculativeTokens: 4 };
  expect(readSpeculativeConfig({ model: 'small.gguf', num_speculative_tokens: 4 })).toEqual(options);
  expect(readSpeculativeConfig(options)).toEqual(options);
});

test.each([
  ['{', 'it is not JSON'],
  ['[1]', 'it is not a JSON object'],
  ['{}', 'num_speculative_tokens is missing'],
  ['{"num_speculative_tokens":0}', 'num_speculative_tokens is 0, but must be an integer from 1 to 64'],
  ['{"num_speculative_tokens":2.5}', 'num_speculative_tokens is 2.5'],
  [
    '{"num_speculative_tokens":4,"method":"eagle3"}',
    'method is "eagle3", but must be one of ngram, suffix, mtp, draft_model',
  ],
  ['{"num_speculative_tokens":4,"quantization":"fp8"}', 'the key "quantization" is unknown'],
  ['{"num_speculative_tokens":4,"draft_sample_method":"greedy"}', 'not supported: the draft model drafts greedily'],
  ['{"num_speculative_tokens":4,"method":"draft_model"}', 'the method "draft_model" needs "model"'],
  [
    '{"num_speculative_tokens":4,"method":"ngram","model":"m.gguf"}',
    'the key "model" is unknown for the method "ngram"',
  ],
  ['{"num_speculative_tokens":4,"model":"m.gguf","prompt_lookup_min":2}', 'the key "prompt_lookup_min" is unknown'],
  [
    '{"num_speculative_tokens":4,"prompt_lookup_min":4,"prompt_lookup_max":2}',
    'prompt_lookup_min 4 is larger than prompt_lookup_max 2',
  ],
  ['{"method":"suffix","num_speculative_tokens":65}', 'num_speculative_tokens is 65, but must be an integer'],
  ['{"method":"suffix","prompt_lookup_min":2}', 'the key "prompt_lookup_min" is unknown for the method "suffix"'],
  ['{"method":"suffix","model":"m.gguf"}', 'the key "model" is unknown for the method "suffix"'],
  ['{"method":"suffix","suffix_decoding_depth":2}', 'the key "suffix_decoding_depth" is unknown'],
  ['{"num_speculative_tokens":4,"suffix_decoding_max_tree_depth":9}', 'is unknown for the method "ngram"'],
  ['{"method":"suffix","suffix_decoding_max_tree_depth":0}', 'must be an integer from 1 to 128'],
  ['{"method":"suffix","suffix_decoding_max_tree_depth":129}', 'must be an integer from 1 to 128'],
  ['{"method":"suffix","suffix_decoding_max_cached_requests":-1}', 'must be an integer from 0 to 1000000'],
  ['{"method":"suffix","suffix_decoding_max_cached_requests":1.5}', 'must be an integer from 0 to 1000000'],
  ['{"method":"suffix","suffix_decoding_max_spec_factor":-0.1}', 'must be a number from 0 to 64'],
  ['{"method":"suffix","suffix_decoding_max_spec_factor":"2"}', 'must be a number from 0 to 64'],
  ['{"method":"suffix","suffix_decoding_min_token_prob":1.01}', 'must be a number from 0 to 1'],
  ['{"method":"mtp"}', 'num_speculative_tokens is missing'],
  ['{"method":"suffix","suffix_decoding_min_token_prob":-0.01}', 'must be a number from 0 to 1'],
])('%s is refused', (text, problem) => {
  expect(() => parseSpeculativeConfig(text)).toThrow(problem);
});
