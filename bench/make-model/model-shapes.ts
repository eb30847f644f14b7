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
  /** 1.9 thousand million weights in its layers, of which a token uses 0.35. */
  'qwen3moe-2b': { ...qwen3moe, layers: 24, vocab: 151_936, tied: true },
  /** Four of these layers. */
  'qwen3moe-0.3b': { ...qwen3moe, layers: 4, vocab: 32_000, tied: true },
} as const satisfies Readonly<Record<string, Omit<ModelOptions, 'type'>>>;

export type ModelShape = keyof typeof shapes;
