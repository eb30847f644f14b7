/** Attention by its definition, in double precision: the reference for kernels. */
import type { NativeApi } from '../../src/ggml/ffi.ts';
import { F16, Q8_0 } from '../../src/ggml/types.ts';
import type { AttentionVariant } from '../../src/runner/attention/attention.ts';
import type { ProbeSequence } from '../../src/runner/attention/probe.ts';
import { type KvMemory, type KvType, keyPart, partCount, rowElements } from '../../src/runner/kv-memory.ts';

export interface AttentionTestShape {
  readonly headDim: number;
  readonly group: number;
  readonly headsKv: number;
  readonly blockSize: number;
  readonly kvType: KvType;
  /** As in `KvLayout`. */
  readonly valueInKey?: number | undefined;
}

/** The bytes of all blocks. */
export const poolBytes = (native: NativeApi, memory: KvMemory): Uint8Array =>
  new Uint8Array(native.memoryAt(memory.baseAddress, memory.blockCount * memory.blockBytes));

/**
 * For each row and head: softmax of q . k over the tokens that the row sees, times v, all in doubles. All variants share the dot
 * products of queries and keys.
 */
export class AttentionInDoubles {
  readonly #shape: AttentionTestShape;
  readonly #values: Float32Array;
  readonly #pool: Float32Array;
  /** For each row: the offsets in the pool of its tokens' values, and for each head the scores of these tokens. */
  readonly #rows: { readonly values: Int32Array; readonly scores: Float64Array[] }[] = [];

  constructor(
    native: NativeApi,
    memory: KvMemory,
    shape: AttentionTestShape,
    sequences: readonly ProbeSequence[],
    values: Float32Array,
    layer: number,
  ) {
    this.#shape = shape;
    this.#values = values;
    this.#pool = toFloats(native, poolBytes(native, memory), shape.kvType);
    const { blockSize } = shape;
    const width = rowElements(memory.layout);
    const elementOf = (blocks: Int32Array, token: number, part: number): number =>
      (memory.slotOf(blocks[Math.floor(token / blockSize)] as never, token % blockSize) +
        (layer * partCount(shape) + part) * blockSize) *
      width;
    for (const { spans, blocks } of sequences) {
      for (const [start, end] of spans) {
        for (let position = start; position < end; position++) {
          const placesOf = (part: number): Int32Array =>
            Int32Array.from({ length: position + 1 }, (_, token) => elementOf(blocks, token, part));
          this.#addRow(placesOf(keyPart), placesOf(partCount(shape) - 1));
        }
      }
    }
  }

  #addRow(keys: Int32Array, values: Int32Array): void {
    const { headDim, group, headsKv } = this.#shape;
    const heads = group * headsKv;
    const scores = Array.from({ length: heads }, (_, head) => {
      const q = (this.#rows.length * heads + head) * headDim;
      const inHead = Math.floor(head / group) * headDim;
      return Float64Array.from(keys, (key) => this.#dot(q, key + inHead));
    });
    this.#rows.push({ values, scores });
  }

  #dot(q: number, k: number): number {
    const [values, pool] = [this.#values, this.#pool];
    let sum = 0;
    for (let i = 0; i < this.#shape.headDim; i++) sum += values[q + i]! * pool[k + i]!;
    return sum;
  }

  expected({ window = 0, scale, softCap = 0, sinks }: AttentionVariant): Float64Array {
    const { headDim, group } = this.#shape;
    const factor = scale ?? 1 / Math.sqrt(headDim);
    const result = new Float64Array(this.#values.length);
    let q = 0;
    for (const { values, scores } of this.#rows) {
      const first = window === 0 ? 0 : Math.max(0, values.length - window);
      for (const [head, all] of scores.entries()) {
        const scaled = all.subarray(first).map((score) => score * factor);
        const seen = softCap === 0 ? scaled : scaled.map((score) => softCap * Math.tanh(score / softCap));
        const inHead = Math.floor(head / group) * headDim;
        this.#average(seen, sinks?.[head], values.subarray(first), inHead, result.subarray(q, q + headDim));
        q += headDim;
      }
    }
    return result;
  }

  /** The average of the values at these offsets, weighted by the softmax of their scores. */
  #average(
    scores: Float64Array,
    sink: number | undefined,
    offsets: Int32Array,
    inHead: number,
    into: Float64Array,
  ): void {
    const pool = this.#pool;
    const top = scores.reduce((most, score) => Math.max(most, score), sink ?? Number.NEGATIVE_INFINITY);
    let weight = sink === undefined ? 0 : Math.exp(sink - top);
    for (let i = 0; i < scores.length; i++) {
      const w = Math.exp(scores[i]! - top);
      const v = offsets[i]! + inHead;
      weight += w;
      for (let d = 0; d < into.length; d++) into[d]! += w * pool[v + d]!;
    }
    for (let d = 0; d < into.length; d++) into[d]! /= weight;
  }
}

function toFloats(native: NativeApi, bytes: Uint8Array, type: KvType): Float32Array {
  const toF32 = (from: Uint16Array): Float32Array => {
    const floats = new Float32Array(from.length);
    native.ggml_fp16_to_fp32_row(from, floats, BigInt(from.length) as never);
    return floats;
  };
  if (type === F16) return toF32(new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2));
  const blocks = bytes.length / Q8_0.typeSize;
  const values = new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length);
  const factors = toF32(Uint16Array.from({ length: blocks }, (_, i) => bytes[i * 34]! | (bytes[i * 34 + 1]! << 8)));
  return Float32Array.from({ length: blocks * 32 }, (_, i) => factors[i >> 5]! * values[(i >> 5) * 34 + 2 + (i & 31)]!);
}
