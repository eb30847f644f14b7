import type { TypedArrayOf } from './compute-memory.ts';
import type { TensorPtr } from './ffi.ts';
import type { GraphBuilder } from './graph.ts';

/** A copy of the first elements of a result, on any device. */
export function copyOf<Data extends ArrayBufferView>(
  graph: GraphBuilder,
  result: TensorPtr,
  Data: TypedArrayOf<Data>,
  count: number,
): Data {
  const copy = new Data(new ArrayBuffer(count * Data.BYTES_PER_ELEMENT), 0, count);
  graph.read(result, copy);
  return copy;
}
