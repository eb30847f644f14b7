import type { ConnectorOutput, LoadJob, TransferId } from '../src/connector/connector.ts';
import type { BlockId, RequestId } from '../src/core/ids.ts';

/** Which blocks of which loads have failed, as the engine heard it. */
export class FailedLoads {
  /** Without blocks that failed because a worker died. */
  readonly #blocks = new Map<TransferId, Set<BlockId>>();
  readonly #loads = new Set<TransferId>();

  /** Reads an accepted report. `ordered`: loads by id. */
  add({ loadFailures, failedRecving }: ConnectorOutput, ordered: ReadonlyMap<TransferId, LoadJob>): void {
    for (const { transfer, block, reason } of loadFailures) this.#add(transfer, reason === 'workerDied' ? [] : [block]);
    for (const id of failedRecving)
      this.#add(
        id,
        ordered.get(id)!.blocks.map(({ block }) => block),
      );
  }

  /** Whether the block failed in a store. */
  has(load: TransferId, block: BlockId): boolean {
    return this.#blocks.get(load)?.has(block) === true;
  }

  /** The requests of these loads that have a failed block. */
  requestsOf(loads: readonly TransferId[], ordered: ReadonlyMap<TransferId, LoadJob>): ReadonlySet<RequestId> {
    return new Set(loads.filter((id) => this.#loads.has(id)).map((id) => ordered.get(id)!.requestId));
  }

  #add(load: TransferId, blocks: readonly BlockId[]): void {
    this.#loads.add(load);
    const known = this.#blocks.get(load) ?? new Set();
    this.#blocks.set(load, known);
    for (const block of blocks) known.add(block);
  }
}
