import { describe, expect, it } from 'vitest';
import { missingWindow } from './sliding-window.ts';

describe('a window that the converter has dropped', () => {
  const mistral = {
    ...{ architecture: 'llama', layerCount: 32, embeddingLength: 4096, feedForwardLength: 14_336 },
    ...{ headCount: 32, headCountKv: 8, contextLength: 32_768, rope: { freqBase: 10_000 } },
  };

  it('is named for Mistral 7B v0.1, if texts may be longer', () => {
    expect(missingWindow(mistral, 32_768)).toMatch(/Mistral 7B v0.1, .* only the 4096 tokens .* --max-model-len 4096/);
    expect(missingWindow(mistral, 4096)).toBeUndefined();
  });

  it.each([
    ['Mistral 7B v0.2', { rope: { freqBase: 1_000_000 } }],
    ['Llama 3 8B', { rope: { freqBase: 500_000 }, contextLength: 8192 }],
    ['another architecture', { architecture: 'qwen2' }],
    ['another shape', { headCountKv: 32 }],
  ])('is not named for %s', (_, changes) => {
    expect(missingWindow({ ...mistral, ...changes }, 32_768)).toBeUndefined();
  });
});
