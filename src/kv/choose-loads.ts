import { type BlockIndex, blockIndex, blockIndexOf, NULL_BLOCK } from '../core/ids.ts';
import type { GroupProposal } from './group.ts';
import type { SpanList } from './span-list.ts';

/**
 * Of the blocks that a connector can load, keeps those that computing `spans` needs. A scheduled token reads one of
 * their tokens, and that token is not scheduled. Without the other blocks, the spans are the same. O(blocks).
 *
 *   spans    ......^^^^......^^^^      a full group needs all tokens before and between the spans,
 *   window 3 ....##........##          a window group those that the first token of a span reads,
 *   state    .....#.........#          a state group the last token before a span
 */
export function chooseLoads(group: GroupProposal, spans: SpanList): void {
  const { external, blockSize, indexCount } = group;
  let index = blockIndex(0);
  for (let i = 0; i < spans.count; i++) {
    const start = spans.start(i);
    // A span that starts within a block starts from a running state.
    if (group.kind === 'state' && start % blockSize !== 0) continue;
    const first = Math.max(firstNeeded(group, start), i === 0 ? 0 : spans.end(i - 1));
    if (first >= start) continue;
    for (const kept = blockIndexOf(first, blockSize); index < kept; index++) drop(group, index);
    index = blockIndex(Math.max(index, blockIndexOf(start - 1, blockSize) + 1));
  }
  for (; index < indexCount; index++) if (external[index] === 1) drop(group, index);
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

function drop(group: GroupProposal, index: BlockIndex): void {
  if (group.external[index] === 1) group.set(index, NULL_BLOCK, 0);
}
