import { assert } from '../base/assert.ts';
import { type TokenCount, tokenCount } from '../core/ids.ts';
import type { KvGroupSpec } from '../core/kv-spec.ts';
import { headsOfKind, kvLayerOf } from '../ggml/layer-shapes.ts';
import type { ModelConfig } from '../ggml/model-config.ts';
import { layersOf, type PipelineStage } from './contract.ts';
import { blockBytes, type KvLayout, type KvType, kvRowBytes, partCount, rowElements } from './kv-memory.ts';

/** Layers whose KV or states are in the same blocks, and which read the same tokens. */
export interface LayerGroup {
  readonly kind: KvGroupSpec['kind'];
  /** Tokens that a token sees, itself included, if the kind is `window`. */
  readonly window: number | undefined;
  /** Tokens of a block; in a state group, the tokens between two checkpoints. */
  readonly blockSize: number;
  /** Their indices in the model, ascending. */
  readonly layers: readonly number[];
}

/** The properties of a model that decide its groups. */
type Layers = Pick<
  ModelConfig,
  | 'layerCount'
  | 'slidingWindow'
  | 'states'
  | 'networkLayers'
  | 'headCountKv'
  | 'headDim'
  | 'latent'
  | 'sharedKvFrom'
  | 'isEncoder'
>;

/** What users choose about blocks. */
export interface BlockOptions {
  /** Tokens of a block of K and V. In models with large states, blocks have a multiple of it. */
  readonly blockSize: number;
  readonly kvType: KvType;
  /** Tokens between two checkpoints of states, rounded up to whole blocks of K and V; default: `checkpointBlocks`. */
  readonly checkpointTokens?: number | undefined;
}

/** Each group needs a block table per request, so states are not divided into more groups than this. */
const stateGroupsMax = 12;
/** The largest memory of the blocks of all states, relative to the states. */
const stateRoomMax = 1.25;
/** If checkpoints are large, the default is a checkpoint after about so many tokens. */
const defaultCheckpointTokens = 512;

/**
 * Splits the layers of a model into KV groups, as vLLM does. All groups have blocks of equal bytes from one pool, so a
 * group of layers with attention has as many layers as the model has of its rarer kind. Groups with full attention come
 * first, then groups with a window, then groups of states.
 *
 *   kind of layer      w w w F w w w F         F: full attention, w: window
 *   group              1 2 3 0 1 2 3 0         two layers in each of four groups
 *
 * Neighbouring layers are in different groups, so that a stage of a pipeline has about as many layers of each group.
 * The last layer of a block is unused in some groups if the layers cannot be divided equally.
 *
 * If layers with a window have other heads, the blocks of the kind with smaller rows have more tokens. Layers that read the KV of
 * others are in no group.
 *
 * A group of states has as many layers as fit into a block. If states are large, blocks of K and V get more tokens.
 *
 * An encoder computes whole texts in one step, layer by layer. No later step reads its K and V, so all layers have the same place.
 */
export function layerGroups(config: Layers, options: BlockOptions): readonly LayerGroup[] {
  const { layerCount, slidingWindow, states, networkLayers = [], isEncoder } = config;
  if (isEncoder === true) {
    const layers = Array.from({ length: layerCount }, (_, layer) => layer);
    return [{ kind: 'full', window: undefined, blockSize: options.blockSize, layers }];
  }
  const ownCount = config.sharedKvFrom ?? layerCount;
  const windowed = (slidingWindow?.layers ?? []).filter((layer) => layer < ownCount);
  const stateLayers = states?.layers ?? [];
  const full = Array.from({ length: ownCount }, (_, layer) => layer).filter(
    (layer) => ![windowed, stateLayers, networkLayers].some((others) => others.includes(layer)),
  );
  const counts = [full.length, windowed.length].filter((count) => count > 0);
  assert(counts.length > 0, 'a model has a layer with attention');
  const [fewest, most] = [Math.min(...counts), Math.max(...counts)];
  // If the kinds are nearly equally frequent, some unused memory costs less than more groups.
  const size = most < 1.25 * fewest ? most : fewest;
  const fullSets = split(full, Math.ceil(full.length / size));
  const windowSets = split(windowed, Math.ceil(windowed.length / size));
  const { blockSize, stateGroups } = fitStates(config, size, options);
  const attentionGroups = fullSets.length + windowSets.length;
  const checkpoint =
    options.checkpointTokens === undefined
      ? checkpointBlocks(blockSize, attentionGroups, stateGroups)
      : Math.ceil(options.checkpointTokens / blockSize);
  const ofFull = { kind: 'full', window: undefined, blockSize: blockSize * rowsPerUnit(config, 'full') } as const;
  const windowBlockSize = blockSize * rowsPerUnit(config, 'window');
  const ofWindow = { kind: 'window', window: slidingWindow?.window, blockSize: windowBlockSize } as const;
  return [
    ...fullSets.map((layers) => ({ ...ofFull, layers })),
    ...windowSets.map((layers) => ({ ...ofWindow, layers })),
    ...split(stateLayers, stateGroups).map(
      (layers) => ({ kind: 'state', window: undefined, blockSize: checkpoint * blockSize, layers }) as const,
    ),
  ];
}

/**
 * The smallest multiple of the block size such that the states of all layers fit into few blocks without much unused
 * memory. `size`: layers with attention in a block.
 */
function fitStates(config: Layers, size: number, { blockSize, kvType }: BlockOptions) {
  const { states } = config;
  if (states === undefined) return { blockSize, stateGroups: 0 };
  const stateBytes = stateBytesOf(config);
  const unit = size * layerBytes(config, blockSize, kvType);
  for (let multiple = 1; ; multiple++) {
    const perBlock = Math.floor((multiple * unit) / stateBytes);
    if (perBlock === 0) continue;
    const stateGroups = Math.ceil(states.layers.length / perBlock);
    const isFull = stateGroups * multiple * unit <= stateRoomMax * states.layers.length * stateBytes;
    if (stateGroups > 1 && (stateGroups > stateGroupsMax || !isFull)) continue;
    return { blockSize: multiple * blockSize, stateGroups };
  }
}

/**
 * Blocks of K and V between two checkpoints. Checkpoints then need at most a quarter of the memory of the K and V
 * between them, unless that would be too many tokens: a request that continues at a checkpoint may compute all tokens
 * up to the next checkpoint again.
 */
function checkpointBlocks(blockSize: number, attentionGroups: number, stateGroups: number): number {
  const cheap = Math.ceil((4 * stateGroups) / attentionGroups);
  return Math.min(cheap, Math.max(1, Math.floor(defaultCheckpointTokens / blockSize)));
}

/** Divides the layers among `count` groups. */
function split(layers: readonly number[], count: number): readonly (readonly number[])[] {
  return Array.from({ length: count }, (_, group) => layers.filter((_, i) => i % count === group));
}

/** Rows of this kind of layer in the smallest number of bytes that is a whole number of rows of each kind; 1 if both are equal. */
function rowsPerUnit(config: Layers, kind: 'full' | 'window'): number {
  const own = rowElements(headsOfKind(config, kind));
  const other = rowElements(headsOfKind(config, kind === 'full' ? 'window' : 'full'));
  return other / greatestCommonDivisor(own, other);
}

/** Bytes of K and V in one layer of a block of any kind. `blockSize`: before it is multiplied by `rowsPerUnit`. */
const layerBytes = (config: Layers, blockSize: number, type: KvType): number =>
  partCount({ valueInKey: config.latent?.rank }) *
  blockSize *
  rowsPerUnit(config, 'full') *
  kvRowBytes({ type, ...headsOfKind(config, 'full') });

/** Bytes of one state of one layer. */
const stateBytesOf = ({ states }: Pick<ModelConfig, 'states'>): number => 4 * (states?.elements ?? 0);

/** The groups with only the layers of a stage. A group may have none. */
function groupsOf(config: Layers, stage: PipelineStage, options: BlockOptions): readonly LayerGroup[] {
  const isOwn = (layer: number): boolean => layer >= stage.firstLayer && layer < stage.endLayer;
  return layerGroups(config, options).map((group) => ({ ...group, layers: group.layers.filter(isOwn) }));
}

/** Where a layer's KV or state is. `none`: the layer is only a network. */
export type LayerKv = AttentionKv | StateKv | { readonly kind: 'none' };

export interface AttentionKv {
  readonly kind: 'attention';
  /** The layer's index among the stage's layers with attention. */
  readonly index: number;
  /** The KV group: the index of its block table. */
  readonly group: number;
  /** The layer's index among the layers of a block. */
  readonly place: number;
  /** Tokens that a token sees; undefined: all. */
  readonly window: number | undefined;
  /** Whether the layer reads the KV of an earlier layer, and has none of its own. */
  readonly isShared?: boolean;
}

export interface StateKv {
  readonly kind: 'state';
  readonly group: number;
  /** Where the layer's state begins in a block, in bytes. */
  readonly offset: number;
  /** F32 numbers of one state. */
  readonly elements: number;
}

/** The KV and the states of a stage's layers, in their order. */
export function layersKv(config: Layers, stage: PipelineStage, options: BlockOptions): readonly LayerKv[] {
  const groups = groupsOf(config, stage, options);
  let index = 0;
  return layersOf(stage).map((layer): LayerKv => {
    if (config.networkLayers?.includes(layer) === true) return { kind: 'none' };
    const source = kvLayerOf(config, layer);
    const group = groups.findIndex(({ layers }) => layers.includes(source));
    assert(group >= 0, 'a layer is in a stage with the layer whose KV it reads');
    const { kind, window, layers } = groups[group]!;
    if (config.isEncoder === true) {
      const ofLayer = config.slidingWindow?.layers.includes(layer) === true ? config.slidingWindow.window : undefined;
      return { kind: 'attention', index: index++, group, place: 0, window: ofLayer };
    }
    const place = layers.indexOf(source);
    if (kind === 'state') {
      return { kind, group, offset: place * stateBytesOf(config), elements: config.states?.elements ?? 0 };
    }
    const own = { kind: 'attention', index: index++, group, place, window } as const;
    return source === layer ? own : { ...own, isShared: true };
  });
}

/** The specification of a stage's groups for the KV cache. */
export function groupSpecs(config: Layers, stage: PipelineStage, options: BlockOptions): readonly KvGroupSpec[] {
  return groupsOf(config, stage, options).map(({ kind, window, layers, ...group }) => {
    const blockSize: TokenCount = tokenCount(group.blockSize);
    if (kind === 'window') return { kind, blockSize, layers, window: tokenCount(window ?? 0) };
    return { kind, blockSize, layers };
  });
}

/** The layout of a stage's blocks in the group of the first layers, which has as many bytes as in all groups. */
export const kvLayout = (config: Layers, stage: PipelineStage, options: BlockOptions): KvLayout =>
  kvLayouts(config, stage, options)[0]!;

/** The layout of a stage's blocks, by group. Groups with equal heads have the same object. */
export function kvLayouts(config: Layers, stage: PipelineStage, options: BlockOptions): readonly KvLayout[] {
  const { kvType: type } = options;
  const groups = groupsOf(config, stage, options);
  const [{ kind: firstKind, blockSize: firstSize }] = groups as [LayerGroup];
  const unit = firstSize / rowsPerUnit(config, firstKind === 'window' ? 'window' : 'full');
  // A stage may have more layers of a state group than its layers with attention have room for.
  const layersOfRoom = ({ kind, layers }: LayerGroup): number =>
    kind === 'state'
      ? Math.ceil((layers.length * stateBytesOf(config)) / layerBytes(config, unit, type))
      : layers.length;
  // Nor has each stage layers with KV or a state. The blocks of the others have one place, which is unused.
  const layerCount = config.isEncoder === true ? 1 : Math.max(1, ...groups.map(layersOfRoom));
  const layoutOf = (kind: 'full' | 'window'): KvLayout => {
    const { headCountKv, headDim } = headsOfKind(config, kind);
    const blockSize = unit * rowsPerUnit(config, kind);
    return { type, layerCount, blockSize, headCountKv, headDim, valueInKey: config.latent?.rank };
  };
  const full = layoutOf('full');
  const window = config.slidingWindow?.heads === undefined ? full : layoutOf('window');
  return groups.map(({ kind }) => (kind === 'window' ? window : full));
}

/** The layout of the KV of a prediction layer, which has a block for each block of the pool. */
export const predictionLayout = (layout: KvLayout): KvLayout => ({ ...layout, layerCount: 1 });

/** Bytes of a block that a group with these layers uses. */
export function usedBytes(
  { kind, layers }: Pick<LayerGroup, 'kind' | 'layers'>,
  layout: KvLayout,
  config: Pick<ModelConfig, 'states' | 'isEncoder'>,
): number {
  if (config.isEncoder === true) return blockBytes(layout);
  return layers.length * (kind === 'state' ? stateBytesOf(config) : blockBytes({ ...layout, layerCount: 1 }));
}

const greatestCommonDivisor = (a: number, b: number): number => (b === 0 ? a : greatestCommonDivisor(b, a % b));
