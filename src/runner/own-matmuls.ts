import type { GgufTensor } from '../ggml/gguf.ts';
import { smallMatrixInputs } from './operations/row-operations.ts';

/** F32 tensors with several rows that no matmul reads. */
const otherTensors = /\.(?:bias|ssm_a|ssm_d|(?:ssm_norm|ssm_conv1d|shortconv\.conv)\.weight)$/;
/** F32 matrices that `RowOperations` multiplies by. */
const smallMatrices = /\.ffn_gate_inp(?:_shexp)?\.weight$/;

/**
 * Whether Kvasir's kernels multiply by all matrices of a model. Then ggml computes only operations that have the same
 * bits in all of its builds for CPUs with AVX2. `fits`: whether a kernel for quantized and F16 matrices supports the
 * tensor. A tensor that is not known to be a vector counts as a matrix.
 */
export function hasOnlyOwnMatmuls(tensors: Iterable<GgufTensor>, fits: (tensor: GgufTensor) => boolean): boolean {
  for (const tensor of tensors) {
    const { name, type, ne } = tensor;
    if (fits(tensor)) continue;
    if (type.name !== 'F32') return false;
    if (smallMatrices.test(name)) {
      if (ne[0] % smallMatrixInputs !== 0) return false;
    } else if (ne[1] * ne[2] > 1 && !otherTensors.test(name)) return false;
  }
  return true;
}
