import type { ExpertConfig } from '../../src/ggml/expert-config.ts';
import { type GgufFile, readGguf } from '../../src/ggml/gguf.ts';
import { headsOfKind } from '../../src/ggml/layer-shapes.ts';
import { readModelConfig } from '../../src/ggml/model-config.ts';
import { blockBytes, type KvTypeName, kvTypes } from '../../src/runner/kv-memory.ts';

/**
 * The bytes that a decode step reads after a context of `depth` tokens: all weights that a token uses, and once the
 * KV that each layer sees. The step cannot be faster than memory delivers them.
 */
export async function openDecodeBytes(path: string, kvType: KvTypeName): Promise<(depth: number) => number> {
  const file = await readGguf(path);
  const config = readModelConfig(file);
  const { layerCount, latent, experts, slidingWindow, states } = config;
  const tokenBytes = (kind: 'full' | 'window'): number => {
    const { headCountKv, headDim } = headsOfKind(config, kind);
    const shape = { headCountKv, headDim, valueInKey: latent?.rank };
    return blockBytes({ type: kvTypes[kvType], layerCount: 1, blockSize: 1, ...shape });
  };
  const weights = weightBytes(file, experts);
  // States are few bytes beside the weights.
  const attending = layerCount - (states?.layers.length ?? 0);
  const windowed = slidingWindow?.layers.length ?? 0;
  return (depth) => {
    const seenInWindow = Math.min(depth, slidingWindow?.window ?? 0);
    const full = (attending - windowed) * depth * tokenBytes('full');
    return weights + full + windowed * seenInWindow * tokenBytes('window');
  };
}

/**
 * All tensors but the embedding, of which a step reads one row, unless the embedding is the head too. Of experts, those
 * that a token uses.
 */
function weightBytes({ tensors }: GgufFile, experts: ExpertConfig | undefined): number {
  const isTied = !tensors.has('output.weight');
  let sum = 0;
  for (const { name, byteLength } of tensors.values()) {
    const isExperts = experts !== undefined && name.endsWith('_exps.weight');
    if (isExperts) sum += (byteLength * experts.used) / experts.count;
    else if (name !== 'per_layer_token_embd.weight' && (isTied || name !== 'token_embd.weight')) sum += byteLength;
  }
  return sum;
}
