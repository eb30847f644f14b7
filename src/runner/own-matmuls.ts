import type { GgufTensor } from '../ggml/gguf.ts';
import { smallMatrixInputs } from './operations/row-operations.ts';

/** F32 tensors with several rows that no matmul reads. */
const otherTensors = /\.(?:bias|ssm_a|ssm_d|(?:ssm_norm|ssm_conv1d|shortconv\.conv)\.weight)$/;
/** F32 matrices that `RowOperations` multiplies by. */
const smallMatrices = /\.ffn_gate_inp(?:_shexp)?\.weight$/;

/**
 * The matrices of a model by which ggml multiplies. If there are none, ggml computes only operations that have the same
 * bits in all of its builds for CPUs with AVX2. `fits`: whether a kernel for tiled matrices supports the tensor. A tensor
 * that is not known to be a vector counts as a matrix.
 */
export function otherMatrices(tensors: Iterable<GgufTensor>, fits: (tensor: GgufTensor) => boolean): GgufTensor[] {
  return [...tensors].filter((tensor) => {
    const { name, type, ne } = tensor;
    if (fits(tensor)) return false;
    if (type.name !== 'F32') return true;
    return smallMatrices.test(name) ? ne[0] % smallMatrixInputs !== 0 : ne[1] * ne[2] > 1 && !otherTensors.test(name);
  });
}
