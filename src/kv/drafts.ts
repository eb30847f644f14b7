import { assert } from '../base/assert.ts';
import { blockIndex, blockIndexOf, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import { allocateForTokens } from './coverage.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { releaseBlock, releaseSkipped } from './release.ts';

/**
 * KV of draft tokens. Their rows write to blocks of their request, but the residency does not know of them: no other
 * request reads them, and nothing is valid or cached. `keepDrafts` then counts the KV of accepted drafts, and releases
 * blocks that only rejected drafts needed. Afterwards the cache is as if the accepted tokens had been computed one by one (I1, I4).
 *
 *   tokens        . . . . n-1                 [n-1, n) is scheduled
 *   drafts                    d d d d         rows of the same step
 *   accepted                  d d             valid; the rest is written again before anything reads it
 */

/** Whether drafts can follow the tokens scheduled in this step: all tokens are scheduled, and nothing needs repair. */
export function canDraft({ groups }: KvParts, request: KvRequest): boolean {
  return (
    request.nextSpan === request.spans.count &&
    !request.hasMaskedWrites &&
    request.reserved.length === 0 &&
    request.kept.length === 0 &&
    groups.every(({ needsOwnBlock }) => !needsOwnBlock)
  );
}

/**
 * Allocates the blocks of `count` drafts after the request's tokens. Returns how many drafts have blocks: fewer if the
 * pool has no block. Drafts preempt no request.
 */
export function allocateForDrafts(parts: KvParts, request: KvRequest, count: number): number {
  const { length } = request.tokens;
  return allocateForTokens(parts, request, length, length + count) - length;
}

/**
 * The drafts at positions [from, end) are tokens of the request now, and their KV is valid; later drafts were rejected.
 * Returns the blocks that became full, per group in ascending order.
 */
export function keepDrafts(
  parts: KvParts,
  request: KvRequest,
  { from, end, onFull }: { readonly from: number; readonly end: number; readonly onFull: OnFullBlock },
): void {
  const { residency, spec } = parts;
  for (let group = groupIndex(0); group < request.tables.length; group++) {
    const { blockSize } = spec.groups[group]!;
    const table = request.tables[group]!;
    for (let index = blockIndexOf(from, blockSize); index * blockSize < end; index++) {
      const block = table.at(index);
      const before = Math.max(from - index * blockSize, 0);
      // The block was found invalid while the step was in flight: the request plans again.
      if (!residency.isFilledBy(block, request.slot) || residency.validTokens[block] !== before) {
        assert(request.needsPlan, `block ${block} has not the tokens before the drafts`);
        break;
      }
      residency.extend(block, Math.min(end - index * blockSize, blockSize));
      onFull(group, index);
    }
    for (let index = table.length - 1; index >= Math.ceil(end / blockSize); index--) {
      const block = table.at(blockIndex(index));
      if (block !== NULL_BLOCK) releaseBlock(parts, request, { group, index: blockIndex(index), block });
      table.pop();
    }
  }
  if (end > from && !request.needsPlan) releaseSkipped(parts, request, end, end);
}

type OnFullBlock = (group: ReturnType<typeof groupIndex>, index: ReturnType<typeof blockIndex>) => void;
