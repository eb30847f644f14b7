import { allocateTensors, type ComputeDevice } from '../../src/ggml/device.ts';
import type { TensorPtr } from '../../src/ggml/ffi.ts';
import { F32 } from '../../src/ggml/types.ts';

/** F32 tensors outside of graphs, as weights are; they live until the process ends. */
export function constantTensor(device: ComputeDevice, values: Float32Array, ne0: number, ne1 = 1): TensorPtr {
  const { native } = device;
  const context = native.ggml_init({ mem_size: 2048, mem_buffer: 0, no_alloc: true });
  const tensor = native.ggml_new_tensor_2d(context, F32.id, ne0, ne1);
  allocateTensors(device, context, device.mainBuffers, { purpose: 'a test', bytes: values.byteLength });
  native.ggml_backend_tensor_set(tensor, values, 0, values.byteLength);
  return tensor;
}
