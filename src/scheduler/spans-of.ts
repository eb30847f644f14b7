import type { BlockPlace } from '../core/block-place.ts';
import type { Span } from '../core/step.ts';
import type { KvCache } from '../kv/kv-cache.ts';

/** The tokens of these blocks in any group, ascending and disjoint. */
export function spansOf({ parts: { spec } }: KvCache, blocks: readonly BlockPlace[]): Span[] {
  const spans: { start: number; end: number }[] = [];
  const ranges = blocks.map(({ group, index }) => {
    const { blockSize } = spec.groups[group]!;
    return { start: index * blockSize, end: (index + 1) * blockSize };
  });
  for (const range of ranges.sort((a, b) => a.start - b.start)) {
    const last = spans[spans.length - 1];
    if (last !== undefined && range.start <= last.end) last.end = Math.max(last.end, range.end);
    else spans.push(range);
  }
  return spans as Span[];
}
