import { assert } from '../base/assert.ts';
import {
  type BlockLoadFailure,
  type BlockSaveFailure,
  type ConnectorMetadata,
  type ConnectorOutput,
  emptyOutput,
  type LoadJob,
  type SaveJob,
  type TransferId,
} from '../connector/connector.ts';
import { type ConnectorStats, changeOfStats, sumOfStats } from '../connector/connector-stats.ts';

type Open = { isDecided: boolean; isDrained: boolean } & ({ readonly load: LoadJob } | { readonly save: SaveJob });

/**
 * The transfers of one rank that it has not reported as ended. When its process dies, no other process knows their
 * results. The loads count as failed, the saves as not stored, and all as drained, because the process's memory is gone.
 */
export class OpenTransfers {
  readonly #open = new Map<TransferId, Open>();
  /** Levels (`now.*`) that the process has reported. */
  readonly #levels = new Map<string, number>();
  #stats: ConnectorStats = {};
  #lastLoad = 0;

  get count(): number {
    return this.#open.size;
  }

  /** The step's metadata orders these transfers, also if the process has died. */
  ordered({ loads, saves }: ConnectorMetadata): void {
    for (const load of loads) {
      assert(load.transfer > this.#lastLoad, `load ${load.transfer} is ordered after load ${this.#lastLoad}`);
      this.#lastLoad = load.transfer;
      this.#add(load.transfer, { load, isDecided: false, isDrained: false });
    }
    for (const save of saves) this.#add(save.transfer, { save, isDecided: false, isDrained: false });
  }

  reported({ finishedRecving, finishedSending, drained, counters, stats }: ConnectorOutput): void {
    for (const [name, difference] of Object.entries(counters)) {
      if (name.startsWith('now.')) this.#levels.set(name, (this.#levels.get(name) ?? 0) + difference);
    }
    if (stats?.levels !== undefined) this.#stats = sumOfStats([this.#stats, { levels: stats.levels }]);
    for (const id of [...finishedRecving, ...finishedSending]) this.#mark(id, 'isDecided');
    for (const id of drained) this.#mark(id, 'isDrained');
  }

  /** The reports that the dead process did not send, so that all its transfers end. Nothing is open afterwards. */
  settle(): ConnectorOutput {
    const finishedSending: TransferId[] = [];
    const finishedRecving: TransferId[] = [];
    const drained: TransferId[] = [];
    const loadFailures: BlockLoadFailure[] = [];
    const saveFailures: BlockSaveFailure[] = [];
    for (const [transfer, open] of this.#open) {
      assert(!open.isDecided || !open.isDrained, `transfer ${transfer} has ended and is still open`);
      if (!open.isDrained) drained.push(transfer);
      if (open.isDecided) continue;
      if ('load' in open) {
        finishedRecving.push(transfer);
        for (const { block } of open.load.blocks)
          loadFailures.push({ transfer, block, reason: 'workerDied', isBlockBusy: false });
      } else {
        finishedSending.push(transfer);
        for (const { key } of open.save.blocks) saveFailures.push({ transfer, key, reason: 'workerDied' });
      }
    }
    this.#open.clear();
    const died = { loadFailed: { workerDied: loadFailures.length }, saveFailed: { workerDied: saveFailures.length } };
    // The levels of the new process start at 0.
    const stats = changeOfStats(died, this.#stats);
    const more = Object.keys(stats).length === 0 ? {} : { stats };
    this.#stats = {};
    const counters: Record<string, number> = {};
    for (const [name, level] of this.#levels) if (level !== 0) counters[name] = -level;
    this.#levels.clear();
    return { ...emptyOutput, finishedSending, finishedRecving, drained, loadFailures, saveFailures, counters, ...more };
  }

  #add(id: TransferId, open: Open): void {
    assert(!this.#open.has(id), `transfer ${id} is ordered twice`);
    this.#open.set(id, open);
  }

  #mark(id: TransferId, what: 'isDecided' | 'isDrained'): void {
    const open = this.#open.get(id);
    if (open === undefined) return;
    open[what] = true;
    if (open.isDecided && open.isDrained) this.#open.delete(id);
  }
}
