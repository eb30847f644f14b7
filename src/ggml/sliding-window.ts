import type { GgufFile } from './gguf.ts';
import type { GgufMetadata } from './gguf-metadata.ts';
import type { RopeConfig } from './rope-config.ts';

/** The layers of a model in which a token sees only the tokens just before it. */
export interface SlidingWindow {
  /** Tokens that a token sees, itself included. */
  readonly window: number;
  /** The indices of the layers with a window, ascending. */
  readonly layers: readonly number[];
  /** RoPE of these layers. */
  readonly rope: RopeConfig;
}

/** What layers with a window have if the metadata does not say otherwise. */
export interface WindowDefaults {
  /** Of so many layers, the last has full attention. */
  readonly pattern: number;
  readonly rope: RopeConfig;
}

/** Reads the layers with a window from a regular pattern. They may have their own base of RoPE. */
export function readSlidingWindow(
  { metadata }: GgufFile,
  architecture: string,
  layerCount: number,
  defaults: WindowDefaults,
): SlidingWindow | undefined {
  const window = readWindow(metadata, architecture);
  if (window === undefined) return undefined;
  const pattern = metadata.u32(`${architecture}.attention.sliding_window_pattern`) ?? defaults.pattern;
  const baseKey = `${architecture}.rope.freq_base_swa`;
  const freqBase = metadata.f32(baseKey) ?? defaults.rope.freqBase;
  if (freqBase <= 0) throw metadata.invalid(baseKey, 'positive');
  const isWindowed = (layer: number): boolean => pattern === 0 || layer % pattern < pattern - 1;
  const layers = Array.from({ length: layerCount }, (_, layer) => layer).filter(isWindowed);
  return layers.length === 0 ? undefined : { window, layers, rope: { ...defaults.rope, freqBase } };
}

/**
 * Reads the layers with a window of a hybrid model: the pattern has a boolean for each layer. Without a pattern, all
 * layers with attention have a window. RoPE is equal in all layers.
 */
export function readHybridWindow(
  { metadata }: GgufFile,
  architecture: string,
  layerCount: number,
  { stateLayers, rope }: { readonly stateLayers: readonly number[]; readonly rope: RopeConfig },
): SlidingWindow | undefined {
  const window = readWindow(metadata, architecture);
  if (window === undefined) return undefined;
  const patternKey = `${architecture}.attention.sliding_window_pattern`;
  const pattern = metadata.array(patternKey) && metadata.u32OfLayers(patternKey, layerCount);
  const layers = Array.from({ length: layerCount }, (_, layer) => layer).filter(
    (layer) => !stateLayers.includes(layer) && pattern?.[layer] !== 0,
  );
  return layers.length === 0 ? undefined : { window, layers, rope };
}

function readWindow(metadata: GgufMetadata, architecture: string): number | undefined {
  const key = `${architecture}.attention.sliding_window`;
  const window = metadata.u32(key) ?? 0;
  if (window === 0) return undefined;
  // With a window of 1, tokens would not see each other.
  if (window < 2 || window > 1 << 24) throw metadata.invalid(key, 'between 2 and 2^24');
  return window;
}
