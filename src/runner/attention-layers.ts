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
    const { group, window } = place;
    const layer = { group, place: place.place, ...seenBy(config, window), scale: config.attentionScale };
    const sinks = weights.layers[index]?.attention?.sinks;
    return [sinks === undefined ? layer : { ...layer, sinks: floatsOf(native, sinks, config.headCount) }];
  });
}

/** An encoder's window has half of its tokens before a token, and half after it. */
function seenBy({ isEncoder }: ModelConfig, window: number | undefined): Pick<AttentionLayer, 'window' | 'ahead'> {
  if (isEncoder !== true || window === undefined) return { window };
  const half = Math.floor(window / 2);
  return { window: half + 1, ahead: half };
}

function floatsOf(native: NativeApi, tensor: TensorPtr, count: number): Float32Array {
  const values = new Float32Array(count);
  native.ggml_backend_tensor_get(tensor, values, 0, values.byteLength);
  return values;
}
