import type { ModelOptions } from '../make-model/model-maker.ts';
import { shapes } from '../make-model/model-shapes.ts';

interface PopularModel extends Omit<ModelOptions, 'type'> {
  readonly name: string;
  readonly type: ModelOptions['type'];
}

/** Mistral 7B and Llama 3.1 8B differ in their vocabularies. */
const eightBillion = {
  architecture: 'llama',
  type: 'Q4_K_M',
  layers: 32,
  embedding: 4096,
  heads: 32,
  headsKv: 8,
  headDim: 128,
  feedForward: 14_336,
  tied: false,
} as const;

/** Ten models that many people run, with the shapes of their published configurations, in the types of their most used files. */
export const popularModels: readonly PopularModel[] = [
  { ...shapes['qwen3-0.6b'], name: 'Qwen3 0.6B', type: 'Q8_0' },
  {
    name: 'Llama 3.2 1B',
    architecture: 'llama',
    type: 'Q4_K_M',
    layers: 16,
    embedding: 2048,
    heads: 32,
    headsKv: 8,
    headDim: 64,
    feedForward: 8192,
    vocab: 128_256,
    context: 131_072,
    ropeScaling: 'llama3',
    tied: true,
  },
  { ...shapes['qwen3-4b'], name: 'Qwen3 4B', type: 'Q4_K_M' },
  {
    name: 'Gemma 3 4B',
    architecture: 'gemma3',
    type: 'Q4_K_M',
    layers: 34,
    embedding: 2560,
    heads: 8,
    headsKv: 4,
    headDim: 256,
    feedForward: 10_240,
    window: 1024,
    windowPattern: 6,
    vocab: 262_208,
    context: 131_072,
  },
  { ...shapes['qwen2.5-7b'], name: 'Qwen2.5 Coder 7B', type: 'Q4_K_M' },
  { ...eightBillion, name: 'Mistral 7B v0.3', vocab: 32_768, context: 32_768 },
  { ...eightBillion, name: 'Llama 3.1 8B', vocab: 128_256, context: 131_072, ropeScaling: 'llama3' },
  {
    ...shapes['qwen3-4b'],
    name: 'Qwen3 14B',
    type: 'Q4_K_M',
    layers: 40,
    embedding: 5120,
    heads: 40,
    feedForward: 17_408,
    tied: false,
  },
  {
    name: 'gpt-oss 20B',
    architecture: 'gpt-oss',
    type: 'MXFP4',
    layers: 24,
    embedding: 2880,
    heads: 64,
    headsKv: 8,
    headDim: 64,
    feedForward: 2880,
    experts: { count: 32, used: 4, feedForwardLength: 2880 },
    window: 128,
    vocab: 201_088,
    context: 131_072,
    ropeScaling: 'yarn',
  },
  {
    name: 'Qwen3 30B-A3B',
    architecture: 'qwen3moe',
    type: 'Q4_K_M',
    layers: 48,
    embedding: 2048,
    heads: 32,
    headsKv: 4,
    headDim: 128,
    feedForward: 6144,
    experts: { count: 128, used: 8, feedForwardLength: 768 },
    vocab: 151_936,
    context: 40_960,
    tied: false,
  },
];
