import { expect, test } from 'vitest';
import { type BlockId, blockIndex, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import { DIGEST_WORDS } from './block-hash.ts';
import { BlockPool } from './block-pool.ts';
import { PrefixIndex } from './prefix-index.ts';

function makePool(blockCount: number) {
  const index = new PrefixIndex(blockCount);
  const pool = new BlockPool(blockCount, index);
  let keys = 0;
  const cacheBlock = (block: BlockId) =>
    index.insert(block, groupIndex(0), new Uint32Array(DIGEST_WORDS).fill(++keys), blockIndex(0));
  return { pool, index, cacheBlock };
}
const take = (pool: BlockPool, count: number) => Array.from({ length: count }, () => pool.allocate());

test('the pool allocates each block once, except the null block', () => {
  const { pool } = makePool(5);
  expect(take(pool, 4)).toEqual([1, 2, 3, 4]);
  expect(pool.available).toBe(0);
  expect(() => pool.allocate()).toThrow('no block is available');
  pool.checkInvariants();
});

test('the pool allocates free blocks first, then cached blocks in the order of their release', () => {
  const { pool, cacheBlock } = makePool(5);
  const [a, b, c, d] = take(pool, 4) as [BlockId, BlockId, BlockId, BlockId];
  for (const block of [a, b, c]) cacheBlock(block);
  // A request with the blocks a, b releases its last block first, so the prefix a stays cached longer.
  pool.release(b);
  pool.release(a);
  pool.release(c);
  pool.release(d);
  expect(pool.cached).toBe(3);
  pool.checkInvariants();
  expect(take(pool, 4)).toEqual([d, b, a, c]);
  expect(pool.cached).toBe(0);
});

test('a reference keeps a cached block, and an allocated block is evicted from the index', () => {
  const { pool, index, cacheBlock } = makePool(3);
  const [a, b] = take(pool, 2) as [BlockId, BlockId];
  cacheBlock(a);
  cacheBlock(b);
  pool.release(a);
  pool.release(b);
  pool.reference(a);
  expect(pool.available).toBe(1);
  expect(pool.allocate()).toBe(b);
  expect(index.has(b)).toBe(false);
  expect(index.has(a)).toBe(true);
  pool.checkInvariants();
});

test('I5: a block is not allocated before each of its pins is removed', () => {
  const { pool } = makePool(2);
  const block = pool.allocate();
  pool.pin(block);
  pool.pin(block);
  pool.release(block);
  expect(pool.available).toBe(0);
  pool.unpin(block);
  expect(pool.available).toBe(0);
  pool.checkInvariants();
  pool.unpin(block);
  expect(pool.allocate()).toBe(block);
});

test('a cached block without references can be pinned', () => {
  const { pool, cacheBlock } = makePool(2);
  const block = pool.allocate();
  cacheBlock(block);
  pool.release(block);
  pool.pin(block);
  expect([pool.available, pool.cached]).toEqual([0, 0]);
  pool.unpin(block);
  expect([pool.available, pool.cached]).toEqual([1, 1]);
  pool.checkInvariants();
});

test('a cached block that is evicted is the next one to be allocated', () => {
  const { pool, index, cacheBlock } = makePool(3);
  const [a, b] = take(pool, 2) as [BlockId, BlockId];
  cacheBlock(a);
  cacheBlock(b);
  pool.release(a);
  pool.release(b);
  pool.evict(b);
  expect(index.has(b)).toBe(false);
  pool.checkInvariants();
  expect(pool.cached).toBe(1);
  expect(pool.allocate()).toBe(b);
});

test('the pool rejects calls that would make its counts wrong', () => {
  const { pool } = makePool(3);
  const block = pool.allocate();
  pool.release(block);
  expect(() => pool.release(block)).toThrow('no reference');
  expect(() => pool.unpin(block)).toThrow('not pinned');
  expect(() => pool.reference(block)).toThrow('is free');
  expect(() => pool.reference(NULL_BLOCK)).toThrow('null block');
});

test('blocks that waiting requests want are evicted after other cached blocks, and in their old order when no request wants them', () => {
  const { pool, cacheBlock } = makePool(7);
  const blocks = take(pool, 6) as BlockId[];
  const wanted = new Set([blocks[0], blocks[1], blocks[3]]);
  pool.isWanted = (block) => wanted.has(block);
  for (const block of blocks.slice(0, 5)) cacheBlock(block);
  for (const block of blocks) pool.release(block);
  expect(take(pool, 2)).toEqual([blocks[5], blocks[2]]);
  expect([pool.wantedCount, pool.available, pool.cached]).toEqual([2, 4, 4]);
  pool.checkInvariants();
  wanted.clear();
  // From the beginning of the request to its end: the end was released first.
  pool.notWanted(blocks[1]!);
  pool.notWanted(blocks[0]!);
  expect(pool.wantedCount).toBe(0);
  pool.checkInvariants();
  expect(take(pool, 4)).toEqual([blocks[0], blocks[1], blocks[3], blocks[4]]);
});

test('wanted blocks are evicted if there are no others, but before protected ones', () => {
  const { pool, cacheBlock } = makePool(4);
  const blocks = take(pool, 3) as [BlockId, BlockId, BlockId];
  for (const block of blocks) cacheBlock(block);
  pool.isProtected = (block) => block === blocks[0];
  pool.isWanted = () => true;
  for (const block of blocks) pool.release(block);
  expect(take(pool, 3)).toEqual([blocks[1], blocks[2], blocks[0]]);
  expect(pool.protectedEvictions).toBe(1);
});
