import { afterAll, describe, expect, it } from 'vitest';
import type { GgufFieldValue } from '../../test/support/gguf-bytes.ts';
import { handmadeConfig } from '../../test/support/handmade-config.ts';
import { type ModelOptions, temporaryFolder, writeTinyHeader } from '../../test/support/tiny-model.ts';
import { readGguf } from './gguf.ts';
import { readModelConfig } from './model-config.ts';
import { ropeOfLayer } from './rope-config.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
const handmade = (changes: Parameters<typeof handmadeConfig>[1]) =>
  handmadeConfig(folder.file('handmade.gguf'), changes);

async function configOfTiny(options: Partial<ModelOptions>, maxModelLen?: number) {
  const path = folder.file('tiny.gguf');
  await writeTinyHeader(path, { architecture: 'llama', type: 'F16', ...options });
  return readModelConfig(await readGguf(path), maxModelLen);
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
      qkNorm: 'head',
      tiedEmbeddings: true,
    });
    expect(await configOfTiny({ architecture: 'qwen2' })).toMatchObject({ hasQkvBias: true, tiedEmbeddings: false });
    expect(await configOfTiny({})).toMatchObject({ hasQkvBias: false, qkNorm: 'none', rope: { mode: 'normal' } });
  });

  it('has the experts of a mixture', async () => {
    const experts = { count: 8, used: 3, feedForwardLength: 256 };
    expect(await configOfTiny({ architecture: 'qwen3moe', experts })).toMatchObject({
      architecture: 'qwen3moe',
      experts,
      qkNorm: 'head',
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
      freqFactors: 'rope_freqs.weight',
    });
  });

  it('says whether tokens see later tokens, and what follows the pooling', async () => {
    expect(await configOfTiny({ isBidirectional: true })).toMatchObject({ isEncoder: true });
    expect(await configOfTiny({})).not.toHaveProperty('isEncoder');
    const bert = await configOfTiny({ architecture: 'bert', poolingType: 4, head: 'rank' });
    expect(bert).toMatchObject({
      isEncoder: true,
      rope: { mode: 'none' },
      bert: { network: 'gelu', hasUpBias: true, hasPositions: true, tokenTypes: 2 },
      pooledHead: { pooling: 'cls', length: 1, scores: 'one' },
    });
    expect(await configOfTiny({ architecture: 'qwen3', poolingType: 4, head: 'yes or no' })).toMatchObject({
      pooledHead: { pooling: 'last', length: 2, scores: 'softmax' },
    });
    await expect(configOfTiny({ architecture: 'gemma3', isBidirectional: true })).rejects.toThrow(/later tokens/);
  });

  it('has the windows of gemma3', async () => {
    const config = await configOfTiny({ architecture: 'gemma3', layers: 7, windowPattern: 3, ropeScaling: 'linear' });
    expect(config).toMatchObject({
      rope: { mode: 'neox', freqBase: 1_000_000, freqScale: 0.25 },
      slidingWindow: { window: 40, layers: [0, 1, 3, 4, 6], rope: { freqBase: 10_000, freqScale: 1 } },
      attentionScale: 1 / 8,
      embeddingScale: 16,
      qkNorm: 'head',
      norms: 'around',
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
      // The frequencies of YaRN are divisors.
      rope: { mode: 'neox', freqBase: 10_000, freqScale: 1, scaling: 'yarn', betaFast: 32, betaSlow: 1 },
      slidingWindow: { window: 40, layers: [0, 2, 4], rope: config.rope },
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
    expect(config.rope.divisors).toHaveLength(32);
    const stretched = { architecture: 'gpt-oss', windowFreqBase: 500, ropeScaling: 'yarn' } as const;
    await expect(configOfTiny(stretched)).rejects.toThrow(/freq_base_swa must be 10000/);
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

  it('has no RoPE in each fourth layer of smollm3', async () => {
    const config = await configOfTiny({ architecture: 'smollm3', layers: 9 });
    const rotated = Array.from({ length: 9 }, (_, layer) => ropeOfLayer(config, layer));
    expect(rotated.map((rope) => rope?.mode)).toEqual([
      ...['normal', 'normal', 'normal', undefined, 'normal', 'normal', 'normal', undefined, 'normal'],
    ]);
  });

  it('has the norms, the windows and both kinds of RoPE of olmo2', async () => {
    const olmo2 = { architecture: 'olmo2', layers: 8, ropeScaling: 'yarn' } as const;
    const config = await configOfTiny({ ...olmo2, window: 40, windowPattern: 4 });
    expect(config).toMatchObject({
      norms: 'after',
      qkNorm: 'row',
      rope: { mode: 'neox', extFactor: 1, freqScale: 0.25 },
    });
    const unscaled = { scaling: 'none', extFactor: 0, attnFactor: 1, freqScale: 1, freqBase: 10_000 };
    expect(config.slidingWindow).toMatchObject({ window: 40, layers: [0, 1, 2, 4, 5, 6], rope: unscaled });
    expect(ropeOfLayer(config, 2)).toBe(config.slidingWindow?.rope);
    expect(ropeOfLayer(config, 3)).toBe(config.rope);
    expect((await configOfTiny(olmo2)).slidingWindow).toBeUndefined();
    // Converters list the layers.
    const listed = await configOfTiny({ ...olmo2, window: 40, windowLayers: [0, 5] });
    expect(listed.slidingWindow?.layers).toEqual([0, 5]);
  });

  it('has the norms and the partial RoPE of glm4, and its matrices from fused ones', async () => {
    const config = await configOfTiny({ architecture: 'glm4' });
    expect(config).toMatchObject({ norms: 'around', qkNorm: 'none', rope: { mode: 'normal', dimension: 32 } });
    const { tensors } = await readGguf(folder.file('tiny.gguf'));
    const [gate, up] = ['gate', 'up'].map((name) => tensors.get(`blk.1.ffn_${name}.weight`)!);
    expect([gate?.ne, up?.ne]).toEqual([
      [256, 512, 1, 1],
      [256, 512, 1, 1],
    ]);
    expect(up!.fileOffset).toBe(gate!.fileOffset + 2 * 256 * 512);
  });

  it('has the divisors of phi3 for the longest sequence, and its matrices from fused ones', async () => {
    const phi3 = { architecture: 'phi3', ropeScaling: 'longrope', context: 4096, originalContext: 512 } as const;
    const factorsOf = async (maxModelLen?: number) => (await configOfTiny(phi3, maxModelLen)).rope.freqFactors;
    expect(await factorsOf()).toBe('rope_factors_long.weight');
    expect(await factorsOf(513)).toBe('rope_factors_long.weight');
    expect(await factorsOf(512)).toBe('rope_factors_short.weight');
    expect((await configOfTiny(phi3)).rope).toMatchObject({ attnFactor: Math.fround(1.2), originalContextLength: 512 });
    expect((await configOfTiny({ architecture: 'phi3' })).rope).not.toHaveProperty('freqFactors');
    const { tensors } = await readGguf(folder.file('tiny.gguf'));
    const parts = ['q', 'k', 'v'].map((name) => tensors.get(`blk.0.attn_${name}.weight`)!);
    expect(parts.map(({ ne }) => ne[1])).toEqual([256, 128, 128]);
    const [start = 0] = parts.map(({ fileOffset }) => fileOffset);
    expect(parts.map(({ fileOffset }) => (fileOffset - start) / 512)).toEqual([0, 256, 384]);
    expect([...tensors.keys()].filter((name) => name.includes('qkv'))).toEqual([]);
  });

  it('has the YaRN and the temperature of mistral3', async () => {
    const yarn = { architecture: 'mistral3', ropeScaling: 'yarn', originalContext: 64 } as const;
    const config = await configOfTiny({ ...yarn, yarnLogMultiplier: 1, temperatureScale: 0.1 });
    expect(config.temperature).toEqual({ scale: Math.fround(0.1), interval: 64 });
    // With a multiplier of 1, the magnitude of YaRN is 1.
    expect(config.rope.attnFactor).toBeCloseTo(1 / (1 + 0.1 * Math.log(4)), 6);
    const half = await configOfTiny({ ...yarn, yarnLogMultiplier: 0.5 });
    expect(half.rope.attnFactor).toBeCloseTo(1 / (1 + 0.05 * Math.log(4)), 6);
    expect((await configOfTiny(yarn)).rope.attnFactor).toBeCloseTo(1, 6);
    expect(half).not.toHaveProperty('temperature');
    const temperature = { architecture: 'mistral3', temperatureScale: 0.1, originalContext: 0 } as const;
    await expect(configOfTiny(temperature)).rejects.toThrow(/original_context_length must be at least 1/);
  });

  it('has the experts, the biases and perhaps the norms of glm4moe', async () => {
    const config = await configOfTiny({ architecture: 'glm4moe', layers: 3 });
    expect(config).toMatchObject({ qkNorm: 'none', hasQkvBias: true, feedForwardNormName: 'post_attention_norm' });
    expect(config.rope).toMatchObject({ mode: 'neox', dimension: 32 });
    const router = { gating: 'sigmoid', dividesBySum: true, hasChoiceBias: true };
    expect(config.experts).toMatchObject({ count: 8, used: 3, denseLayers: 1, sharedLength: 512, ...router });
    expect(await configOfTiny({ architecture: 'glm4moe', qkNorm: 'head' })).toMatchObject({ qkNorm: 'head' });
  });

  it('has the experts and the convolutions of lfm2moe, and no windows', async () => {
    const config = await configOfTiny({ architecture: 'lfm2moe', layers: 3 });
    expect(config).toMatchObject({ shortConvolution: { taps: 3 }, states: { layers: [0, 1] }, qkNorm: 'head' });
    const router = { gating: 'sigmoid', denseLayers: 1, hasChoiceBias: true };
    expect(config.experts).toMatchObject({ count: 8, used: 3, ...router });
    await expect(configOfTiny({ architecture: 'lfm2moe', window: 40 })).rejects.toThrow(/sliding_window = 40/);
  });

  it('has layers of nemotron_h_moe that are only a network', async () => {
    const experts = {
      count: 8,
      used: 3,
      feedForwardLength: 256,
      sharedLength: 96,
      latentLength: 128,
      weightScale: 2.5,
    };
    const config = await configOfTiny({ architecture: 'nemotron_h_moe', layers: 5, experts });
    expect(config).toMatchObject({ networkLayers: [1, 3], states: { layers: [0, 4] }, hasNetworkGate: false });
    expect(config.rope.mode).toBe('none');
    expect(config.experts).toEqual({ ...experts, gating: 'sigmoid', hasChoiceBias: true, dividesBySum: true });
  });

  it.each(['qwen35', 'qwen35moe', 'qwen3next', 'nemotron_h_moe', 'deepseek2', 'glm4', 'glm4moe'] as const)(
    'has only the layers of %s that compute the next token',
    async (architecture) => {
      const [plain, predicting] = [folder.file('plain.gguf'), folder.file('predicting.gguf')];
      const options = { architecture, type: 'F16', layers: 3, stateLayers: [0] } as const;
      await writeTinyHeader(plain, options);
      await writeTinyHeader(predicting, { ...options, predictionLayers: 2 });
      const [one, other] = [await readGguf(plain), await readGguf(predicting)];
      expect(other.fileBytes).toBeGreaterThan(1.3 * one.fileBytes);
      expect([...other.tensors.keys()]).toEqual([...one.tensors.keys()]);
      expect(readModelConfig(other)).toEqual(readModelConfig(one));
    },
  );

  it.each([
    ['the same width in all layers', { u32: 16 }, /no layer with attention \(KV heads in no layer without a network\)/],
    ['different widths', { i32s: [16, 0, 32] }, /layers of different sizes \(feed_forward_length = 16, 0, 32\)/],
    ['no width', { i32s: [0, 0, 0] }, /feed_forward_length must be between 1 and 2\^24 for a layer/],
  ] as const)('refuses a nemotron_h with %s', async (_, widths, message) => {
    const of = (name: string) => `nemotron_h.${name}`;
    const keys = {
      'general.architecture': { string: 'nemotron_h' },
      [of('context_length')]: { u32: 64 },
      [of('block_count')]: { u32: 3 },
      [of('embedding_length')]: { u32: 8 },
      [of('feed_forward_length')]: widths,
      [of('attention.head_count')]: { u32: 2 },
      [of('attention.layer_norm_epsilon')]: { f32: 1e-5 },
    };
    await expect(handmade({ keys })).rejects.toThrow(message);
  });

  it('has defaults for missing metadata', async () => {
    const config = await handmade({});
    expect(config).toMatchObject({
      headCountKv: 2,
      headDim: 4,
      rope: { freqBase: 10_000, freqScale: 1, dimension: 4, betaFast: 32, betaSlow: 1, originalContextLength: 64 },
    });
  });
});

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
    ['groups without their number', { expert_group_count: { u32: 2 } }, /expert_group_used_count/],
    [
      'groups that do not fit',
      { expert_group_count: { u32: 3 }, expert_group_used_count: { u32: 1 } },
      /expert_group_count must be a divisor of expert_count, which is 4/,
    ],
    [
      'groups that are too small',
      { expert_group_count: { u32: 4 }, expert_group_used_count: { u32: 1 } },
      /expert_group_count must be a divisor of expert_count, which is 4, with enough/,
    ],
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
    [
      'ALiBi',
      { keys: { 'general.architecture': { string: 'jina-bert-v2' } } },
      /architecture jina-bert-v2; supported: /,
    ],
    [
      'experts of BERT',
      { keys: { 'general.architecture': { string: 'nomic-bert-moe' } } },
      /architecture nomic-bert-moe; supported: /,
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
    [
      'experts',
      { keys: { 'general.architecture': { string: 'qwen2' }, 'qwen2.expert_count': { u32: 8 } } },
      /a mixture of experts \(expert_count = 8\)/,
    ],
    [
      'prediction layers of another architecture',
      { keys: { 'llama.nextn_predict_layers': { u32: 1 } } },
      /layers for multi-token prediction \(nextn_predict_layers = 1\)/,
    ],
    [
      'positions of images',
      { keys: { 'llama.rope.dimension_sections': { i32s: [1, 1, 0, 0] } } },
      /positions of images \(rope.dimension_sections = 1, 1, 0, 0\)/,
    ],
    [
      'a temperature of attention',
      { keys: { 'llama.attention.temperature_scale': { f32: 0.1 } } },
      /attention temperature/,
    ],
    [
      'divisors of LongRoPE',
      { tensors: { 'rope_factors_long.weight': { shape: [2] } } },
      /tensor rope_factors_long.weight, which/,
    ],
    ['layers of different sizes', { keys: { 'llama.attention.head_count': { i32s: [2] } } }, /different sizes/],
    ['a reranker without a head', { keys: { 'llama.pooling_type': { u32: 4 } } }, /a reranker without a head/],
    ['experts in some layers', { keys: { 'llama.moe_every_n_layers': { u32: 2 } } }, /moe_every_n_layers = 2/],
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
