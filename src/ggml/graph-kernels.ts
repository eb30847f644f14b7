import type { RawPtr, TensorPtr } from './ffi.ts';

/**
 * C functions for operations whose bits depend on the build of ggml's CPU library or on the C library. A `GraphBuilder` that has them uses
 * them instead of ggml's operations.
 */
export interface GraphKernels {
  readonly silu: RawPtr;
  readonly swiglu: RawPtr;
  readonly sigmoid: RawPtr;
  readonly tanh: RawPtr;
  readonly geglu: RawPtr;
  readonly gelu: RawPtr;
  /** Userdata: alpha and limit, as floats. */
  readonly clampedSwiglu: RawPtr;
  readonly softMax: RawPtr;
  readonly smallMatmul: RawPtr;
  /** The outputs of a matrix whose type and shape `smallMatmul` supports. */
  outputsOf(matrix: TensorPtr): number | undefined;
}

/** Functions of one element. */
export type Activation = 'silu' | 'sigmoid' | 'tanh' | 'gelu';
