import type { BlockKey } from '../../connector/block-key.ts';
import { planSpans } from '../../kv/planner.ts';
import { SpanList } from '../../kv/span-list.ts';

export interface PromptBlocks {
  readonly tokenCount: number;
  /** Of its full blocks. */
  readonly keys: readonly BlockKey[];
}

/**
 * The fewest tokens that must be computed beyond those that would be computed anyway, when `lost` is not valid and every
 * other full block is. The planner is asked about each prompt, with and without the loss; a token of a block that several
 * prompts share counts once. No counter of the engine goes into it.
 */
export function minimumOf(prompts: readonly PromptBlocks[], lost: ReadonlySet<BlockKey>, blockSize: number): number {
  const repaired = new Set<string>();
  for (const { tokenCount, keys } of prompts) {
    const anyway = computed(tokenCount, keys, new Set(), blockSize);
    for (const token of computed(tokenCount, keys, lost, blockSize)) {
      if (anyway.has(token)) continue;
      const key = keys[Math.floor(token / blockSize)];
      repaired.add(`${key}/${token % blockSize}`);
    }
  }
  return repaired.size;
}

function computed(
  tokenCount: number,
  keys: readonly BlockKey[],
  lost: ReadonlySet<BlockKey>,
  blockSize: number,
): Set<number> {
  const validTo = Int32Array.from(keys, (key) => (lost.has(key) ? 0 : blockSize));
  const group = { kind: 'full', blockSize, window: Infinity, blockCount: keys.length, validTo } as const;
  const spans = new SpanList();
  planSpans(tokenCount, [group], spans);
  const tokens = new Set<number>();
  for (const { start, end } of spans.toArray()) for (let token = start; token < end; token++) tokens.add(token);
  return tokens;
}
