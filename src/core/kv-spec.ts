import type { BlockCount, TokenCount } from './ids.ts';

/**
 * What a model needs of the KV cache, said by the runner when it has read the model, obeyed by the kv core.
 *
 * A *group* is a set of layers whose blocks are handed out together and obey one validity rule. All groups share one
 * pool of equal pages (vLLM's hybrid layout).
 */
export type KvGroupSpec = FullAttentionGroup | SlidingWindowGroup | StateGroup;

interface GroupBase {
  /** Tokens of one block of this group. */
  readonly blockSize: TokenCount;
  /** The model's layers whose KV lies in this group's blocks. */
  readonly layers: readonly number[];
}

/** To compute token p it needs the KV of every q < p. */
export interface FullAttentionGroup extends GroupBase {
  readonly kind: 'full';
}

/** To compute token p it needs the KV of q in [p - window + 1, p - 1]. */
export interface SlidingWindowGroup extends GroupBase {
  readonly kind: 'window';
  readonly window: TokenCount;
}

/** To compute token p it needs the state after p - 1: a checkpoint at the end of a block, or p - 1 computed just before. */
export interface StateGroup extends GroupBase {
  readonly kind: 'state';
}

export interface KvCacheSpec {
  readonly groups: readonly KvGroupSpec[];
  /** Bytes of one page; one block of any group fills one page. */
  readonly blockBytes: number;
  /** Pages in the pool, the null page included. */
  readonly blockCount: BlockCount;
  /** What a block's key must contain besides its tokens: hash of model, dtype, layout (I10). */
  readonly fingerprint: string;
}

/** The first block of the group that the computation of the token at `position` reads. */
export function firstBlockRead(group: KvGroupSpec, position: number): number {
  if (group.kind === 'full') return 0;
  const first = group.kind === 'window' ? position - group.window + 1 : position - 1;
  return Math.max(Math.floor(first / group.blockSize), 0);
}
