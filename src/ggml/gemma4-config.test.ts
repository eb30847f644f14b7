import { writeFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { type GgufFieldValue, ggufBytes } from '../../test/support/gguf-bytes.ts';
import {
  gemma4WithExperts,
  type ModelOptions,
  temporaryFolder,
  writeTinyHeader,
} from '../../test/support/tiny-model.ts';
import { readGguf } from './gguf.ts';
import { kvLayerOf } from './layer-shapes.ts';
import { readModelConfig } from './model-config.ts';
import { ropeOfLayer } from './rope-config.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

async function configOfTiny(options: Partial<ModelOptions>) {
  const path = folder.file('tiny.gguf');
  await writeTinyHeader(path, { architecture: 'gemma4', type: 'F16', ...options });
  return readModelConfig(await readGguf(path));
}

describe('the configuration of gemma4', () => {
  it('has the heads of both kinds of layers, shared KV and per-layer embeddings', async () => {
    const config = await configOfTiny({ finalSoftCap: 20 });
    expect(config).toMatchObject({
      headDim: 128,
      headCountKv: 1,
      slidingWindow: { window: 40, layers: [0, 1, 3], heads: { headDim: 64, headCountKv: 1 } },
      ...{
        sharedKvFrom: 3,
        perLayerLength: 64,
        feedForwardLength: 512,
        feedForwardLengths: [512, 512, 512, 1024, 1024],
      },
      ...{ attentionScale: 1, embeddingScale: 16, finalSoftCap: 20, hasLayerScale: true, norms: 'around' },
      rope: { mode: 'neox', dimension: 128, freqBase: 1_000_000, freqFactors: 'rope_freqs.weight' },
    });
    expect(ropeOfLayer(config, 1)).toMatchObject({ dimension: 64, freqBase: 10_000 });
    expect(ropeOfLayer(config, 1)).not.toHaveProperty('freqFactors');
    expect(config).not.toHaveProperty('keyIsValue');
    expect([0, 1, 2, 3, 4].map((layer) => kvLayerOf(config, layer))).toEqual([0, 1, 2, 1, 2]);
    // Without a key, llama.cpp has this cap.
    expect(await configOfTiny({})).toMatchObject({ finalSoftCap: 30 });
    const mixture = await configOfTiny({ ...gemma4WithExperts });
    expect(mixture).toMatchObject({ keyIsValue: [2], slidingWindow: { heads: { headCountKv: 4 } } });
    expect(mixture.experts).toMatchObject({ isBesideNetwork: true, hasFusedGate: true, hasResultScale: true });
    expect(mixture).not.toHaveProperty('sharedKvFrom');
  });

  it('has no matrices of K and V that the layers of gemma4 with shared KV have in the file', async () => {
    const [plain, spare] = [folder.file('plain.gguf'), folder.file('spare.gguf')];
    await writeTinyHeader(plain, { architecture: 'gemma4', type: 'F16' });
    await writeTinyHeader(spare, { architecture: 'gemma4', type: 'F16', gemma4: { spareKv: true } });
    const [one, other] = [await readGguf(plain), await readGguf(spare)];
    expect(other.fileBytes).toBeGreaterThan(one.fileBytes);
    expect([...other.tensors.keys()]).toEqual([...one.tensors.keys()]);
    expect(readModelConfig(other)).toEqual(readModelConfig(one));
  });
});

async function handmade(keys: Record<string, GgufFieldValue | undefined>) {
  const path = folder.file('handmade.gguf');
  const tensors = ['token_embd.weight', 'output_norm.weight'].map((name) => ({
    name,
    shape: name.startsWith('token') ? [8, 10] : [8],
  }));
  const present = Object.entries(keys).flatMap(([key, value]) => (value === undefined ? [] : [[key, value] as const]));
  writeFileSync(path, ggufBytes({ keys: present, tensors }));
  return readModelConfig(await readGguf(path));
}

describe('a gemma4 that is not supported', () => {
  const base = {
    context_length: { u32: 64 },
    block_count: { u32: 4 },
    embedding_length: { u32: 8 },
    feed_forward_length: { u32: 16 },
    embedding_length_per_layer_input: { u32: 0 },
    'attention.head_count': { u32: 4 },
    'attention.head_count_kv': { i32s: [2, 1, 2, 1] },
    'attention.key_length': { u32: 8 },
    'attention.value_length': { u32: 8 },
    'attention.key_length_swa': { u32: 4 },
    'attention.value_length_swa': { u32: 4 },
    'attention.sliding_window': { u32: 8 },
    'attention.sliding_window_pattern': { i32s: [1, 0, 1, 0] },
    'attention.layer_norm_rms_epsilon': { f32: 1e-6 },
  } as const;
  const cases: readonly (readonly [string, Record<string, GgufFieldValue | undefined>, RegExp])[] = [
    ['no list of windows', { 'attention.sliding_window_pattern': undefined }, /sliding_window_pattern/],
    [
      'layers of one kind',
      { 'attention.sliding_window_pattern': { i32s: [1, 1, 1, 1] } },
      /sliding_window_pattern must be a list with layers of both kinds/,
    ],
    ['no window', { 'attention.sliding_window': { u32: 0 } }, /attention.sliding_window/],
    ['no length of heads', { 'attention.key_length_swa': undefined }, /attention.key_length_swa/],
    [
      'keys and values of different lengths',
      { 'attention.value_length_swa': { u32: 8 } },
      /different lengths \(key_length_swa = 4, value_length_swa = 8\)/,
    ],
    [
      'other KV heads within a kind',
      { 'attention.head_count_kv': { i32s: [2, 1, 4, 1] } },
      /one kind with different numbers of KV heads \(head_count_kv = 2, 1, 4, 1\)/,
    ],
    [
      'KV heads that do not divide the heads',
      { 'attention.head_count_kv': { i32s: [3, 1, 3, 1] } },
      /head_count_kv must be divisors of head_count, which is 4/,
    ],
    [
      'more shared layers than others',
      { 'attention.shared_kv_layers': { u32: 3 } },
      /shared_kv_layers must be at most 2/,
    ],
    [
      'shared layers without one of each kind before them',
      { 'attention.shared_kv_layers': { u32: 1 } },
      /just before them \(shared_kv_layers = 1\)/,
    ],
    ['no list of widths', { feed_forward_length: { i32s: [16, 16] } }, /feed_forward_length must be an integer, or 4/],
    [
      'more elements with RoPE than a head has',
      { 'rope.dimension_count_swa': { u32: 8 } },
      /dimension_count_swa must be/,
    ],
    ['no divisors of RoPE', {}, /no tensor rope_freqs.weight/],
  ];
  it.each(cases)('is refused with a message that names the problem: %s', async (_, changes, message) => {
    const named = Object.entries({ ...base, ...changes }).map(([name, value]) => [`gemma4.${name}`, value]);
    const keys = { 'general.architecture': { string: 'gemma4' }, ...Object.fromEntries(named) };
    await expect(handmade(keys)).rejects.toThrow(message);
    await expect(handmade(keys)).rejects.toMatchObject({ name: 'KvasirError' });
  });
});
