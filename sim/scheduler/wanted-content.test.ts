import { describe, expect, test } from 'vitest';
import type { BlockCount, TokenCount } from '../../src/core/ids.ts';
import type { KvGroupSpec } from '../../src/core/kv-spec.ts';
import type { SchedulerOptions } from '../../src/scheduler/contract.ts';
import { harness, onePoolSpec, range, shape, short } from '../harness.ts';

/**
 * A request that waits for room evicts no cached block that a request behind it will find, as long as the pool has other blocks. Blocks
 * have 16 tokens.
 */
const full: KvGroupSpec = { kind: 'full', blockSize: 16 as TokenCount, layers: [0] };
const sliding = (layer: number): KvGroupSpec => ({
  ...{ kind: 'window', blockSize: 16 as TokenCount, window: 128 as TokenCount, layers: [layer] },
});
const kinds = [
  { what: 'full attention', groups: [full], blocks: 20, kept: 32 },
  { what: 'full attention and two windows', groups: [full, sliding(1), sliding(2)], blocks: 66, kept: 64 },
];

const withGroups = (groups: readonly KvGroupSpec[], blocks: number, options: Partial<SchedulerOptions> = {}) =>
  harness(blocks, { maxNumBatchedTokens: 512, maxNumSeqs: 1, ...options }, 16, {
    ...onePoolSpec(blocks, 16),
    groups,
    blockCount: (blocks + 1) as BlockCount,
  });

describe.each(kinds)('with $what', ({ groups, blocks, kept }) => {
  const prefix = range(128, 1000);
  /** The pool has the prefix, then the blocks of another request, and then no free block for a long request. */
  function filled() {
    const world = withGroups(groups, blocks);
    world.scheduler.add(short('first', prefix, 1));
    world.drain();
    world.scheduler.add(short('second', range(100, 2000), 1));
    world.drain();
    return world;
  }
  const long = short('long', range(190, 3000), 1);
  const hit = short('hit', [...prefix, ...range(5, 4000)], 1);

  test('the next request keeps the prefix that the request behind it will find', () => {
    const { scheduler, step } = filled();
    scheduler.add(long);
    scheduler.add(hit);
    expect(shape(step())).toEqual(['long: 0-190']);
    expect(shape(step())).toEqual(['hit: 128-133']);
  });

  test('a request that ends before its admission keeps nothing', () => {
    const { scheduler, step } = filled();
    scheduler.add(long);
    scheduler.add(hit);
    scheduler.abort(hit.id);
    expect(shape(step())).toEqual(['long: 0-190']);
    scheduler.add(hit);
    expect(shape(step())).toEqual([`hit: ${kept}-133`]);
  });
});

test('a request is admitted even if it must evict the hits of others', () => {
  const { scheduler, step } = withGroups([full], 20);
  scheduler.add(short('first', range(300), 1));
  step();
  scheduler.add(short('long', range(300, 3000), 1));
  scheduler.add(short('hit', range(300), 1));
  expect(shape(step())).toEqual(['long: 0-300']);
  // The hit's first blocks are evicted last: one block of 20 was left.
  expect(shape(step())).toEqual(['hit: 16-300']);
});

test('without a prefix cache nothing is kept', () => {
  const { scheduler, drain, finished } = withGroups([full], 20, { enablePrefixCaching: false });
  for (const id of ['a', 'b', 'c']) scheduler.add(short(id, range(200), 3));
  drain();
  expect(finished.size).toBe(3);
});
