import type { GroupProposal } from './group.ts';
import type { SpanList } from './span-list.ts';

/**
 * Of the blocks that could be loaded, keeps those that computing `spans` relies on: those with a token that is not
 * computed and that a computed one needs. All others would change nothing: without them the spans are the same.
 * O(blocks).
 *
 *   spans    ......^^^^......^^^^      a full group relies on all that lies between,
 *   window 3 ....##........##          a window on what the first token of a span sees of it,
 *   state    .....#.........#          a state on what lies right before a span
 */
export function chooseLoads(group: GroupProposal, spans: SpanList): void {
  const { external, blockSize, blockCount } = group;
  let index = 0;
  for (let i = 0; i < spans.count; i++) {
    const start = spans.start(i);
    const first = Math.max(firstNeeded(group, start), i === 0 ? 0 : spans.end(i - 1));
    if (first >= start) continue;
    for (const kept = Math.floor(first / blockSize); index < kept; index++) drop(group, index);
    index = Math.max(index, Math.floor((start - 1) / blockSize) + 1);
  }
  for (; index < blockCount; index++) if (external[index] === 1) drop(group, index);
}

export function loadsOf({ external, blockCount }: GroupProposal): number {
  let loads = 0;
  for (let index = 0; index < blockCount; index++) loads += external[index]!;
  return loads;
}

function firstNeeded({ kind, window }: GroupProposal, position: number): number {
  switch (kind) {
    case 'full':
      return 0;
    case 'window':
      return Math.max(position - window + 1, 0);
    case 'state':
      return Math.max(position - 1, 0);
  }
}

function drop(group: GroupProposal, index: number): void {
  if (group.external[index] === 1) group.set(index, 0, 0);
}
