import { type GgufFile, readGguf } from '../../src/ggml/gguf.ts';
import { readModelConfig } from '../../src/ggml/model-config.ts';
import { blockBytes, type KvTypeName, kvTypes } from '../../src/runner/kv-memory.ts';

/**
 * What memory allows: a step of decoding reads all weights and all KV of the context once, and can be no quicker than
 * memory delivers them. Bytes of such a step at a depth.
 */
export async function openDecodeBytes(path: string, kvType: KvTypeName): Promise<(depth: number) => number> {
  const file = await readGguf(path);
  const { layerCount, headCountKv, headDim } = readModelConfig(file);
  const tokenBytes = blockBytes({ type: kvTypes[kvType], layerCount, blockSize: 1, headCountKv, headDim });
  const weights = weightBytes(file);
  return (depth) => weights + depth * tokenBytes;
}

/** Of the embedding a step reads one row, unless it is the head, too. */
function weightBytes({ tensors }: GgufFile): number {
  const isTied = !tensors.has('output.weight');
  let sum = 0;
  for (const { name, byteLength } of tensors.values()) if (isTied || name !== 'token_embd.weight') sum += byteLength;
  return sum;
}
