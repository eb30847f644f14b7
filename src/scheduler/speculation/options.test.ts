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

test('a draft model is a file or a name', () => {
  const options = { method: 'draft_model', model: 'small.gguf', numSpeculativeTokens: 4 };
  expect(readSpeculativeConfig({ model: 'small.gguf', num_speculative_tokens: 4 })).toEqual(options);
  expect(readSpeculativeConfig(options)).toEqual(options);
});

test.each([
  ['{', 'it is not JSON'],
  ['[1]', 'it is not a JSON object'],
  ['{}', 'num_speculative_tokens is missing'],
  ['{"num_speculative_tokens":0}', 'num_speculative_tokens is 0, but must be a whole number from 1 to 64'],
  ['{"num_speculative_tokens":2.5}', 'num_speculative_tokens is 2.5'],
  ['{"num_speculative_tokens":4,"method":"eagle3"}', 'method "eagle3" is not supported'],
  ['{"num_speculative_tokens":4,"quantization":"fp8"}', 'the key "quantization" is unknown'],
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
])('%s is refused', (text, problem) => {
  expect(() => parseSpeculativeConfig(text)).toThrow(problem);
});
