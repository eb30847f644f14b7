import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder, writeTinyModel } from '../../test/support/tiny-model.ts';
import { type LlamaReference, openReference } from './llama-reference.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

describe('libllama as a reference', () => {
  const prompt = Int32Array.from({ length: 40 }, (_, i) => (i * 37 + 11) % 256);
  let reference: LlamaReference;

  beforeAll(async () => {
    const path = folder.file('reference.gguf');
    await writeTinyModel(path, { architecture: 'qwen3', type: 'Q8_0' });
    reference = openReference(path, { contextLength: 256, threads: 1, batch: 64, sequences: 3 });
    return () => reference.close();
  });

  it('returns the logits of every row, and the logits of the last row do not depend on the chunks of the prompt', () => {
    reference.clear();
    reference.decode(prompt, { wantAllLogits: true });
    const all = Array.from(prompt, (_, row) => reference.logits(row));
    expect(all[39]).toHaveLength(reference.vocabSize);
    reference.removeFrom(25);
    reference.decode(prompt.subarray(25), { position: 25 });
    expect(largestDifference(reference.logits(), all[39]!)).toBeLessThan(0.05);
    expect(largestDifference(all[38]!, all[39]!)).toBeGreaterThan(0.5);
  });

  it('copies a sequence and decodes several sequences in one batch', () => {
    reference.clear();
    reference.decode(prompt.subarray(0, 39), { sequence: 0 });
    reference.copySequence(0, 1, 39);
    reference.copySequence(0, 2, 39);
    reference.decodeBatch({ tokens: [10, 20], positions: [39, 39], sequences: [1, 2], wanted: [1, 1] });
    const together = [reference.logits(0), reference.logits(1)];
    reference.decode([10], { position: 39, sequence: 0 });
    expect(largestDifference(reference.logits(), together[0]!)).toBeLessThan(0.05);
    expect(largestDifference(reference.logits(), together[1]!)).toBeGreaterThan(0.5);
  });

  it.each([
    ['states', { architecture: 'lfm2', type: 'Q8_0' }],
    ['a window', { architecture: 'gemma3', type: 'Q8_0' }],
  ] as const)('restores a saved sequence of a model with %s, whose end cannot be removed', async (_, model) => {
    const path = folder.file(`${model.architecture}.gguf`);
    await writeTinyModel(path, model);
    const options = { contextLength: 512, threads: 1, batch: 64, keepsAllTokens: false };
    const other = openReference(path, options);
    const context = Int32Array.from({ length: 200 }, (_, i) => (i * 53 + 7) % 256);
    try {
      expect(other.canRemoveEnd).toBe(false);
      other.decode(context);
      const saved = other.saveSequence();
      other.decode([9], { position: 200 });
      const expected = other.logits();
      other.decode(context, { position: 201 });
      other.restoreSequence(saved);
      other.decode([9], { position: 200 });
      expect(largestDifference(other.logits(), expected)).toBeLessThan(0.05);
      other.decode([10], { position: 201 });
      expect(largestDifference(other.logits(), expected)).toBeGreaterThan(0.5);
    } finally {
      other.close();
    }
  });

  it('throws the reason why a file cannot be loaded', () => {
    expect(() => openReference(folder.file('nothing.gguf'), { contextLength: 64, threads: 1, batch: 8 })).toThrow(
      /nothing\.gguf could not be loaded by llama\.cpp: /,
    );
  });
});

function largestDifference(a: Float32Array, b: Float32Array): number {
  return a.reduce((largest, value, i) => Math.max(largest, Math.abs(value - b[i]!)), 0);
}
