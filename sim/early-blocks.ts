import type { BlockId } from '../src/core/ids.ts';
import type { RankLoad } from './rank-load.ts';

/**
 * The blocks of an async load that arrive on a rank before the load is decided. The id of the load decides which blocks. After a block
 * has arrived, no I/O writes it.
 */
export function earlyBlocksOf({ job, content, failed, isSilent, isDecided }: RankLoad): readonly BlockId[] {
  if (job.mode !== 'async' || job.transfer % 3 === 2 || isSilent || isDecided) return none;
  const good = job.blocks.map(({ block }) => block).filter((block) => content.has(block) && !failed.has(block));
  return job.transfer % 3 === 0 ? good.slice(0, 1) : good.slice(0, -1);
}

const none: readonly never[] = [];
