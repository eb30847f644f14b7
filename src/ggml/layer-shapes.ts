import type { ModelConfig } from './model-config.ts';

/** K and V of one token in one layer. */
export interface HeadShape {
  /** Of queries, keys and values. With latent attention: of the one row that the KV cache has for a token. */
  readonly headDim: number;
  readonly headCountKv: number;
}

type Heads = Pick<ModelConfig, 'headDim' | 'headCountKv' | 'slidingWindow'>;

const isWindowed = ({ slidingWindow }: Pick<ModelConfig, 'slidingWindow'>, layer: number): boolean =>
  slidingWindow?.layers.includes(layer) === true;

/** The heads of layers with a window, or of layers with full attention. */
export const headsOfKind = (config: Heads, kind: 'full' | 'window'): HeadShape =>
  (kind === 'window' ? config.slidingWindow?.heads : undefined) ?? config;

export const headsOfLayer = (config: Heads, layer: number): HeadShape =>
  headsOfKind(config, isWindowed(config, layer) ? 'window' : 'full');

/** The shapes of heads of all layers with attention, each once. */
export function headShapes(config: Heads): readonly HeadShape[] {
  const window = headsOfKind(config, 'window');
  const isEqual = window.headDim === config.headDim && window.headCountKv === config.headCountKv;
  return isEqual ? [headsOfKind(config, 'full')] : [headsOfKind(config, 'full'), window];
}

/**
 * The layer whose KV a layer reads: itself, unless the last layers share. These read the KV of the last layer of their
 * kind before them: that with full attention is the last one, and that with a window the one before.
 */
export function kvLayerOf(config: Pick<ModelConfig, 'sharedKvFrom' | 'slidingWindow'>, layer: number): number {
  const { sharedKvFrom } = config;
  if (sharedKvFrom === undefined || layer < sharedKvFrom) return layer;
  return sharedKvFrom - (isWindowed(config, layer) ? 2 : 1);
}

/** The hidden width of a layer's network. */
export const feedForwardLengthOf = (
  { feedForwardLength, feedForwardLengths }: Pick<ModelConfig, 'feedForwardLength' | 'feedForwardLengths'>,
  layer: number,
): number => feedForwardLengths?.[layer] ?? feedForwardLength;
