import type { ArchitectureLayers } from './layers.ts';

/**
 * Nemotron-H and Nemotron 3: a layer has Mamba-2, attention without RoPE, or a network, with one norm before it. Networks have no gate,
 * and their activation is the square of ReLU. They are dense, or mixtures of experts beside a network for every token
 * (`nemotron_h_moe`), whose experts may have shorter rows than the model.
 */
export const nemotronH: ArchitectureLayers = {
  layer: (operations, weights, { x, attended }) => {
    const isNetwork = weights.network !== undefined || weights.experts !== undefined;
    return operations.add(x, isNetwork ? operations.network(weights, attended) : attended);
  },
  mixer: (operations, weights, h, states) => operations.mamba(weights, h, states),
};
