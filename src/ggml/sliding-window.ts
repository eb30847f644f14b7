import type { GgufFile } from './gguf.ts';
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

/**
 * Reads the layers with a window. They may have their own base of RoPE. Undefined if no layer has a window.
 */
export function readSlidingWindow(
  { metadata }: GgufFile,
  architecture: string,
  layerCount: number,
  defaults: WindowDefaults,
): SlidingWindow | undefined {
  const windowKey = `${architecture}.attention.sliding_window`;
  const window = metadata.u32(windowKey) ?? 0;
  if (window === 0) return undefined;
  // With a window of 1, tokens would not see each other.
  if (window < 2 || window > 1 << 24) throw metadata.invalid(windowKey, 'between 2 and 2^24');
  const pattern = metadata.u32(`${architecture}.attention.sliding_window_pattern`) ?? defaults.pattern;
  const baseKey = `${architecture}.rope.freq_base_swa`;
  const freqBase = metadata.f32(baseKey) ?? defaults.rope.freqBase;
  if (freqBase <= 0) throw metadata.invalid(baseKey, 'positive');
  const isWindowed = (layer: number): boolean => pattern === 0 || layer % pattern < pattern - 1;
  const layers = Array.from({ length: layerCount }, (_, layer) => layer).filter(isWindowed);
  return layers.length === 0 ? undefined : { window, layers, rope: { ...defaults.rope, freqBase } };
}
