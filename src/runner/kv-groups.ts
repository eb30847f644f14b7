import { type TokenCount, tokenCount } from '../core/ids.ts';
import type { KvGroupSpec } from '../core/kv-spec.ts';
import type { ModelConfig } from '../ggml/model-config.ts';
import { layersOf, type PipelineStage } from './contract.ts';
import type { KvLayout, KvType } from './kv-memory.ts';

/** Layers whose KV is in the same blocks, and which read the same tokens. */
export interface LayerGroup {
  /** Tokens that a token sees, itself included; undefined: all. */
  readonly window: number | undefined;
  /** Their indices in the model, ascending. */
  readonly layers: readonly number[];
}

/** The properties of a model that decide its groups. */
type Windows = Pick<ModelConfig, 'layerCount' | 'slidingWindow'>;

/**
 * Splits the layers of a model into KV groups, as vLLM does. All groups have blocks of equal bytes from one pool, so a
 * group has as many layers as the model has of its rarer kind. Groups with full attention come first.
 *
 *   kind of layer      w w w F w w w F         F: full attention, w: window
 *   group              1 2 3 0 1 2 3 0         two layers in each of four groups
 *
 * Neighbouring layers are in different groups, so that a stage of a pipeline has about as many layers of each group.
 * The last layer of a block is unused in some groups if the layers cannot be divided equally.
 */
export function layerGroups({ layerCount, slidingWindow }: Windows): readonly LayerGroup[] {
  const windowed = slidingWindow?.layers ?? [];
  const full = Array.from({ length: layerCount }, (_, layer) => layer).filter((layer) => !windowed.includes(layer));
  const counts = [full.length, windowed.length].filter((count) => count > 0);
  const [fewest, most] = [Math.min(...counts), Math.max(...counts)];
  // If the kinds are nearly equally frequent, some unused memory costs less than more groups.
  const size = most < 1.25 * fewest ? most : fewest;
  return [...split(full, size, undefined), ...split(windowed, size, slidingWindow?.window)];
}

function split(layers: readonly number[], size: number, window: number | undefined): LayerGroup[] {
  const count = Math.ceil(layers.length / size);
  return Array.from({ length: count }, (_, group) => ({
    window,
    layers: layers.filter((_, i) => i % count === group),
  }));
}

/** The groups with only the layers of a stage. A group may have none. */
function groupsOf(config: Windows, stage: PipelineStage): readonly LayerGroup[] {
  const isOwn = (layer: number): boolean => layer >= stage.firstLayer && layer < stage.endLayer;
  return layerGroups(config).map(({ window, layers }) => ({ window, layers: layers.filter(isOwn) }));
}

/** Where a layer's KV is, and how much of it the layer reads. */
export interface LayerKv {
  /** The KV group: the index of its block table. */
  readonly group: number;
  /** The layer's index among the layers of a block. */
  readonly place: number;
  readonly window: number | undefined;
}

/** The KV of a stage's layers, in their order. */
export function layersKv(config: Windows, stage: PipelineStage): readonly LayerKv[] {
  const byLayer = new Map<number, LayerKv>();
  for (const [group, { window, layers }] of groupsOf(config, stage).entries())
    for (const [place, layer] of layers.entries()) byLayer.set(layer, { group, place, window });
  return layersOf(stage).map((layer) => byLayer.get(layer)!);
}

/** The specification of a stage's groups for the KV cache. */
export function groupSpecs(config: Windows, stage: PipelineStage, blockSize: TokenCount): readonly KvGroupSpec[] {
  return groupsOf(config, stage).map(({ window, layers }) =>
    window === undefined
      ? { kind: 'full', blockSize, layers }
      : { kind: 'window', blockSize, layers, window: tokenCount(window) },
  );
}

/** The layout of a stage's blocks, which all groups share. */
export function kvLayout(
  config: Windows & Pick<ModelConfig, 'headCountKv' | 'headDim'>,
  stage: PipelineStage,
  { blockSize, kvType }: { readonly blockSize: number; readonly kvType: KvType },
): KvLayout {
  const { headCountKv, headDim } = config;
  const layerCount = Math.max(...groupsOf(config, stage).map(({ layers }) => layers.length));
  return { type: kvType, layerCount, blockSize, headCountKv, headDim };
}
