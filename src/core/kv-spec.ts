import { type BlockCount, type BlockIndex, blockIndex, blockIndexOf, type TokenCount } from './ids.ts';

/**
 * What a model needs of the KV cache. The runner makes the specification from the model, and `src/kv` follows it.
 *
 * A *group* is a set of layers whose blocks are allocated together and obey one validity rule. All groups share one
 * pool of blocks of equal size in bytes (vLLM's hybrid layout).
 */
export type KvGroupSpec = FullAttentionGroup | SlidingWindowGroup | StateGroup;

interface GroupBase {
  /** Tokens of one block of this group. */
  readonly blockSize: TokenCount;
  /** The model's layers whose KV is in this group's blocks. */
  readonly layers: readonly number[];
}

/** To compute token p, the group needs the KV of every token q < p. */
export interface FullAttentionGroup extends GroupBase {
  readonly kind: 'full';
}

/** To compute token p, the group needs the KV of every token q in [p - window + 1, p - 1]. */
export interface SlidingWindowGroup extends GroupBase {
  readonly kind: 'window';
  readonly window: TokenCount;
}

/**
 * To compute token p, the group needs the state after p - 1. It comes from a checkpoint at the end of a block, or from
 * computing p - 1 just before.
 */
export interface StateGroup extends GroupBase {
  readonly kind: 'state';
}

export interface KvCacheSpec {
  readonly groups: readonly KvGroupSpec[];
  /** Bytes of one block; equal in all groups. */
  readonly blockBytes: number;
  /** Blocks in the pool, the null block included. */
  readonly blockCount: BlockCount;
  /** Part of each block's key besides its tokens: the digest of model file, KV type, layout and numerics (I10). */
  readonly fingerprint: string;
  /**
   * Only of a rank of a model that is divided among devices: all that decides the bits on this rank's device. `fingerprint` then has the
   * devices and their layers instead, and is the same on all ranks. Keys depend on both (`PipelineExecutor`).
   */
  readonly numerics?: string;
  /**
   * How many layers the model has, if the runner can compute a chunk of a prompt a few layers at a time
   * (`SequencePlan.layers`).
   */
  readonly sliceableLayers?: number;
}

/** The first block of the group that the computation of the token at `position` reads. */
export function firstBlockRead(group: KvGroupSpec, position: number): BlockIndex {
  if (group.kind === 'full') return blockIndex(0);
  const first = group.kind === 'window' ? position - group.window + 1 : position - 1;
  return blockIndexOf(Math.max(first, 0), group.blockSize);
}
