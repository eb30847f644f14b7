import type { KvGroupSpec } from '../core/kv-spec.ts';
import type { KvRequest } from './kv-request.ts';
import type { GroupValidity } from './planner.ts';

/**
 * The rules of one KV group: how many pages a request needs in it. The cache asks all groups in the same way and
 * knows none by name.
 */
export interface KvGroup {
  /** Pages to allocate when the request is admitted with what the proposal has found. */
  freshPages(proposal: GroupProposal): number;
  /** Pages that the request's table lacks before all its tokens can be computed. */
  missingPages(request: KvRequest): number;
  /** Pages that a request of so many tokens holds at most. */
  pagesMax(tokenCount: number): number;
}

/** What a request would hold in one group if it were admitted now; scratch memory of the cache, reused. */
export class GroupProposal implements GroupValidity {
  readonly kind: 'full' | 'window' | 'state';
  readonly blockSize: number;
  readonly window: number;
  blockCount = 0;
  /** The page found for each logical block, NULL_BLOCK where there is none. */
  pages = new Int32Array(16);
  from = new Int32Array(16);
  to = new Int32Array(16);

  constructor(spec: KvGroupSpec) {
    this.kind = spec.kind;
    this.blockSize = spec.blockSize;
    this.window = spec.kind === 'window' ? spec.window : Infinity;
  }

  /** Room for `blockCount` blocks, nothing found. */
  reset(blockCount: number): void {
    if (blockCount > this.pages.length) {
      const capacity = 2 ** Math.ceil(Math.log2(blockCount));
      this.pages = new Int32Array(capacity);
      this.from = new Int32Array(capacity);
      this.to = new Int32Array(capacity);
    }
    this.blockCount = blockCount;
    this.pages.fill(0, 0, blockCount);
    this.from.fill(0, 0, blockCount);
    this.to.fill(0, 0, blockCount);
  }

  set(block: number, page: number, from: number, to: number): void {
    this.pages[block] = page;
    this.from[block] = from;
    this.to[block] = to;
  }
}
