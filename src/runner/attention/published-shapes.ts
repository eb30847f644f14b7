import { F16, Q8_0 } from '../../ggml/types.ts';
import type { AttentionShape } from './attention-kernel.ts';

/** Query heads per KV head of published models, by head size. */
const groupsByHeadDim: Readonly<Record<number, readonly number[]>> = {
  32: [1], // MiniLM, BGE and E5 small
  64: [1, 2, 3, 4, 5, 7, 8], // GPT-2, BERT, SmolLM2, Llama 3.2 1B, LFM2, Granite 4, Qwen2.5 0.5B, gpt-oss, TinyLlama, the demo
  80: [1, 4], // Phi-2, StableLM 3B, H2O Danube
  96: [1, 3, 4], // Phi-3 mini and medium, H2O Danube
  128: [1, 2, 3, 4, 5, 6, 7, 8, 12, 16], // Llama, Mistral, Qwen2.5, Qwen3, Phi-4, Granite, Command R, GLM-4, Gemma 3 27B
  256: [1, 2, 4, 6, 8], // Gemma, Qwen3.5
  512: [4, 8], // Gemma 4: layers with full attention
};

/** Shapes for which kernels are built before they are shipped. Kernels for other shapes are compiled on the machine. */
export const publishedShapes: readonly Omit<AttentionShape, 'blockSize'>[] = [
  ...[F16, Q8_0].flatMap((kvType) =>
    Object.entries(groupsByHeadDim).flatMap(([headDim, groups]) =>
      // q8_0 has blocks of 32 elements.
      Number(headDim) % kvType.blockSize === 0
        ? groups.map((group) => ({ headDim: Number(headDim), group, kvType }))
        : [],
    ),
  ),
  // DeepSeek-V2-Lite and its fine-tunes: latent attention.
  { headDim: 576, group: 16, kvType: F16, valueInKey: 512 },
];
