/** Writes LoRA adapters with random weights for a model of `model-maker.ts`. Equal options give equal files. */
import { appendFile } from 'node:fs/promises';
import { loadNative } from '../../src/ggml/ffi.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { readModelConfig } from '../../src/ggml/model-config.ts';
import { hasOnlyF32 } from '../../src/ggml/tensor-list.ts';
import { ggmlTypeNamed, rowBytes } from '../../src/ggml/types.ts';
import { fileTensors } from './file-tensors.ts';
import { RandomRows } from './random-rows.ts';

export interface AdapterOptions {
  readonly rank?: number;
  /** 0: the scale is 1. */
  readonly alpha?: number;
  readonly type?: 'F32' | 'F16' | 'BF16' | 'Q8_0' | 'Q4_0';
  readonly seed?: number;
  /** Of the model's matrices in layers, those that the adapter changes; default: all. */
  readonly targets?: RegExp;
  /** Whether it also changes token embeddings and the output head, if the model has one. */
  readonly changesEnds?: boolean;
  /** Metadata instead of an adapter's. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** The tensors instead of those of the targets. */
  readonly change?: (tensors: Map<string, readonly number[]>) => void;
  /** Called with the numbers of each tensor. */
  readonly edit?: (name: string, numbers: Float32Array) => void;
}

/** `model`: the path of its file. */
export async function writeAdapter(path: string, model: string, options: AdapterOptions = {}): Promise<void> {
  const { rank = 8, alpha = 16, type: typeName = 'F32', seed = 1, targets = /./ } = options;
  const native = loadNative();
  const type = ggmlTypeNamed(typeName)!;
  const config = readModelConfig(await readGguf(model));
  const shapes = new Map<string, readonly number[]>();
  for (const [name, shape] of fileTensors({ architecture: config.architecture, type: 'F32' }, config)) {
    const isMatrix = name.startsWith('blk.') && shape.length === 2 && !hasOnlyF32(name);
    if (!isMatrix || name.endsWith('.ffn_gate_inp.weight') || !targets.test(name)) continue;
    shapes.set(`${name}.lora_a`, [shape[0]!, rank]);
    shapes.set(`${name}.lora_b`, [rank, shape[1]!]);
  }
  if (options.changesEnds === true) {
    // As the converter writes them: the first matrix of embeddings is transposed.
    shapes.set('token_embd.weight.lora_a', [rank, config.vocabSize]);
    shapes.set('token_embd.weight.lora_b', [rank, config.embeddingLength]);
    if (!config.tiedEmbeddings) {
      shapes.set('output.weight.lora_a', [config.embeddingLength, rank]);
      shapes.set('output.weight.lora_b', [rank, config.vocabSize]);
    }
  }
  options.change?.(shapes);
  const gguf = native.gguf_init_empty();
  const bytes = native.ggml_tensor_overhead() * (shapes.size + 1);
  const context = native.ggml_init({ mem_size: bytes, mem_buffer: 0, no_alloc: true });
  try {
    const texts = { 'general.type': 'adapter', 'general.architecture': config.architecture, 'adapter.type': 'lora' };
    for (const [key, value] of Object.entries({ ...texts, ...options.metadata }))
      native.gguf_set_val_str(gguf, key, value);
    native.gguf_set_val_f32(gguf, 'adapter.lora.alpha', alpha);
    for (const [name, [columns = 1, rows = 1, matrices = 1]] of shapes) {
      const tensor = native.ggml_new_tensor_3d(context, type.id, columns, rows, matrices);
      native.ggml_set_name(tensor, name);
      native.gguf_add_tensor(gguf, tensor);
    }
    if (!native.gguf_write_to_file(gguf, path, true)) throw new Error(`cannot write ${path}`);
  } finally {
    native.gguf_free(gguf);
    native.ggml_free(context);
  }
  const random = new RandomRows(seed, 1);
  const scale = alpha === 0 ? 1 : alpha / rank;
  for (const [name, [columns = 1, rowsOfMatrix = 1, matrices = 1]] of shapes) {
    const rows = rowsOfMatrix * matrices;
    const numbers = new Float32Array(rows * columns);
    // The addition is about half as large as the product.
    const deviation = name.endsWith('.lora_a') ? 1 / Math.sqrt(columns) : 0.7 / Math.sqrt(rank) / scale;
    random.fill(numbers, rows, columns, { mean: 0, deviation, rowSpread: 0 });
    options.edit?.(name, numbers);
    const written = new Uint8Array(rows * rowBytes(type, columns));
    native.ggml_quantize_chunk(type.id, numbers, written, 0, rows, columns, null);
    const alignment = 32;
    await appendFile(path, written);
    await appendFile(path, new Uint8Array((alignment - (written.length % alignment)) % alignment));
  }
}
