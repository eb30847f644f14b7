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

/**
 * Reads the window of Gemma 3. Of each `pattern` layers, the last has full attention. The other layers have a window,
 * another base of RoPE and no RoPE scaling. Undefined if no layer has a window.
 */
export function readSlidingWindow(
  { metadata }: GgufFile,
  architecture: string,
  layerCount: number,
  rope: RopeConfig,
): SlidingWindow | undefined {
  const windowKey = `${architecture}.attention.sliding_window`;
  const window = metadata.u32(windowKey) ?? 0;
  if (window === 0) return undefined;
  // With a window of 1, tokens would not see each other.
  if (window < 2 || window > 1 << 24) throw metadata.invalid(windowKey, 'between 2 and 2^24');
  const pattern = metadata.u32(`${architecture}.attention.sliding_window_pattern`) ?? 6;
  const baseKey = `${architecture}.rope.freq_base_swa`;
  const freqBase = metadata.f32(baseKey) ?? 10_000;
  if (freqBase <= 0) throw metadata.invalid(baseKey, 'positive');
  const isWindowed = (layer: number): boolean => pattern === 0 || layer % pattern < pattern - 1;
  const layers = Array.from({ length: layerCount }, (_, layer) => layer).filter(isWindowed);
  return layers.length === 0 ? undefined : { window, layers, rope: { ...rope, freqBase, freqScale: 1 } };
}
