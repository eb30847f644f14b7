import type { TensorPtr } from '../../ggml/ffi.ts';
import type { LayerTensors } from '../weight-store.ts';

/** A gated network: `down(activation(gate(h)) * up(h))`. */
export interface NetworkWeights {
  readonly gate: TensorPtr;
  readonly up: TensorPtr;
  readonly down: TensorPtr;
}

export function networkWeights(tensors: LayerTensors, suffix = ''): NetworkWeights {
  return {
    gate: tensors.matrix(`ffn_gate${suffix}.weight`),
    up: tensors.matrix(`ffn_up${suffix}.weight`),
    down: tensors.matrix(`ffn_down${suffix}.weight`),
  };
}
