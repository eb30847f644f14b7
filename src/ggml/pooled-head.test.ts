import { expect, it } from 'vitest';
import { readGguf } from './gguf.ts';
import { readModelConfig } from './model-config.ts';
import { isWithoutPooler } from './pooled-head.ts';

it('a file with cls.* and no pooling type is a reranker, and only a head of one matrix is without its pooler', async () => {
  const file = await readGguf('test/data/converted/reranker-xlm-roberta.gguf');
  expect(file.metadata.u32('bert.pooling_type')).toBeUndefined();
  const { pooledHead: head } = readModelConfig(file);
  expect(head).toMatchObject({ pooling: 'cls', length: 1, scores: 'one', layers: [{ activation: 'tanh' }, {}] });
  expect(isWithoutPooler('bert', head)).toBe(false);
  // As of `BertForSequenceClassification`.
  expect(isWithoutPooler('bert', { ...head!, layers: head!.layers.slice(1) })).toBe(true);
  expect(isWithoutPooler('qwen3', { ...head!, layers: head!.layers.slice(1) })).toBe(false);
  expect(isWithoutPooler('bert', undefined)).toBe(false);
});
