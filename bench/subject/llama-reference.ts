/**
 * libllama on the same file: tests compare Kvasir's logits with its logits, and benches use it as the peer. It loads
 * models as llama.cpp does by default: the file is mapped, and weights are repacked where that is faster.
 */
import { assert } from '../../src/base/assert.ts';
import type { Pooling } from '../../src/core/request.ts';
import { loadBackends } from '../../src/ggml/device.ts';
import { modelLoadFailed } from '../../src/ggml/errors.ts';
import {
  type LlamaBatch,
  type LlamaPtr,
  loadNative,
  type ModelPtr,
  type NativeApi,
  type RawPtr,
} from '../../src/ggml/ffi.ts';
import { ggmlTypeNamed } from '../../src/ggml/types.ts';

export interface ReferenceOptions {
  /** Tokens of KV of all sequences together. */
  readonly contextLength: number;
  readonly threads: number;
  /** `gpu`: all layers, KV and operations. Default `cpu`. */
  readonly device?: 'cpu' | 'gpu';
  /** The largest number of rows of one `decode`. */
  readonly batch: number;
  /** Rows that libllama computes at a time; its default is 512. */
  readonly microBatch?: number;
  /** Default true. */
  readonly flashAttention?: boolean;
  /** Sequences that share the context; default 1. */
  readonly sequences?: number;
  /**
   * Default true: the KV of all sequences is in one buffer, which has a shared prefix once. False: each sequence has
   * its own buffer, with an equal part of the context.
   */
  readonly unified?: boolean;
  /**
   * Default true: layers with a window keep the KV of all tokens. False: they keep only the KV of the window, as in
   * llama.cpp's server. Attention then reads less.
   */
  readonly keepsAllTokens?: boolean;
  /** Whether weights are repacked for the CPU; default true, as in llama.cpp. */
  readonly repack?: boolean;
  /** Default F16, as in llama.cpp. */
  readonly kvType?: 'F32' | 'F16';
  /** Embeddings instead of logits, with this pooling. A prompt must fit `microBatch`. */
  readonly pooling?: Pooling | 'rank';
  /** The path of a LoRA adapter for all sequences. */
  readonly adapter?: string | undefined;
  /** Called once, after the model is loaded and before its context is created. */
  readonly onModel?: (native: NativeApi, model: ModelPtr) => void;
}

/** Rows of a batch, as arrays of equal length. Positions of a sequence ascend without gaps. */
export interface ReferenceBatch {
  readonly tokens: ArrayLike<number>;
  readonly positions: ArrayLike<number>;
  readonly sequences: ArrayLike<number>;
  /** Not 0 for rows whose logits are needed. */
  readonly wanted: ArrayLike<number>;
}

export interface DecodeOptions {
  /** Of the first token; default 0. */
  readonly position?: number;
  /** Default 0. */
  readonly sequence?: number;
  /** Logits of all rows instead of only the last. */
  readonly wantAllLogits?: boolean;
}

export class LlamaReference {
  readonly vocabSize: number;
  /** Whether `removeFrom` can remove the end of a sequence. If not, a sequence can be saved and restored. */
  readonly canRemoveEnd: boolean;
  readonly #native: NativeApi;
  readonly #model: ModelPtr;
  readonly #context: LlamaPtr;
  readonly #batch: LlamaBatch;
  readonly #rows: BatchViews;
  #isClosed: boolean;

  constructor(native: NativeApi, model: ModelPtr, context: LlamaPtr, options: ReferenceOptions) {
    const { batch: capacity, keepsAllTokens = true } = options;
    this.#native = native;
    this.#isClosed = false;
    this.#model = model;
    this.#context = context;
    this.#batch = native.llama_batch_init(capacity, 0, 1);
    this.#rows = viewBatch(native, this.#batch, capacity);
    const hasStates = native.llama_model_is_recurrent(model) || native.llama_model_is_hybrid(model);
    this.canRemoveEnd = !hasStates && (keepsAllTokens || native.llama_model_n_swa(model) === 0);
    this.vocabSize = native.llama_vocab_n_tokens(native.llama_model_get_vocab(model));
  }

  /** Appends tokens to a sequence, in as many batches as needed. */
  decode(tokens: ArrayLike<number>, options: DecodeOptions = {}): void {
    const { position = 0, sequence = 0, wantAllLogits = false } = options;
    const capacity = this.#rows.tokens.length;
    assert(!wantAllLogits || tokens.length <= capacity, 'logits of all rows need a batch with all rows');
    for (let start = 0; start < tokens.length; start += capacity) {
      const count = Math.min(capacity, tokens.length - start);
      for (let row = 0; row < count; row++) {
        const isLast = start + row === tokens.length - 1;
        this.#setRow(row, tokens[start + row] ?? 0, position + start + row, sequence, wantAllLogits || isLast);
      }
      this.#run(count);
    }
  }

  /** One batch over several sequences. */
  decodeBatch(batch: ReferenceBatch): void {
    const count = batch.tokens.length;
    for (let row = 0; row < count; row++) {
      const position = batch.positions[row] ?? 0;
      this.#setRow(row, batch.tokens[row] ?? 0, position, batch.sequences[row] ?? 0, (batch.wanted[row] ?? 0) !== 0);
    }
    this.#run(count);
  }

  /** A copy of the logits of a row of the last batch; by default its last row. The row must have been wanted. */
  logits(row = -1): Float32Array {
    const pointer = this.#native.llama_get_logits_ith(this.#context, row);
    assert(pointer !== 0, `row ${row} has no logits`);
    return new Float32Array(this.#native.memoryAt(pointer, this.vocabSize * 4)).slice();
  }

  /** The pooled embedding of a sequence of the last batch, not normalised; `length`: of a reranker, its scores. */
  embedding(sequence = 0, length = this.#native.llama_model_n_embd(this.#model)): Float32Array {
    const pointer = this.#native.llama_get_embeddings_seq(this.#context, sequence);
    assert(pointer !== 0, `sequence ${sequence} has no embedding`);
    return new Float32Array(this.#native.memoryAt(pointer, length * 4)).slice();
  }

  /** The token with the greatest logit of a row; the first of equal logits. */
  greedy(row = -1): number {
    const logits = this.logits(row);
    let best = 0;
    for (let token = 1; token < logits.length; token++) if (logits[token]! > logits[best]!) best = token;
    return best;
  }

  clear(): void {
    const memory = this.#native.llama_get_memory(this.#context);
    // Encoders have none.
    if (memory !== 0) this.#native.llama_memory_clear(memory, false);
  }

  /** Removes the KV of a sequence from a position on. */
  removeFrom(position: number, sequence = 0): void {
    this.#native.llama_memory_seq_rm(this.#native.llama_get_memory(this.#context), sequence, position, -1);
  }

  /** Copies the KV of `[0, end)` of one sequence (default: all) to another sequence, which must be empty. */
  copySequence(from: number, to: number, end = -1): void {
    this.#native.llama_memory_seq_cp(this.#native.llama_get_memory(this.#context), from, to, 0, end);
  }

  /** A copy of the KV and the states of a sequence. */
  saveSequence(sequence = 0): Uint8Array {
    const saved = new Uint8Array(this.#native.llama_state_seq_get_size(this.#context, sequence));
    const written = this.#native.llama_state_seq_get_data(this.#context, saved, saved.length, sequence);
    assert(written === saved.length, 'libllama saves a whole sequence');
    return saved;
  }

  /** Replaces a sequence with a saved one. */
  restoreSequence(saved: Uint8Array, sequence = 0): void {
    const read = this.#native.llama_state_seq_set_data(this.#context, saved, saved.length, sequence);
    assert(read === saved.length, 'libllama restores a whole sequence');
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#native.llama_batch_free(this.#batch);
    this.#native.llama_free(this.#context);
    this.#native.llama_model_free(this.#model);
  }

  // biome-ignore lint/complexity/useMaxParams: called for each row of each batch, so without an object
  #setRow(row: number, token: number, position: number, sequence: number, isWanted: boolean): void {
    const { tokens, positions, sequences, wanted } = this.#rows;
    tokens[row] = token;
    positions[row] = position;
    sequences[row]![0] = sequence;
    wanted[row] = isWanted ? 1 : 0;
  }

  #run(count: number): void {
    assert(count > 0 && count <= this.#rows.tokens.length, `a batch of ${count} rows`);
    const status = this.#native.llama_decode(this.#context, { ...this.#batch, n_tokens: count });
    assert(status === 0, `llama_decode returned ${status}: ${this.#native.recentLog().at(-1) ?? ''}`);
    this.#native.llama_synchronize(this.#context);
  }
}

/** Loads a model into libllama. Throws `modelLoadFailed` with libllama's own reason. */
export function openReference(path: string, options: ReferenceOptions): LlamaReference {
  const native = loadNative();
  loadBackends(native);
  const loadModeMapped = 1;
  const isOnGpu = options.device === 'gpu';
  const model = native.llama_model_load_from_file(path, {
    ...native.llama_model_default_params(),
    n_gpu_layers: isOnGpu ? -1 : 0,
    load_mode: loadModeMapped,
    use_extra_bufts: options.repack ?? true,
  });
  if (model === 0) throw modelLoadFailed({ path, reason: lastReason(native) });
  options.onModel?.(native, model);
  const kvType = ggmlTypeNamed(options.kvType ?? 'F16')?.id ?? 1;
  const context = native.llama_init_from_model(model, {
    ...native.llama_context_default_params(),
    n_ctx: options.contextLength,
    n_batch: options.batch,
    n_ubatch: options.microBatch ?? Math.min(512, options.batch),
    n_seq_max: options.sequences ?? 1,
    n_threads: options.threads,
    n_threads_batch: options.threads,
    flash_attn_type: (options.flashAttention ?? true) ? 1 : 0,
    kv_unified: options.unified ?? true,
    offload_kqv: isOnGpu,
    op_offload: isOnGpu,
    swa_full: options.keepsAllTokens ?? true,
    type_k: kvType,
    type_v: kvType,
    ...(options.pooling === undefined ? {} : { embeddings: true, pooling_type: poolingTypes[options.pooling] }),
  });
  if (context === 0) {
    native.llama_model_free(model);
    throw modelLoadFailed({ path, reason: lastReason(native) });
  }
  if (options.adapter !== undefined) useAdapter(native, model, context, options.adapter);
  return new LlamaReference(native, model, context, options);
}

/** The model owns the adapter. */
function useAdapter(native: NativeApi, model: ModelPtr, context: LlamaPtr, path: string): void {
  const adapter = native.llama_adapter_lora_init(model, path);
  if (adapter === 0) throw modelLoadFailed({ path, reason: lastReason(native) });
  const status = native.llama_set_adapters_lora(context, BigUint64Array.of(BigInt(adapter)), 1, Float32Array.of(1));
  assert(status === 0, `llama_set_adapters_lora returned ${status}`);
}

/** `enum llama_pooling_type` of llama.h. */
const poolingTypes: Readonly<Record<Pooling | 'rank', number>> = { mean: 1, cls: 2, last: 3, rank: 4 };

const lastReason = (native: NativeApi): string => native.recentLog().at(-1) ?? 'no reason given';

interface BatchViews {
  readonly tokens: Int32Array;
  readonly positions: Int32Array;
  /** One per row, each of one element. */
  readonly sequences: readonly Int32Array[];
  readonly wanted: Int8Array;
}

/** The arrays that `llama_batch_init` allocated, as typed arrays; every row belongs to one sequence. */
function viewBatch(native: NativeApi, batch: LlamaBatch, capacity: number): BatchViews {
  const int32At = (pointer: number, length: number): Int32Array =>
    new Int32Array(native.memoryAt(pointer as RawPtr, length * 4));
  int32At(batch.n_seq_id, capacity).fill(1);
  const pointers = new BigUint64Array(native.memoryAt(batch.seq_id, capacity * 8));
  return {
    tokens: int32At(batch.token, capacity),
    positions: int32At(batch.pos, capacity),
    sequences: Array.from(pointers, (pointer) => int32At(Number(pointer), 1)),
    wanted: new Int8Array(native.memoryAt(batch.logits, capacity)),
  };
}
