import type { BlockId } from '../src/core/ids.ts';
import { BlockPool } from '../src/kv/block-pool.ts';

/**
 * A page that the pool hands out means nothing until it is filled. The world destroys its content, as another program's use of
 * the memory would: what is true in a page afterwards was put there for the request that has it, and is no leftover.
 */
let listener: ((block: BlockId) => void) | undefined;
const { allocate } = BlockPool.prototype;
BlockPool.prototype.allocate = function (this: BlockPool): BlockId {
  const block = allocate.call(this);
  listener?.(block);
  return block;
};

/** Runs `run`, in which `onHandedOut` is told of every page that a pool hands out. */
export function onAllocation(onAllocate: (block: BlockId) => void, run: () => void): void {
  const before = listener;
  listener = onAllocate;
  try {
    run();
  } finally {
    listener = before;
  }
}
