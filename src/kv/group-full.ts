import { NULL_BLOCK } from '../core/ids.ts';
import type { FullAttentionGroup } from '../core/kv-spec.ts';
import type { GroupProposal, KvGroup } from './group.ts';
import type { KvRequest } from './kv-request.ts';

/** Every token's KV is kept for as long as the request runs; any published block of its past is of use, holes or not. */
export class FullGroup implements KvGroup {
  readonly #index: number;
  readonly #blockSize: number;

  constructor(index: number, spec: FullAttentionGroup) {
    this.#index = index;
    this.#blockSize = spec.blockSize;
  }

  freshPages(proposal: GroupProposal): number {
    let fresh = 0;
    for (let block = 0; block < proposal.blockCount; block++) if (proposal.pages[block] === NULL_BLOCK) fresh++;
    return fresh;
  }

  missingPages(request: KvRequest): number {
    return this.pagesMax(request.tokens.length) - request.tables[this.#index]!.length;
  }

  pagesMax(tokenCount: number): number {
    return Math.ceil(tokenCount / this.#blockSize);
  }
}
