import type { GgufFile } from './gguf.ts';
import type { GgufMetadata } from './gguf-metadata.ts';
import type { HeadShape } from './layer-shapes.ts';
import type { RopeConfig } from './rope-config.ts';

/** The layers of a model in which a token sees only the tokens just before it. */
export interface SlidingWindow {
  /** Tokens that a token sees, itself included. */
  readonly window: number;
  /** The indices of the layers with a window, ascending. */
  readonly layers: readonly number[];
  /** RoPE of these layers. */
  readonly rope: RopeConfig;
  /** Present if their heads are not those of the other layers. */
  readonly heads?: HeadShape;
}

/** What layers with a window have if the metadata does not say otherwise. */
export interface WindowDefaults {
  /** Of so many layers, the last has full attention; 0: no layer. */
  readonly pattern: number;
  readonly rope: RopeConfig;
  /** Layers without attention. */
  readonly others?: readonly number[];
}

/**
 * Reads the layers with a window: the pattern is a number (of so many layers, the last has full attention) or has a boolean
 * for each layer. They may have their own base of RoPE.
 */
export function readSlidingWindow(
  { metadata }: GgufFile,
  architecture: string,
  layerCount: number,
  { pattern: usual, rope, others = [] }: WindowDefaults,
): SlidingWindow | undefined {
  const window = readWindow(metadata, architecture);
  if (window === undefined) return undefined;
  const patternKey = `${architecture}.attention.sliding_window_pattern`;
  const value = metadata.entries.get(patternKey);
  const listed =
    value !== undefined && 'elementType' in value ? metadata.u32OfLayers(patternKey, layerCount) : undefined;
  const pattern = listed === undefined ? (metadata.u32(patternKey) ?? usual) : 0;
  const baseKey = `${architecture}.rope.freq_base_swa`;
  const freqBase = metadata.f32(baseKey) ?? rope.freqBase;
  if (freqBase <= 0) throw metadata.invalid(baseKey, 'positive');
  // The divisors are of one base.
  if (rope.divisors !== undefined && freqBase !== rope.freqBase) throw metadata.invalid(baseKey, `${rope.freqBase}`);
  const isWindowed = (layer: number): boolean =>
    listed === undefined ? pattern === 0 || layer % pattern < pattern - 1 : listed[layer] !== 0;
  const layers = Array.from({ length: layerCount }, (_, layer) => layer).filter(
    (layer) => isWindowed(layer) && !others.includes(layer),
  );
  return layers.length === 0
    ? undefined
    : { window, layers, rope: freqBase === rope.freqBase ? rope : { ...rope, freqBase } };
}

/** Undefined: the layers have no window. */
export function readWindow(metadata: GgufMetadata, architecture: string): number | undefined {
  const key = `${architecture}.attention.sliding_window`;
  const window = metadata.u32(key) ?? 0;
  if (window === 0) return undefined;
  // With a window of 1, tokens would not see each other.
  if (window < 2 || window > 1 << 24) throw metadata.invalid(key, 'between 2 and 2^24');
  return window;
}
