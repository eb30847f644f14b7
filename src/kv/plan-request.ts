import { assert } from '../base/assert.ts';
import { NULL_BLOCK } from '../core/ids.ts';
import { dropParked, releasePage } from './coverage.ts';
import type { GroupProposal } from './group.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { planSpans } from './planner.ts';

/** Asks the planner: what is this request to compute, if everything that others compute for it arrives? */
export function planRequest(parts: KvParts, groups: readonly GroupProposal[], request: KvRequest): void {
  readTables(parts, groups, request);
  planSpans(request.tokens.length, groups, request.spans);
  request.nextSpan = 0;
  request.nextToken = 0;
  request.needsPlan = false;
  collectAwaited(parts, request);
}

/** Plans again from what is there now; lets go of what the new plan does not use. */
export function replanRequest(parts: KvParts, proposals: readonly GroupProposal[], request: KvRequest): void {
  dropParked(parts, request);
  planRequest(parts, proposals, request);
  const { groups, residency, computing } = parts;
  for (let g = 0; g < groups.length; g++) {
    if (groups[g]!.takesAllAtOnce) continue;
    const proposal = proposals[g]!;
    groups[g]!.strike(proposal, request.spans);
    const table = request.tables[g]!;
    for (let block = request.firstHeld[g]!; block < table.length; block++) {
      const page = table.at(block);
      if (page === NULL_BLOCK) continue;
      const start = block * proposal.blockSize;
      const end = start + proposal.blockSize;
      const mine = residency.isOwnedBy(page, request.slot);
      if (proposal.pages[block] === NULL_BLOCK && !(mine && request.spans.overlaps(start, end))) {
        releasePage(parts, request, g, block, page);
        table.set(block, NULL_BLOCK);
      } else if (mine && computing.has(page)) {
        // Since the last plan KV was lost, but none came from elsewhere: what was to be computed still is.
        const isKept = request.spans.covers(start + residency.validTo[page]!, end);
        assert(isKept, `page ${page} was promised to others, and the new plan does not fill it`);
      }
    }
  }
}

/** What is valid for a request, by its tables; what others are filling for it counts as if it were. */
export function readTables(parts: KvParts, groups: readonly GroupProposal[], request: KvRequest): void {
  const { residency } = parts;
  for (let g = 0; g < groups.length; g++) {
    const proposal = groups[g]!;
    const table = request.tables[g]!;
    proposal.reset(table.length);
    for (let block = request.firstHeld[g]!; block < table.length; block++) {
      const page = table.at(block);
      if (page === NULL_BLOCK) continue;
      const mine = residency.isOwnedBy(page, request.slot);
      proposal.set(block, page, mine ? residency.validTo[page]! : proposal.blockSize);
    }
  }
}

/** The position that waits for another request's rows: none of this request's rows from there on can be computed yet. */
export function awaitedFrom({ residency }: KvParts, request: KvRequest): number {
  for (; request.nextAwaited < request.awaited.length; request.nextAwaited++) {
    const { page, start, blockSize } = request.awaited[request.nextAwaited]!;
    if (residency.isOwned(page) && residency.plannedTo[page] !== blockSize) return start;
  }
  return Infinity;
}

function collectAwaited({ residency, spec }: KvParts, request: KvRequest): void {
  request.awaited.length = 0;
  request.nextAwaited = 0;
  for (let g = 0; g < request.tables.length; g++) {
    const { blockSize } = spec.groups[g]!;
    const table = request.tables[g]!;
    for (let block = request.firstHeld[g]!; block < table.length; block++) {
      const page = table.at(block);
      if (page === NULL_BLOCK || !residency.isOwned(page) || residency.isOwnedBy(page, request.slot)) continue;
      request.awaited.push({ page, start: block * blockSize, blockSize });
    }
  }
  if (request.tables.length > 1) request.awaited.sort((a, b) => a.start - b.start);
}
