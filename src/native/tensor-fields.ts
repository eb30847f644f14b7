import { tensorField } from '../ggml/tensor-struct.ts';

/** The header and the definitions of sources that read the fields of ggml's tensors. */
export const tensorFields = {
  header: 'native/tensor.h',
  definitions: {
    TENSOR_SOURCE: tensorField.source,
    TENSOR_DATA: tensorField.data,
    TENSOR_NE: tensorField.ne,
    TENSOR_NB: tensorField.nb,
  },
} as const;
