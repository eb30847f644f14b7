import type { NativeApi, TensorPtr } from '../ggml/ffi.ts';
import type { ModelConfig } from '../ggml/model-config.ts';
import type { AttentionLayer } from './attention/attention.ts';
import type { LayerKv } from './kv-groups.ts';
import type { ModelWeights } from './weights.ts';

/** How the layers of a stage that have attention attend, in their order. The weights must be in memory. */
export function attentionLayers(
  native: NativeApi,
  config: ModelConfig,
  kv: readonly LayerKv[],
  weights: ModelWeights,
): readonly AttentionLayer[] {
  return kv.flatMap((place, index) => {
    if (place.kind !== 'attention') return [];
    const layer = { group: place.group, place: place.place, window: place.window, scale: config.attentionScale };
    const sinks = weights.layers[index]?.attention?.sinks;
    return [sinks === undefined ? layer : { ...layer, sinks: floatsOf(native, sinks, config.headCount) }];
  });
}

function floatsOf(native: NativeApi, tensor: TensorPtr, count: number): Float32Array {
  const values = new Float32Array(count);
  native.ggml_backend_tensor_get(tensor, values, 0, values.byteLength);
  return values;
}
