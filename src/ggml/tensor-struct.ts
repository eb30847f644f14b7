import type { NativeApi, TensorPtr } from './ffi.ts';

/** Byte offsets of fields of `struct ggml_tensor` (ggml.h of the pinned version). A test compares them with ggml. */
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

/** A tensor's struct in native memory. */
export const tensorStruct = (native: NativeApi, tensor: TensorPtr): DataView =>
  new DataView(native.memoryAt(tensor, tensorStructBytes));

/** The address of an allocated tensor's data. */
export const dataPointer = (native: NativeApi, tensor: TensorPtr): number =>
  Number(tensorStruct(native, tensor).getBigUint64(tensorField.data, true));
