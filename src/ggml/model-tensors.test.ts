import { afterAll, describe, expect, it } from 'vitest';
import { handmadeConfig } from '../../test/support/handmade-config.ts';
import { temporaryFolder } from '../../test/support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
const handmade = (changes: Parameters<typeof handmadeConfig>[1]) =>
  handmadeConfig(folder.file('handmade.gguf'), changes);

describe('a phi3 with fused matrices', () => {
  const keys = {
    'general.architecture': { string: 'phi3' },
    'phi3.context_length': { u32: 64 },
    'phi3.block_count': { u32: 1 },
    'phi3.embedding_length': { u32: 8 },
    'phi3.feed_forward_length': { u32: 16 },
    'phi3.attention.head_count': { u32: 2 },
    'phi3.attention.layer_norm_rms_epsilon': { f32: 1e-5 },
  } as const;
  const separate = ['attn_q', 'attn_k', 'attn_v', 'ffn_gate'].map(
    (name) => [`blk.0.${name}.weight`, undefined] as const,
  );
  type Tensors = NonNullable<Parameters<typeof handmade>[0]['tensors']>;
  const fused = (changes: Tensors = {}): Tensors => ({
    ...Object.fromEntries(separate),
    'blk.0.attn_qkv.weight': { shape: [8, 24] },
    'blk.0.ffn_up.weight': { shape: [8, 32] },
    ...changes,
  });

  it('is read as with separate ones', async () => {
    const config = await handmade({ keys, tensors: fused() });
    expect(config).toEqual(await handmade({ keys }));
    const biased = await handmade({ keys, tensors: fused({ 'blk.0.attn_qkv.bias': { shape: [24] } }) });
    expect(biased).toEqual({ ...config, hasQkvBias: true });
  });

  const wrong: readonly (readonly [string, Tensors, RegExp])[] = [
    ['too few rows for K and V', { 'blk.0.attn_qkv.weight': { shape: [8, 16] } }, /no tensor blk.0.attn_q.weight/],
    [
      'too many rows of queries',
      { 'blk.0.attn_qkv.weight': { shape: [8, 32] } },
      /attn_q.weight has shape \[8, 16, 1, 1\], expected \[8, 8\]/,
    ],
    ['a network of another width', { 'blk.0.ffn_up.weight': { shape: [8, 30] } }, /no tensor blk.0.ffn_gate.weight/],
    ['one set of divisors', { 'rope_factors_long.weight': { shape: [2] } }, /no tensor rope_factors_short.weight/],
    [
      'too many divisors',
      { 'rope_factors_long.weight': { shape: [4] }, 'rope_factors_short.weight': { shape: [4] } },
      /rope_factors_short.weight has shape \[4, 1, 1, 1\], expected \[2\]/,
    ],
  ];
  it.each(wrong)('is refused with %s', async (_, changes, message) => {
    await expect(handmade({ keys, tensors: fused(changes) })).rejects.toThrow(message);
  });
});
