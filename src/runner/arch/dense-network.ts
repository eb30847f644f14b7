import type { TensorPtr } from '../../ggml/ffi.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import type { LayerTensors } from '../weight-store.ts';

/** A network with a gate, `down(activation(gate(h)) * up(h))`, or without one, `down(relu(up(h))^2)`. */
export interface NetworkWeights {
  readonly gate: TensorPtr | undefined;
  readonly up: TensorPtr;
  readonly down: TensorPtr;
  /** Of networks with a gate. */
  readonly biases?: { readonly gate: TensorPtr; readonly up: TensorPtr; readonly down: TensorPtr };
}

export function networkWeights(
  tensors: LayerTensors,
  { hasNetworkGate, hasNetworkBias }: Pick<ModelConfig, 'hasNetworkGate' | 'hasNetworkBias'>,
  suffix = '',
): NetworkWeights {
  return {
    gate: hasNetworkGate ? tensors.matrix(`ffn_gate${suffix}.weight`) : undefined,
    up: tensors.matrix(`ffn_up${suffix}.weight`),
    down: tensors.matrix(`ffn_down${suffix}.weight`),
    ...(hasNetworkBias === true && suffix === ''
      ? {
          biases: {
            gate: tensors.vector('ffn_gate.bias'),
            up: tensors.vector('ffn_up.bias'),
            down: tensors.vector('ffn_down.bias'),
          },
        }
      : {}),
  };
}
