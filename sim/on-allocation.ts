import type { BlockId } from '../src/core/ids.ts';
import { BlockPool } from '../src/kv/block-pool.ts';

/**
 * The content of a newly allocated block has no meaning until a request fills the block. The world destroys the content, as another
 * use of the memory would. So valid KV in a block was written for the request that has the block; it is not left from earlier.
 */
let listener: ((block: BlockId) => void) | undefined;
const { allocate } = BlockPool.prototype;
BlockPool.prototype.allocate = function (this: BlockPool): BlockId {
  const block = allocate.call(this);
  listener?.(block);
  return block;
};

/** Calls `run`, and `onAllocate` for every block that a pool allocates meanwhile. One call at a time. */
export async function onAllocation(onAllocate: (block: BlockId) => void, run: () => Promise<void>): Promise<void> {
  const before = listener;
  listener = onAllocate;
  try {
    await run();
  } finally {
    listener = before;
  }
}
