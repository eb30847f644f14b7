import { writeFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { type GgufBytesTensor, type GgufFieldValue, ggufBytes } from '../../test/support/gguf-bytes.ts';
import { type ModelOptions, temporaryFolder, writeTinyModel } from '../../test/support/tiny-model.ts';
import { readGguf } from './gguf.ts';
import { readModelConfig } from './model-config.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

async function configOfTiny(options: Partial<ModelOptions>) {
  const path = folder.file('tiny.gguf');
  await writeTinyModel(path, { architecture: 'llama', type: 'F16', ...options });
  return readModelConfig(await readGguf(path));
}

describe('the configuration of a model', () => {
  it('follows from its metadata and tensors', async () => {
    expect(await configOfTiny({ architecture: 'qwen3', layers: 3, tied: true })).toMatchObject({
      architecture: 'qwen3',
      contextLength: 4096,
      vocabSize: 320,
      layerCount: 3,
      embeddingLength: 256,
      headCount: 4,
      headCountKv: 2,
      headDim: 64,
      feedForwardLength: 512,
      rmsEpsilon: Math.fround(1e-6),
      rope: { mode: 'neox', scaling: 'none', dimension: 64, freqBase: 1_000_000, freqScale: 1, extFactor: 0 },
      hasQkvBias: false,
      hasQkNorm: true,
      tiedEmbeddings: true,
    });
    expect(await configOfTiny({ architecture: 'qwen2' })).toMatchObject({ hasQkvBias: true, tiedEmbeddings: false });
    expect(await configOfTiny({})).toMatchObject({ hasQkvBias: false, hasQkNorm: false, rope: { mode: 'normal' } });
  });

  it('has the experts of a mixture', async () => {
    const experts = { count: 8, used: 3, feedForwardLength: 256 };
    expect(await configOfTiny({ architecture: 'qwen3moe', experts })).toMatchObject({
      architecture: 'qwen3moe',
      experts,
      hasQkNorm: true,
      rope: { mode: 'neox', freqBase: 1_000_000 },
    });
    expect(await configOfTiny({})).not.toHaveProperty('experts');
  });

  it('has the RoPE scaling of the file', async () => {
    expect((await configOfTiny({ ropeScaling: 'linear' })).rope).toMatchObject({ scaling: 'linear', freqScale: 0.25 });
    expect((await configOfTiny({ ropeScaling: 'yarn' })).rope).toMatchObject({
      scaling: 'yarn',
      freqScale: 0.25,
      extFactor: 1,
      attnFactor: 1,
      originalContextLength: 1024,
    });
    expect((await configOfTiny({ ropeScaling: 'llama3' })).rope).toMatchObject({
      scaling: 'none',
      hasFreqFactors: true,
    });
  });

  it('has the windows of gemma3', async () => {
    const config = await configOfTiny({ architecture: 'gemma3', layers: 7, windowPattern: 3, ropeScaling: 'linear' });
    expect(config).toMatchObject({
      rope: { mode: 'neox', freqBase: 1_000_000, freqScale: 0.25 },
      slidingWindow: { window: 40, layers: [0, 1, 3, 4, 6], rope: { freqBase: 10_000, freqScale: 1 } },
      attentionScale: 1 / 8,
      embeddingScale: 16,
      hasQkNorm: true,
      hasPostNorms: true,
      tiedEmbeddings: true,
    });
    expect((await configOfTiny({ architecture: 'gemma3', window: 0 })).slidingWindow).toBeUndefined();
    expect((await configOfTiny({ architecture: 'gemma3', windowPattern: 1 })).slidingWindow).toBeUndefined();
    await expect(configOfTiny({ architecture: 'gemma3', window: 1 })).rejects.toThrow(
      /sliding_window must be between 2/,
    );
    expect((await configOfTiny({ architecture: 'gemma3', finalSoftCap: 30 })).finalSoftCap).toBe(30);
    expect((await configOfTiny({ architecture: 'qwen3' })).slidingWindow).toBeUndefined();
  });

  it('has the windows of lfm2: in all layers with attention, or in those of its pattern', async () => {
    const lfm2 = { architecture: 'lfm2', layers: 6, stateLayers: [0, 3], window: 40 } as const;
    const { rope, ...config } = await configOfTiny(lfm2);
    expect(config.slidingWindow).toEqual({ window: 40, layers: [1, 2, 4, 5], rope });
    const windowsOf = async (...windowLayers: number[]) =>
      (await configOfTiny({ ...lfm2, windowLayers })).slidingWindow?.layers;
    expect(await windowsOf(1, 4)).toEqual([1, 4]);
    expect(await windowsOf(0, 1)).toEqual([1]);
    expect(await windowsOf()).toBeUndefined();
    expect((await configOfTiny({ ...lfm2, window: 0 })).slidingWindow).toBeUndefined();
    await expect(configOfTiny({ ...lfm2, window: 1 })).rejects.toThrow(/sliding_window must be between 2/);
  });

  it('has the windows, sinks and biases of gpt-oss', async () => {
    const config = await configOfTiny({ architecture: 'gpt-oss', type: 'MXFP4', layers: 5, ropeScaling: 'yarn' });
    expect(config).toMatchObject({
      rope: { mode: 'neox', freqBase: 10_000, freqScale: 0.25, scaling: 'yarn', betaFast: 32, betaSlow: 1 },
      slidingWindow: { window: 40, layers: [0, 2, 4], rope: { freqBase: 10_000, freqScale: 0.25, scaling: 'yarn' } },
      experts: { count: 8, used: 3, feedForwardLength: 256 },
      hasQkvBias: true,
      hasOutputBias: true,
      hasExpertBias: true,
      hasSinks: true,
      feedForwardNormName: 'post_attention_norm',
      tiedEmbeddings: false,
    });
    const other = await configOfTiny({ architecture: 'gpt-oss', windowFreqBase: 500 });
    expect(other.rope.freqBase).toBe(10_000);
    expect(other.slidingWindow!.rope.freqBase).toBe(500);
    await expect(configOfTiny({ architecture: 'gpt-oss', tied: true })).rejects.toThrow(/no tensor output.weight/);
  });

  it('has the latent attention and the experts of deepseek2', async () => {
    const architecture = 'deepseek2';
    const config = await configOfTiny({ architecture, layers: 4, ropeScaling: 'yarn', yarnLogMultiplier: 0.75 });
    expect(config).toMatchObject({
      headCountKv: 1,
      headDim: 288,
      latent: { rank: 256, ropeLength: 32, queryLength: 64, valueLength: 64, queryRank: 256 },
      rope: { mode: 'normal', dimension: 32, scaling: 'yarn', freqScale: 0.25 },
      experts: { denseLayers: 1, sharedLength: 512, gating: 'softmax', dividesBySum: false, weightScale: 1 },
    });
    // The magnitude is in the scale of attention, not in RoPE.
    expect(config.rope.attnFactor).toBeCloseTo(1 / (1 + 0.1 * Math.log(4)), 6);
    expect(config.attentionScale).toBeCloseTo((1 + 0.075 * Math.log(4)) ** 2 / Math.sqrt(96), 6);
    expect((await configOfTiny({ architecture })).attentionScale).toBeCloseTo(1 / Math.sqrt(96), 9);
    const lite = { rank: 64, ropeLength: 32, queryLength: 32, valueLength: 32 };
    expect((await configOfTiny({ architecture, latent: lite })).latent).toEqual(lite);
    const other = { gating: 'sigmoid', dividesBySum: true, weightScale: 2.5, hasChoiceBias: true } as const;
    const experts = { count: 4, used: 2, feedForwardLength: 256, ...other };
    expect((await configOfTiny({ architecture, experts })).experts).toMatchObject(experts);
  });

  it.each(['qwen35', 'qwen35moe', 'deepseek2'] as const)(
    'has only the layers of %s that compute the next token',
    async (architecture) => {
      const [plain, predicting] = [folder.file('plain.gguf'), folder.file('predicting.gguf')];
      const options = { architecture, type: 'F16', layers: 3, stateLayers: [0, 2] } as const;
      await writeTinyModel(plain, options);
      await writeTinyModel(predicting, { ...options, predictionLayers: 2 });
      const [one, other] = [await readGguf(plain), await readGguf(predicting)];
      expect(other.fileBytes).toBeGreaterThan(1.3 * one.fileBytes);
      expect([...other.tensors.keys()]).toEqual([...one.tensors.keys()]);
      expect(readModelConfig(other)).toEqual(readModelConfig(one));
    },
  );

  it('has defaults for missing metadata', async () => {
    const config = await handmade({});
    expect(config).toMatchObject({
      headCountKv: 2,
      headDim: 4,
      rope: { freqBase: 10_000, freqScale: 1, dimension: 4, betaFast: 32, betaSlow: 1, originalContextLength: 64 },
    });
  });
});

/** A llama of one layer with 8-wide embeddings, and these changes. */
function handmade(changes: {
  readonly keys?: Record<string, GgufFieldValue | undefined>;
  readonly tensors?: Record<string, Partial<GgufBytesTensor> | undefined>;
}) {
  const keys: Record<string, GgufFieldValue | undefined> = {
    'general.architecture': { string: 'llama' },
    'llama.context_length': { u32: 64 },
    'llama.block_count': { u32: 1 },
    'llama.embedding_length': { u32: 8 },
    'llama.feed_forward_length': { u32: 16 },
    'llama.attention.head_count': { u32: 2 },
    'llama.attention.layer_norm_rms_epsilon': { f32: 1e-5 },
    ...changes.keys,
  };
  const base: Record<string, Partial<GgufBytesTensor>> = {
    'token_embd.weight': { shape: [8, 10] },
    'output_norm.weight': { shape: [8] },
    'blk.0.attn_norm.weight': { shape: [8] },
    'blk.0.attn_q.weight': { shape: [8, 8] },
    'blk.0.attn_k.weight': { shape: [8, 8] },
    'blk.0.attn_v.weight': { shape: [8, 8] },
    'blk.0.attn_output.weight': { shape: [8, 8] },
    'blk.0.ffn_norm.weight': { shape: [8] },
    'blk.0.ffn_gate.weight': { shape: [8, 16] },
    'blk.0.ffn_up.weight': { shape: [8, 16] },
    'blk.0.ffn_down.weight': { shape: [16, 8] },
  };
  const tensors = { ...base, ...changes.tensors };
  const path = folder.file('handmade.gguf');
  writeFileSync(
    path,
    ggufBytes({
      keys: Object.entries(keys).flatMap(([key, value]) => (value === undefined ? [] : [[key, value] as const])),
      tensors: Object.entries(tensors).flatMap(([name, tensor]) =>
        tensor === undefined ? [] : [{ name, shape: [8], ...base[name], ...tensor }],
      ),
    }),
  );
  return readGguf(path).then(readModelConfig);
}

describe('a deepseek2 that is not supported', () => {
  const base = {
    'general.architecture': { string: 'deepseek2' },
    'deepseek2.context_length': { u32: 64 },
    'deepseek2.block_count': { u32: 1 },
    'deepseek2.embedding_length': { u32: 8 },
    'deepseek2.feed_forward_length': { u32: 16 },
    'deepseek2.attention.head_count': { u32: 2 },
    'deepseek2.attention.layer_norm_rms_epsilon': { f32: 1e-5 },
    'deepseek2.attention.key_length_mla': { u32: 24 },
    'deepseek2.attention.value_length_mla': { u32: 16 },
    'deepseek2.attention.kv_lora_rank': { u32: 32 },
    'deepseek2.rope.dimension_count': { u32: 8 },
    'deepseek2.expert_count': { u32: 4 },
    'deepseek2.expert_used_count': { u32: 2 },
    'deepseek2.expert_feed_forward_length': { u32: 8 },
    'deepseek2.expert_shared_count': { u32: 1 },
  } as const;
  const cases: readonly (readonly [string, Record<string, GgufFieldValue | undefined>, RegExp])[] = [
    ['older files', { 'attention.key_length_mla': undefined }, /as in files of before April 2025.*newer convert_hf_to/],
    ['several KV heads', { 'attention.head_count_kv': { u32: 2 } }, /head_count_kv must be 1 for latent attention/],
    ['no elements without RoPE', { 'attention.key_length_mla': { u32: 8 } }, /more than rope.dimension_count \(8\)/],
    ['no length of the latent vector', { 'attention.kv_lora_rank': { u32: 0 } }, /kv_lora_rank must be between 1/],
    ['groups of experts', { expert_group_count: { u32: 8 } }, /this router \(expert_group_count = 8\)/],
    ['another router', { expert_gating_func: { u32: 3 } }, /this router \(expert_gating_func = 3\)/],
    [
      'only prediction layers',
      { nextn_predict_layers: { u32: 1 } },
      /nextn_predict_layers must be less than block_count/,
    ],
    ['a temperature of attention', { 'attention.temperature_scale': { f32: 0.1 } }, /attention temperature/],
  ];
  it.each(cases)('is refused with a message that names the problem: %s', async (_, changes, message) => {
    const changed = Object.fromEntries(Object.entries(changes).map(([name, value]) => [`deepseek2.${name}`, value]));
    const keys = { ...base, 'deepseek2.attention.q_lora_rank': { u32: 8 }, ...changed };
    await expect(handmade({ keys })).rejects.toThrow(message);
  });
});

describe('a model that is not supported', () => {
  type Changes = Parameters<typeof handmade>[0];
  const cases: readonly (readonly [string, Changes, RegExp])[] = [
    ['no architecture', { keys: { 'general.architecture': undefined } }, /no metadata general.architecture/],
    [
      'another architecture',
      { keys: { 'general.architecture': { string: 'gemma2' } } },
      /architecture gemma2; supported: llama, qwen2, qwen3, qwen3moe, gemma3, gpt-oss/,
    ],
    ['a missing key', { keys: { 'llama.embedding_length': undefined } }, /no metadata llama.embedding_length/],
    ['no layers', { keys: { 'llama.block_count': { u32: 0 } } }, /block_count must be between/],
    ['too many layers', { keys: { 'llama.block_count': { u32: 1000 } } }, /block_count must be at most 512/],
    ['heads that do not divide', { keys: { 'llama.attention.head_count_kv': { u32: 3 } } }, /a divisor of head_count/],
    ['odd heads', { keys: { 'llama.attention.head_count': { u32: 8 } } }, /key_length must be an even number/],
    [
      'keys unlike values',
      { keys: { 'llama.attention.value_length': { u32: 8 } } },
      /keys and values of different lengths/,
    ],
    ['half-rotated heads', { keys: { 'llama.rope.dimension_count': { u32: 2 } } }, /dimension_count must be 4/],
    [
      'an unknown scaling',
      { keys: { 'llama.rope.scaling.type': { string: 'longrope' } } },
      /rope.scaling.type = longrope/,
    ],
    ['experts', { keys: { 'llama.expert_count': { u32: 8 } } }, /a mixture of experts \(expert_count = 8\)/],
    [
      'prediction layers of another architecture',
      { keys: { 'llama.nextn_predict_layers': { u32: 1 } } },
      /layers for multi-token prediction \(nextn_predict_layers = 1\)/,
    ],
    ['layers of different sizes', { keys: { 'llama.attention.head_count': { i32s: [2] } } }, /different sizes/],
    ['an embedding model', { keys: { 'llama.attention.causal': { bool: false } } }, /embedding model/],
    ['a missing tensor', { tensors: { 'blk.0.ffn_up.weight': undefined } }, /no tensor blk.0.ffn_up.weight/],
    ['an unknown tensor', { tensors: { 'blk.0.attn_sinks.weight': {} } }, /tensor blk.0.attn_sinks.weight, which/],
    ['an expert tensor', { tensors: { 'blk.0.ffn_gate_exps.weight': {} } }, /tensor blk.0.ffn_gate_exps.weight/],
    ['half a set of biases', { tensors: { 'blk.0.attn_q.bias': {} } }, /no tensor blk.0.attn_k.bias/],
    [
      'another shape',
      { tensors: { 'blk.0.attn_q.weight': { shape: [8, 4] } } },
      /attn_q.weight has shape \[8, 4, 1, 1\], expected \[8, 8\]/,
    ],
    [
      'norms that are not F32',
      { tensors: { 'output_norm.weight': { type: 1, bytes: 16 } } },
      /type F16; supported: F32/,
    ],
    [
      'weights of an unsupported type',
      { tensors: { 'blk.0.attn_q.weight': { type: 24, bytes: 64 } } },
      /type I8; supported: F32, F16, BF16, Q8_0, Q4_0, .*Q6_K/,
    ],
    [
      'a vocabulary of another size',
      { keys: { 'tokenizer.ggml.tokens': { strings: ['a', 'b'] } } },
      /token_embd.weight has shape \[8, 10, 1, 1\], expected 2 rows/,
    ],
  ];
  it.each(cases)('is refused with a message that names the problem: %s', async (_, changes, message) => {
    await expect(handmade(changes)).rejects.toThrow(message);
    await expect(handmade(changes)).rejects.toMatchObject({ name: 'KvasirError' });
  });
});

const demo = 'models/kvasir-demo.gguf';
it('the demo model is a llama of at least 4096 tokens', async () => {
  const config = readModelConfig(await readGguf(demo));
  expect(config.architecture).toBe('llama');
  expect(config.contextLength).toBeGreaterThanOrEqual(4096);
});
