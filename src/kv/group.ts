import type { KvGroupSpec } from '../core/kv-spec.ts';
import type { GroupValidity } from './planner.ts';
import type { SpanList } from './span-list.ts';

/**
 * The rules of one KV group: which pages a request needs in it, and until when. The cache asks all groups in the same
 * way and knows none by name.
 */
export interface KvGroup {
  /** Whether admission takes pages for all tokens; else they are taken when their rows are planned and let go behind. */
  readonly allocatesAll: boolean;
  /** Whether a row must find the page of its block writable although the block's content is valid (a running state). */
  readonly needsOwnBlock: boolean;
  /** Of the pages that the proposal has found, drops those that computing `spans` does not rely on. */
  dropUnneeded(proposal: GroupProposal, spans: SpanList): void;
  /** Fresh pages that must be available when the request is admitted with what the proposal has found. */
  newBlockCount(proposal: GroupProposal): number;
  /** The first block that is still read when the next token to be computed is at `position`. */
  firstKept(position: number): number;
  /** Pages that a request of so many tokens cannot do without at any one time. */
  blocksMax(tokenCount: number): number;
}

/** What a request would hold in one group if it were admitted now; scratch memory of the cache, reused. */
export class GroupProposal implements GroupValidity {
  readonly kind: 'full' | 'window' | 'state';
  readonly blockSize: number;
  readonly window: number;
  blockCount = 0;
  /** The page found for each logical block, NULL_BLOCK where there is none. */
  blocks = new Int32Array(16);
  validTokens = new Int32Array(16);
  /** 1 where there is no page, but a connector has said that the block could be loaded; `validTo` counts on it. */
  external = new Uint8Array(16);

  constructor(spec: KvGroupSpec) {
    this.kind = spec.kind;
    this.blockSize = spec.blockSize;
    this.window = spec.kind === 'window' ? spec.window : Infinity;
  }

  /** Room for `blockCount` blocks, nothing found. */
  reset(blockCount: number): void {
    if (blockCount > this.blocks.length) {
      const capacity = 2 ** Math.ceil(Math.log2(blockCount));
      this.blocks = new Int32Array(capacity);
      this.validTokens = new Int32Array(capacity);
      this.external = new Uint8Array(capacity);
    }
    this.blockCount = blockCount;
    this.blocks.fill(0, 0, blockCount);
    this.validTokens.fill(0, 0, blockCount);
    this.external.fill(0, 0, blockCount);
  }

  set(index: number, block: number, validTokens: number): void {
    this.blocks[index] = block;
    this.validTokens[index] = validTokens;
    this.external[index] = 0;
  }

  /** The block could be loaded. What the pool has already is never loaded. */
  setExternal(index: number): void {
    if (this.blocks[index] !== 0) return;
    this.validTokens[index] = this.blockSize;
    this.external[index] = 1;
  }
}
