import { Prng } from '../../src/base/prng.ts';
import type {
  BlockLoadFailure,
  ConnectorMetadata,
  TransferId,
  TransferReport,
  WorkerConnector,
} from '../../src/connector/connector.ts';
import type { BlockMemory } from '../../src/core/block-memory.ts';

/** Probabilities, per id and report. */
export interface ReportFaults {
  readonly seed: number;
  /** The next report repeats the id. */
  readonly duplicate?: number;
  /** The id comes some reports later. */
  readonly late?: number;
  /** A report names an unknown id as finished, or as failed. */
  readonly unknown?: number;
  /** A report names a transfer as finished that is not of this side, and may be of another connector in a list. */
  readonly foreign?: number;
  /** No report names the id: the engine must not wait without end. */
  readonly forgotten?: number;
}

const kinds = ['finishedSending', 'finishedRecving', 'drained'] as const;

/**
 * A worker side with reports that are late, repeated, about unknown transfers, or missing. The transfers are those of the connector
 * inside. An id is never reported as drained before it is reported as finished.
 */
export class FaultyReports implements WorkerConnector {
  readonly #side: WorkerConnector;
  readonly #faults: ReportFaults;
  readonly #prng: Prng;
  /** The last transfers of this side. */
  readonly #own: TransferId[] = [];
  readonly #later: { inReports: number; kind: (typeof kinds)[number]; id: TransferId }[] = [];

  constructor(side: WorkerConnector, faults: ReportFaults) {
    this.#side = side;
    this.#faults = faults;
    this.#prng = new Prng(faults.seed);
  }

  registerKvCaches(memory: BlockMemory): void {
    this.#side.registerKvCaches(memory);
  }

  handlePreemptions(metadata: ConnectorMetadata): Promise<void> {
    for (const { transfer } of [...metadata.loads, ...metadata.saves]) this.#own.push(transfer);
    this.#own.splice(0, this.#own.length - 100);
    return this.#side.handlePreemptions(metadata);
  }

  bindConnectorMetadata(metadata: ConnectorMetadata): void {
    this.#side.bindConnectorMetadata(metadata);
  }

  startLoadKv(): void {
    this.#side.startLoadKv();
  }

  waitForLayerLoad(layer: number): Promise<void> {
    return this.#side.waitForLayerLoad(layer);
  }

  saveKvLayer(layer: number): void {
    this.#side.saveKvLayer(layer);
  }

  waitForSave(): Promise<void> {
    return this.#side.waitForSave();
  }

  getFinished(): TransferReport {
    const report = this.#side.getFinished();
    const { duplicate = 0, late = 0, unknown = 0, foreign = 0, forgotten = 0 } = this.#faults;
    const reported: Record<(typeof kinds)[number], TransferId[]> = {
      finishedSending: [],
      finishedRecving: [],
      drained: [],
    };
    for (const entry of this.#later.splice(0)) {
      if (--entry.inReports <= 0) reported[entry.kind].push(entry.id);
      else this.#later.push(entry);
    }
    for (const kind of kinds) {
      for (const id of report[kind]) {
        const before = this.#later.find((entry) => entry.id === id)?.inReports;
        if (this.#prng.chance(forgotten)) continue;
        if (before !== undefined || this.#prng.chance(late)) {
          this.#later.push({ inReports: Math.max(before ?? 0, this.#prng.between(1, 4)), kind, id });
        } else {
          reported[kind].push(id);
          if (this.#prng.chance(duplicate)) this.#later.push({ inReports: 1, kind, id });
        }
      }
      if (this.#prng.chance(unknown)) reported[kind].push((2 ** 40 + this.#prng.between(0, 9)) as TransferId);
      // Not a later one: the id would be wrong only until the transfer begins.
      const beside = ((this.#own.at(-1) ?? 0) - this.#prng.between(1, 3)) as TransferId;
      if (this.#prng.chance(foreign) && !this.#own.includes(beside)) reported[kind].push(beside);
    }
    return { ...report, ...reported };
  }

  getBlockIdsWithLoadErrors(): readonly BlockLoadFailure[] {
    const failures = this.#side.getBlockIdsWithLoadErrors();
    if (failures.length === 0 || !this.#prng.chance(this.#faults.unknown ?? 0)) return failures;
    return [...failures, { ...failures[0]!, transfer: (2 ** 40) as TransferId }];
  }

  clearConnectorMetadata(): void {
    this.#side.clearConnectorMetadata();
  }

  shutdown(options: { readonly timeoutMs: number }): Promise<{ readonly drained: boolean }> {
    return this.#side.shutdown(options);
  }
}
