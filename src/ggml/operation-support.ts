import type { BufferType, ComputeDevice } from './device.ts';
import type { TensorPtr } from './ffi.ts';
import type { GgufTensor } from './gguf.ts';
import { tensorField, tensorStruct } from './tensor-struct.ts';
import { F32, I32 } from './types.ts';

/** Whether the device can multiply this matrix in such buffers. llama.cpp places weights by the same question. */
export function canMultiply(device: ComputeDevice, matrix: GgufTensor, buffers: BufferType): boolean {
  const owner = buffers === device.mainBuffers ? device.mainDevice : device.cpuDevice;
  return withWeight(device, matrix, buffers, (context, weight) => {
    const { native } = device;
    const x = native.ggml_new_tensor_2d(context, F32.id, matrix.ne[0], 512);
    return native.ggml_backend_dev_supports_op(owner, native.ggml_mul_mat(context, weight, x));
  });
}

/** The same for matrices `[inputs, outputs, experts]` of which each token uses some. */
export function canMultiplyExperts(device: ComputeDevice, matrices: GgufTensor, buffers: BufferType): boolean {
  const owner = buffers === device.mainBuffers ? device.mainDevice : device.cpuDevice;
  return withWeight(device, matrices, buffers, (context, weights) => {
    const { native } = device;
    const x = native.ggml_new_tensor_3d(context, F32.id, matrices.ne[0], 1, 512);
    const chosen = native.ggml_new_tensor_2d(context, I32.id, 1, 512);
    return native.ggml_backend_dev_supports_op(owner, native.ggml_mul_mat_id(context, weights, x, chosen));
  });
}

/** Whether the main device can read rows of this matrix by index. */
export function canTakeRows(device: ComputeDevice, matrix: GgufTensor): boolean {
  return withWeight(device, matrix, device.mainBuffers, (context, weight) => {
    const { native } = device;
    const rows = native.ggml_new_tensor_1d(context, I32.id, 512);
    return native.ggml_backend_dev_supports_op(device.mainDevice, native.ggml_get_rows(context, weight, rows));
  });
}

/** ggml decides by the type of the weight's buffer, so an empty buffer is enough. */
function withWeight(
  { native }: ComputeDevice,
  { type, ne }: GgufTensor,
  buffers: BufferType,
  ask: (context: ReturnType<typeof native.ggml_init>, weight: TensorPtr) => boolean,
): boolean {
  const context = native.ggml_init({ mem_size: 8 * native.ggml_tensor_overhead(), mem_buffer: 0, no_alloc: true });
  const weight = native.ggml_new_tensor_3d(context, type.id, ne[0], ne[1], ne[2]);
  const buffer = native.ggml_backend_buft_alloc_buffer(buffers.pointer, 0);
  tensorStruct(native, weight).setBigUint64(tensorField.buffer, BigInt(buffer), true);
  try {
    return ask(context, weight);
  } finally {
    native.ggml_backend_buffer_free(buffer);
    native.ggml_free(context);
  }
}
