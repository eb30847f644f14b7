import { writeFileSync } from 'node:fs';
import { readGguf } from '../../src/ggml/gguf.ts';
import { type ModelConfig, readModelConfig } from '../../src/ggml/model-config.ts';
import { type GgufBytesTensor, type GgufFieldValue, ggufBytes } from './gguf-bytes.ts';

/** A llama of one layer with 8-wide embeddings, and these changes. */
export function handmadeConfig(
  path: string,
  changes: {
    readonly keys?: Record<string, GgufFieldValue | undefined>;
    readonly tensors?: Record<string, Partial<GgufBytesTensor> | undefined>;
  },
): Promise<ModelConfig> {
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
  writeFileSync(
    path,
    ggufBytes({
      keys: Object.entries(keys).flatMap(([key, value]) => (value === undefined ? [] : [[key, value] as const])),
      tensors: Object.entries(tensors).flatMap(([name, tensor]) =>
        tensor === undefined ? [] : [{ name, shape: [8], ...base[name], ...tensor }],
      ),
    }),
  );
  return readGguf(path).then((file) => readModelConfig(file));
}
