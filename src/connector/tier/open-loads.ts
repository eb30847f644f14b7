import type { RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { ArrivedBlock, BlockLoadFailure, LoadBlock, LoadJob, TransferId } from '../connector.ts';
import type { LoadFailureReason } from '../reasons.ts';

export interface FailedBlock {
  readonly requestId: RequestId;
  readonly key: BlockKey;
  /** The place that promised the block. */
  readonly place: string;
  readonly reason: LoadFailureReason;
}

/** The loads that the workers have been ordered and have not reported. */
export class OpenLoads {
  readonly #loads = new Map<TransferId, LoadJob>();

  begin(load: LoadJob): void {
    this.#loads.set(load.transfer, load);
  }

  /** The blocks that a tier failed to load. A worker's death says nothing about the tier, so its blocks are not among them. */
  failedBlocks(failures: readonly BlockLoadFailure[]): FailedBlock[] {
    return failures.flatMap(({ transfer, block, reason }) => {
      const load = reason === 'workerDied' ? undefined : this.#loads.get(transfer);
      const found = load?.blocks.find((candidate) => candidate.block === block);
      if (load === undefined || found === undefined) return [];
      return [{ requestId: load.requestId, key: found.key, place: found.place, reason }];
    });
  }

  /** The blocks that have arrived before their load is over. */
  arrivedBlocks(arrived: readonly ArrivedBlock[]): LoadBlock[] {
    return arrived.flatMap(
      ({ transfer, block }) => this.#loads.get(transfer)?.blocks.find((found) => found.block === block) ?? [],
    );
  }

  /** The load is over. Returns all its blocks, also those that failed. */
  finish(transfer: TransferId): readonly LoadBlock[] {
    const blocks = this.#loads.get(transfer)?.blocks ?? [];
    this.#loads.delete(transfer);
    return blocks;
  }

  /** A load that was abandoned before it was ordered is never reported. */
  forget(requestId: RequestId): void {
    for (const [id, load] of this.#loads) if (load.requestId === requestId) this.#loads.delete(id);
  }
}
