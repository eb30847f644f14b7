import type { ArrivedBlock, TransferId } from '../src/connector/connector.ts';
import type { BlockId } from '../src/core/ids.ts';
import type { StoredBlock } from './fake-runner.ts';
import type { RankLoad } from './rank-load.ts';

/**
 * Blocks of async loads that arrive before their load is decided. The id of the load decides which blocks, so other random numbers of a
 * seed stay the same. After it has arrived, no I/O writes the block.
 */
export class EarlyBlocks {
  readonly #blocks = new Map<TransferId, ReadonlyMap<BlockId, StoredBlock>>();
  readonly #reported = new Set<RankLoad>();

  has(transfer: TransferId, block: BlockId): boolean {
    return this.#blocks.get(transfer)?.has(block) === true;
  }

  /** The blocks that arrive now. `parts`: the load on all ranks. Returns blocks once per load. */
  arrive(parts: readonly RankLoad[]): ReadonlyMap<BlockId, StoredBlock> {
    const [{ job, content } = { job: undefined, content: undefined }] = parts;
    if (job === undefined || content === undefined || job.mode !== 'async' || job.transfer % 3 === 2) return none;
    if (
      this.#blocks.has(job.transfer) ||
      parts.some(({ isSilent, isDecided, hasDied }) => isSilent || isDecided || hasDied)
    )
      return none;
    const good = job.blocks
      .map(({ block }) => block)
      .filter((block) => parts.every((part) => part.content.has(block) && !part.failed.has(block)));
    const chosen = job.transfer % 3 === 0 ? good.slice(0, 1) : good.slice(0, -1);
    const blocks = new Map(chosen.map((block) => [block, content.get(block)!]));
    this.#blocks.set(job.transfer, blocks);
    return blocks;
  }

  /** The report of a rank with these loads. Each rank reports a block once. */
  reportOf(loads: readonly RankLoad[]): ArrivedBlock[] {
    return loads.flatMap((load) => {
      const blocks = this.#blocks.get(load.job.transfer);
      if (blocks === undefined || load.isDecided || load.hasDied || this.#reported.has(load)) return [];
      this.#reported.add(load);
      return [...blocks.keys()].map((block) => ({ transfer: load.job.transfer, block }));
    });
  }
}

const none: ReadonlyMap<BlockId, StoredBlock> = new Map();
