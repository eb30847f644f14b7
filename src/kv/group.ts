import { type BlockId, type BlockIndex, NULL_BLOCK } from '../core/ids.ts';
import type { KvGroupSpec } from '../core/kv-spec.ts';
import type { GroupValidity } from './planner.ts';
import type { SpanList } from './span-list.ts';

/**
 * The rules of one KV group: which blocks a request needs, and how long. The cache calls all kinds of groups through
 * this interface.
 */
export interface KvGroup {
  /** Whether admission allocates blocks for all tokens. If not, they are allocated when their tokens are scheduled. */
  readonly allocatesAll: boolean;
  /** Whether computed tokens need a block that the request may write although the block is valid (a running state). */
  readonly needsOwnBlock: boolean;
  /** Drops the blocks of the proposal that computing `spans` does not need. */
  dropUnneeded(proposal: GroupProposal, spans: SpanList): void;
  /**
   * The available blocks that a request with the blocks of the proposal takes at one time while it computes `spans`, at most.
   * These are blocks that it allocates or loads, and those of the proposal that are available. O(blocks).
   */
  blocksTaken(proposal: GroupProposal, spans: SpanList, isAvailable: (block: BlockId) => boolean): number;
  /** The first block index that the tokens from `position` on read. */
  firstKept(position: number): BlockIndex;
  /** The largest number of blocks that a request of `tokenCount` tokens needs at one time. */
  blocksMax(tokenCount: number): number;
}

/** Whether the request takes an available block for this place of the proposal, right at its admission. */
export function takesBlock(
  { blocks, external }: GroupProposal,
  index: number,
  isAvailable: (block: BlockId) => boolean,
): boolean {
  const block = blocks[index] as BlockId;
  return block === NULL_BLOCK ? external[index] === 1 : isAvailable(block);
}

/** A state in the middle of a block, right before the token at `position`. */
export interface RunningState {
  readonly index: BlockIndex;
  readonly block: BlockId;
  readonly position: number;
}

/** The blocks of a request in one group if it were admitted now. Scratch memory that the cache reuses. */
export class GroupProposal implements GroupValidity {
  readonly kind: 'full' | 'window' | 'state';
  readonly blockSize: number;
  readonly window: number;
  /** Block indices of the proposal: enough for all tokens of the request, also where there is no block. */
  indexCount = 0;
  /** The block found for each block index, or NULL_BLOCK. */
  blocks = new Int32Array(16);
  validTokens = new Int32Array(16);
  /** 1 where the pool has no block but a connector promised it; `validTokens` then counts the block as valid. */
  external = new Uint8Array(16);
  /** In a state group: running states of the request. `blocks` and `validTokens` have only checkpoints. */
  readonly running: RunningState[] = [];

  constructor(spec: KvGroupSpec) {
    this.kind = spec.kind;
    this.blockSize = spec.blockSize;
    this.window = spec.kind === 'window' ? spec.window : Infinity;
  }

  /** Makes room for `indexCount` block indices, with no block found. */
  reset(indexCount: number): void {
    if (indexCount > this.blocks.length) {
      const capacity = 2 ** Math.ceil(Math.log2(indexCount));
      this.blocks = new Int32Array(capacity);
      this.validTokens = new Int32Array(capacity);
      this.external = new Uint8Array(capacity);
    }
    this.indexCount = indexCount;
    this.blocks.fill(0, 0, indexCount);
    this.validTokens.fill(0, 0, indexCount);
    this.external.fill(0, 0, indexCount);
    this.running.length = 0;
  }

  set(index: BlockIndex, block: BlockId, validTokens: number): void {
    this.blocks[index] = block;
    this.validTokens[index] = validTokens;
    this.external[index] = 0;
  }

  /** A connector promised the block. A block with valid tokens in the pool is never loaded. */
  setExternal(index: BlockIndex): void {
    if (this.validTokens[index] !== 0) return;
    this.validTokens[index] = this.blockSize;
    this.external[index] = 1;
  }
}
