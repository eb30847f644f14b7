/** The probe at loading refuses exact numerics if results of the device depend on the batch. */
import { afterAll, describe, expect, it } from 'vitest';
import { type ComputeDevice, openDevice } from '../../src/ggml/device.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { readModelConfig } from '../../src/ggml/model-config.ts';
import { F16 } from '../../src/ggml/types.ts';
import { chooseAttention } from '../../src/runner/attention/attention-choice.ts';
import { wholeModel } from '../../src/runner/contract.ts';
import { findExactKernels } from '../../src/runner/matmul/exact-kernels.ts';
import { loadWeights } from '../../src/runner/weights.ts';
import { needsGpu, rowsOnGpu } from '../support/gpu.ts';
import { temporaryFolder, writeTinyModel } from '../support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

/** Each time that values are read from the device, their first byte is another. */
function withOtherBits(device: ComputeDevice): ComputeDevice {
  let reads = 0;
  const native = new Proxy(device.native, {
    get(target, name, receiver) {
      if (name !== 'ggml_backend_tensor_get') return Reflect.get(target, name, receiver);
      const read: typeof target.ggml_backend_tensor_get = (tensor, into, offset, bytes) => {
        target.ggml_backend_tensor_get(tensor, into, offset, bytes);
        if (ArrayBuffer.isView(into)) new Uint8Array(into.buffer, into.byteOffset)[0]! ^= ++reads;
      };
      return read;
    },
  });
  return { ...device, native, isExact: true, description: `${device.description} with other bits` };
}

describe('exact numerics on a GPU', needsGpu(), () => {
  it('are refused with the types of matrices, or with attention, if their bits depend on the batch', async () => {
    const path = folder.file('experts.gguf');
    const experts = { count: 4, used: 2, feedForwardLength: 64 };
    await writeTinyModel(path, { architecture: 'qwen3moe', type: 'F32', typeOfLayer: () => 'Q8_0', experts });
    const file = await readGguf(path);
    const config = readModelConfig(file);
    const device = openDevice({ device: 'gpu', threads: 1, exact: true });
    const stage = wholeModel(config.layerCount);
    const weights = await loadWeights(device, file, config, { stage, repack: false });
    try {
      const { matrices, expertMatrices } = weights;
      const kernelsOn = (
        gpu: ComputeDevice,
        parts: { readonly matrices: typeof matrices; readonly experts: typeof matrices },
      ) => findExactKernels({ device: gpu, file, rowsMax: rowsOnGpu() }, { ...parts, rowMatmul: undefined });
      const layout = { layerCount: 1, headDim: 32, headCountKv: 2, blockSize: 16, type: F16 };
      const attentionOn = (gpu: ComputeDevice) =>
        chooseAttention(gpu, { option: 'auto', headCount: 2, layouts: [layout], isExact: true });

      const broken = withOtherBits(device);
      await expect(kernelsOn(device, { matrices, experts: expertMatrices })).resolves.toBeDefined();
      await expect(kernelsOn(broken, { matrices, experts: [] })).rejects.toMatchObject({
        code: 'KVASIR_EXACT_UNAVAILABLE',
        message: expect.stringMatching(/with other bits.*Q8_0/),
      });
      await expect(kernelsOn(broken, { matrices: [], experts: expertMatrices })).rejects.toMatchObject({
        code: 'KVASIR_EXACT_UNAVAILABLE',
        message: expect.stringMatching(/Q8_0/),
      });
      await expect(attentionOn(device)).resolves.toMatchObject({ kind: 'gather' });
      await expect(attentionOn(broken)).rejects.toMatchObject({
        code: 'KVASIR_EXACT_UNAVAILABLE',
        message: expect.stringMatching(/attention/),
      });
    } finally {
      weights.close();
      device.close();
    }
  });
});
