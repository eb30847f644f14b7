import type { NativeApi, TensorPtr } from './ffi.ts';

/** Byte offsets of the fields of `struct ggml_tensor` that we read or write (ggml.h of the pinned version; a test holds them against ggml). */
export const tensorField = {
  type: 0,
  buffer: 8,
  ne: 16,
  nb: 48,
  source: 152,
  viewSource: 232,
  viewOffset: 240,
  data: 248,
} as const;
const tensorStructBytes = 336;

/** A tensor's struct as it lies in native memory. */
export const tensorStruct = (native: NativeApi, tensor: TensorPtr): DataView =>
  new DataView(native.memoryAt(tensor, tensorStructBytes));

/** Where an allocated tensor's data lies. */
export const dataPointer = (native: NativeApi, tensor: TensorPtr): number =>
  Number(tensorStruct(native, tensor).getBigUint64(tensorField.data, true));
