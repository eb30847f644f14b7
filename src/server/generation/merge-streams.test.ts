import { describe, expect, it } from 'vitest';
import { mergeStreams } from './merge-streams.ts';

async function collect<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of stream) items.push(item);
  return items;
}

/** Yields 0 to `count - 1`, each after a turn of the event loop, and logs each item. */
function counter(count: number, log: string[], name: string, failAt = Number.POSITIVE_INFINITY) {
  async function* count_(): AsyncGenerator<number> {
    try {
      for (let i = 0; i < count; i++) {
        await new Promise(setImmediate);
        if (i === failAt) throw new Error(`${name} fails`);
        log.push(`${name}${i}`);
        yield i;
      }
    } finally {
      log.push(`${name} closed`);
    }
  }
  return count_;
}

describe('mergeStreams', () => {
  it('yields every item once, in the order of its source', async () => {
    const log: string[] = [];
    const merged = await collect(mergeStreams([counter(3, log, 'a'), counter(5, log, 'b'), counter(0, log, 'c')]));
    for (const [source, count] of [3, 5, 0].entries()) {
      const mine = merged.filter((item) => item.source === source).map((item) => item.value);
      expect(mine).toEqual(Array.from({ length: count }, (_, i) => i));
    }
    expect(merged).toHaveLength(8);
  });

  it('requests at most one item of a source in advance', async () => {
    const log: string[] = [];
    const merged = mergeStreams([counter(9, log, 'a'), counter(9, log, 'b')]);
    await merged.next();
    for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate);
    expect(log).toHaveLength(2);
    await merged.return();
  });

  it('closes every source when the reader leaves', async () => {
    const log: string[] = [];
    for await (const _ of mergeStreams([counter(9, log, 'a'), counter(9, log, 'b')])) break;
    expect(new Set(log.filter((line) => line.endsWith('closed')))).toEqual(new Set(['a closed', 'b closed']));
  });

  it('ends with the first error and closes the other sources', async () => {
    const log: string[] = [];
    await expect(collect(mergeStreams([counter(9, log, 'a', 2), counter(9, log, 'b')]))).rejects.toThrow('a fails');
    expect(new Set(log.filter((line) => line.endsWith('closed')))).toEqual(new Set(['a closed', 'b closed']));
  });

  it('ends at once without sources', async () => {
    expect(await collect(mergeStreams([]))).toEqual([]);
  });
});
