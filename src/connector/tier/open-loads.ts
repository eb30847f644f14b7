import type { RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { BlockLoadFailure, LoadBlock, LoadJob, TransferId } from '../connector.ts';

export interface FailedBlock {
  readonly requestId: RequestId;
  readonly key: BlockKey;
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
      const key = load?.blocks.find((candidate) => candidate.block === block)?.key;
      return load === undefined || key === undefined ? [] : [{ requestId: load.requestId, key }];
    });
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
