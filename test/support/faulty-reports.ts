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
  /** Said again in the next report. */
  readonly duplicate?: number;
  /** Said some reports later. */
  readonly late?: number;
  /** An id that nobody has ordered is said to be finished, and to have failed. */
  readonly unknown?: number;
  /** Never said: the engine must not wait for ever. */
  readonly forgotten?: number;
}

const kinds = ['finishedSending', 'finishedRecving', 'drained'] as const;

/**
 * A worker half whose reports come late, twice, about nothing, or never; its transfers are those of the one inside. An id is
 * never said to be drained before it is said to be finished.
 */
export class FaultyReports implements WorkerConnector {
  readonly #side: WorkerConnector;
  readonly #faults: ReportFaults;
  readonly #prng: Prng;
  readonly #later: { inReports: number; kind: (typeof kinds)[number]; id: TransferId }[] = [];

  constructor(side: WorkerConnector, faults: ReportFaults) {
    this.#side = side;
    this.#faults = faults;
    this.#prng = new Prng(faults.seed);
  }

  registerKvCaches(memory: BlockMemory): void {
    this.#side.registerKvCaches(memory);
  }

  handlePreemptions(metadata: ConnectorMetadata): void {
    this.#side.handlePreemptions(metadata);
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
    const { duplicate = 0, late = 0, unknown = 0, forgotten = 0 } = this.#faults;
    const said: Record<(typeof kinds)[number], TransferId[]> = {
      finishedSending: [],
      finishedRecving: [],
      drained: [],
    };
    for (const entry of this.#later.splice(0)) {
      if (--entry.inReports <= 0) said[entry.kind].push(entry.id);
      else this.#later.push(entry);
    }
    for (const kind of kinds) {
      for (const id of report[kind]) {
        const before = this.#later.find((entry) => entry.id === id)?.inReports;
        if (this.#prng.chance(forgotten)) continue;
        if (before !== undefined || this.#prng.chance(late)) {
          this.#later.push({ inReports: Math.max(before ?? 0, this.#prng.between(1, 4)), kind, id });
        } else {
          said[kind].push(id);
          if (this.#prng.chance(duplicate)) this.#later.push({ inReports: 1, kind, id });
        }
      }
      if (this.#prng.chance(unknown)) said[kind].push((2 ** 40 + this.#prng.between(0, 9)) as TransferId);
    }
    return { ...report, ...said };
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
