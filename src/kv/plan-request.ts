import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import { dropParked, releasePage } from './coverage.ts';
import type { GroupProposal } from './group.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';
import { breakPromise } from './ownership.ts';
import { planSpans } from './planner.ts';
import { takeDuplicates } from './take-duplicates.ts';

/** Asks the planner: what is this request to compute, if everything that others compute for it arrives? */
export function planRequest(parts: KvParts, groups: readonly GroupProposal[], request: KvRequest): void {
  readTables(parts, groups, request);
  setSpans(groups, request);
  collectAwaited(parts, request);
}

/** Plans again from what is there now: lets go of what the new plan does not use, takes back what it can use again. */
export function replanRequest(parts: KvParts, proposals: readonly GroupProposal[], request: KvRequest): void {
  dropParked(parts, request);
  readTables(parts, proposals, request);
  if (parts.enablePrefixCaching) findAgain(parts, proposals, request);
  setSpans(proposals, request);
  for (let g = 0; g < parts.groups.length; g++) {
    if (parts.groups[g]!.takesAllAtOnce) continue;
    parts.groups[g]!.strike(proposals[g]!, request.spans);
    settle(parts, proposals[g]!, request, g);
  }
  collectAwaited(parts, request);
}

function setSpans(groups: readonly GroupProposal[], request: KvRequest): void {
  planSpans(request.tokens.length, groups, request.spans);
  request.nextSpan = 0;
  request.nextToken = 0;
  request.needsPlan = false;
}

/** What a window or a state had let go may still be published, and what is lost in one page be in another. (Not what others are computing: they may wait for us.) */
function findAgain(parts: KvParts, proposals: readonly GroupProposal[], request: KvRequest): void {
  for (let g = 0; g < proposals.length; g++) {
    const proposal = proposals[g]!;
    if (parts.groups[g]!.takesAllAtOnce) {
      takeDuplicates(parts, proposal, request, g);
      continue;
    }
    const chain = request.chains[g]!;
    chain.extend(request.tokens);
    for (let block = 0; block < Math.min(proposal.blockCount, chain.count); block++) {
      if (proposal.pages[block] !== NULL_BLOCK) continue;
      const page = parts.published.find(g, chain.words, block);
      if (page !== NULL_BLOCK) proposal.set(block, page, proposal.blockSize);
    }
  }
}

/** Makes the table of a group what the struck proposal says; pages that the plan's rows go on filling stay. */
function settle(parts: KvParts, proposal: GroupProposal, request: KvRequest, g: number): void {
  const { residency, computing, pool } = parts;
  const { blockSize } = proposal;
  const table = request.tables[g]!;
  for (let block = 0; block < table.length; block++) {
    const wanted = proposal.pages[block] as BlockId;
    const page = table.at(block);
    if (page === NULL_BLOCK && wanted !== NULL_BLOCK) {
      pool.reference(wanted);
      table.set(block, wanted);
      request.firstHeld[g] = Math.min(request.firstHeld[g]!, block);
    }
    if (page === NULL_BLOCK) continue;
    const start = block * blockSize;
    const mine = residency.isFilledBy(page, request.slot);
    if (wanted === NULL_BLOCK && !(mine && request.spans.overlaps(start, start + blockSize))) {
      releasePage(parts, request, { group: g, index: block, page });
      table.set(block, NULL_BLOCK);
    } else if (
      mine &&
      computing.has(page) &&
      !request.spans.covers(start + residency.validTo[page]!, start + blockSize)
    )
      breakPromise(parts, request, { group: g, index: block, page });
  }
}

/** What is valid for a request, by its tables; what others or transfers are filling for it counts as if it were. */
export function readTables(parts: KvParts, groups: readonly GroupProposal[], request: KvRequest): void {
  const { residency } = parts;
  for (let g = 0; g < groups.length; g++) {
    const proposal = groups[g]!;
    const table = request.tables[g]!;
    proposal.reset(table.length);
    for (let block = request.firstHeld[g]!; block < table.length; block++) {
      const page = table.at(block);
      if (page === NULL_BLOCK) continue;
      const mine = residency.isFilledBy(page, request.slot);
      proposal.set(block, page, mine ? residency.validTo[page]! : proposal.blockSize);
    }
  }
}

/** The position that waits for another request's rows, or for a load: none of this request's rows from there on can be computed yet. */
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
      if (page === NULL_BLOCK || !residency.isOwned(page) || residency.isFilledBy(page, request.slot)) continue;
      request.awaited.push({ page, start: block * blockSize, blockSize });
    }
  }
  if (request.tables.length > 1) request.awaited.sort((a, b) => a.start - b.start);
}
