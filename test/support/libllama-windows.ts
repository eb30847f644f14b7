import { assert } from '../../src/base/assert.ts';
import type { ModelPtr, NativeApi } from '../../src/ggml/ffi.ts';
import type { ModelConfig } from '../../src/ggml/model-config.ts';

/** Bytes of `llama_model` that certainly exist: its hyperparameters have two arrays of 512 numbers after the flags. */
const searchedBytes = 0x4000;
/** Of `LLAMA_SWA_TYPE_STANDARD`. */
const standardWindow = 1;

/**
 * Gives windows in libllama to the same layers of an lfm2 as in Kvasir. libllama gives its window to all layers with
 * attention, and no metadata changes this, but its graph and its memory ask a flag for each layer. So this sets the
 * flags of the loaded model:
 *
 *   llama_hparams   ... swa_type, n_swa, (another number), is_swa[512] ...   all uint32
 */
export function setWindowLayers(native: NativeApi, model: ModelPtr, config: ModelConfig): void {
  const { architecture, slidingWindow, states, layerCount } = config;
  if (architecture !== 'lfm2' || slidingWindow === undefined) return;
  const words = new Uint32Array(native.memoryAt(model, searchedBytes));
  const flagOf = (layer: number): number => (states?.layers.includes(layer) ? 0 : 1);
  const isAt = (word: number): boolean =>
    words[word] === standardWindow &&
    words[word + 1] === slidingWindow.window &&
    Array.from({ length: layerCount }, (_, layer) => words[word + 3 + layer] === flagOf(layer)).every(Boolean);
  const found = [...words.keys()].filter(isAt);
  assert(found.length === 1, `the flags of windows are at ${found.length} places of llama_model; expected one`);
  for (let layer = 0; layer < layerCount; layer++)
    words[found[0]! + 3 + layer] = slidingWindow.layers.includes(layer) ? 1 : 0;
}
