import type { ModelOptions } from './model-maker.ts';

const qwen3moe = {
  architecture: 'qwen3moe',
  embedding: 1024,
  heads: 16,
  headsKv: 4,
  headDim: 128,
  feedForward: 3072,
  experts: { count: 48, used: 6, feedForwardLength: 512 },
  context: 40_960,
} as const;

const gptOss = {
  architecture: 'gpt-oss',
  embedding: 1440,
  heads: 32,
  headsKv: 4,
  headDim: 64,
  feedForward: 1440,
  experts: { count: 32, used: 4, feedForwardLength: 1440 },
  window: 128,
  context: 131_072,
  ropeScaling: 'yarn',
} as const;

/** Layers with full attention: each fifth of those with KV of their own, and of those without. */
const gemma4Windows = (layers: number): readonly number[] =>
  Array.from({ length: layers }, (_, layer) => layer).filter((layer) => layer % 5 !== 4);

/** The shapes of models for benches. */
export const shapes = {
  'qwen3-0.6b': {
    architecture: 'qwen3',
    layers: 28,
    embedding: 1024,
    heads: 16,
    headsKv: 8,
    headDim: 128,
    feedForward: 3072,
    vocab: 151_936,
    context: 40_960,
    tied: true,
  },
  'qwen2.5-0.5b': {
    architecture: 'qwen2',
    layers: 24,
    embedding: 896,
    heads: 14,
    headsKv: 2,
    headDim: 64,
    feedForward: 4864,
    vocab: 151_936,
    context: 32_768,
    tied: true,
  },
  'qwen2.5-7b': {
    architecture: 'qwen2',
    layers: 28,
    embedding: 3584,
    heads: 28,
    headsKv: 4,
    headDim: 128,
    feedForward: 18_944,
    vocab: 152_064,
    context: 32_768,
    tied: false,
  },
  /** Four query heads per KV head, as in most models of 4 to 14 billion weights. */
  'qwen3-4b': {
    architecture: 'qwen3',
    layers: 36,
    embedding: 2560,
    heads: 32,
    headsKv: 8,
    headDim: 128,
    feedForward: 9728,
    vocab: 151_936,
    context: 40_960,
    tied: true,
  },
  /** Gemma 3 270M: each sixth layer has full attention, the others a window. */
  'gemma3-270m': {
    architecture: 'gemma3',
    layers: 18,
    embedding: 640,
    heads: 4,
    headsKv: 1,
    headDim: 256,
    feedForward: 2048,
    window: 512,
    windowPattern: 6,
    vocab: 262_144,
    context: 32_768,
  },
  /** LFM 2 350M: six of its layers have attention. */
  'lfm2-350m': {
    architecture: 'lfm2',
    layers: 16,
    stateLayers: [0, 1, 3, 4, 6, 7, 9, 11, 13, 15],
    embedding: 1024,
    heads: 16,
    headsKv: 8,
    headDim: 64,
    feedForward: 4608,
    vocab: 65_536,
    context: 128_000,
  },
  /** Half the layers of Gemma 4 E2B, with two thirds of its width. */
  'gemma4-small': {
    architecture: 'gemma4',
    layers: 20,
    windowLayers: gemma4Windows(20),
    embedding: 1024,
    heads: 8,
    headsKv: 1,
    headDim: 512,
    window: 512,
    windowFreqBase: 10_000,
    gemma4: { sharedLayers: 10, perLayerLength: 128, windowHeads: { headDim: 256, headCountKv: 1 } },
    feedForward: 4096,
    vocab: 65_536,
    context: 131_072,
  },
  /**
   * DeepSeek V2 Lite's attention with half as many heads, and fewer and smaller experts: 0.55 thousand million weights in
   * its layers. llama.cpp recognizes the Lite shape by the number of layers.
   */
  'deepseek2-lite-small': {
    architecture: 'deepseek2',
    layers: 27,
    embedding: 768,
    heads: 8,
    latent: { rank: 512, ropeLength: 64, queryLength: 128, valueLength: 128 },
    feedForward: 3072,
    experts: { count: 12, used: 3, feedForwardLength: 512, denseLayers: 1, sharedLength: 1024, dividesBySum: false },
    vocab: 32_000,
    context: 32_768,
  },
  /** Granite 4.0 H 1B: four of its layers have attention, without RoPE. */
  'granitehybrid-1b': {
    architecture: 'granitehybrid',
    layers: 40,
    stateLayers: Array.from({ length: 40 }, (_, layer) => layer).filter((layer) => layer % 10 !== 5),
    mamba: { taps: 4, heads: 48, headDim: 64, stateSize: 128, groups: 1 },
    embedding: 1536,
    heads: 12,
    headsKv: 4,
    headDim: 128,
    feedForward: 4096,
    vocab: 100_352,
    context: 131_072,
  },
  /** 1.9 thousand million weights in its layers, of which a token uses 0.35. */
  'qwen3moe-2b': { ...qwen3moe, layers: 24, vocab: 151_936, tied: true },
  /** Four of these layers. */
  'qwen3moe-0.3b': { ...qwen3moe, layers: 4, vocab: 32_000, tied: true },
  /** Half the width of OpenAI's 20B: 2.0 thousand million weights in its layers, of which a token uses 0.3. */
  'gpt-oss-2b': { ...gptOss, layers: 10, vocab: 32_000 },
  /** Two of these layers. */
  'gpt-oss-0.4b': { ...gptOss, layers: 2, vocab: 32_000 },
} as const satisfies Readonly<Record<string, Omit<ModelOptions, 'type'>>>;

export type ModelShape = keyof typeof shapes;
