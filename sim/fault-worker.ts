import { assert } from '../src/base/assert.ts';
import type { Prng } from '../src/base/prng.ts';
import {
  type BlockLoadFailure,
  type ConnectorMetadata,
  type ConnectorOutput,
  emptyOutput,
  type LoadJob,
  type TransferId,
  type TransferReport,
  type WorkerConnector,
} from '../src/connector/connector.ts';
import type { BlockId } from '../src/core/ids.ts';
import { earlyBlocksOf } from './early-blocks.ts';
import type { FakeRunner, StoredBlock } from './fake-runner.ts';
import { FaultSaves } from './fault-saves.ts';
import { type FaultStores, places } from './fault-stores.ts';
import type { TierFaults } from './faults.ts';
import { NoisyReports } from './noisy-reports.ts';
import { type RankLoad, underWay } from './rank-load.ts';

/** What the workers of all ranks share. */
export interface WorkerWorld {
  readonly faults: TierFaults;
  readonly isComplete: boolean;
  /** As in `FaultSavesOptions`. */
  readonly readsLate: boolean;
  /** When the step began, and when its ranks report. */
  readonly nowMs: number;
  readonly reportsAtMs: number;
}

export interface FaultWorkerParts {
  readonly rank: number;
  readonly prng: Prng;
  readonly runner: FakeRunner;
  readonly stores: FaultStores;
  readonly world: WorkerWorld;
  /** Called when saves have been ordered and flushed: the step may overwrite blocks. */
  readonly flushed: () => void;
}

/**
 * The worker side of a connector on one rank, with every fault that can happen. It treats the blocks of an open transfer as I/O does. A
 * load leaves garbage in them until it has arrived, also long after it was given up; a save reads them at any time. So if the engine
 * frees, reads or writes a block too early, a text or a check is wrong.
 */
export class FaultWorker implements WorkerConnector {
  readonly #parts: FaultWorkerParts;
  readonly #prng: Prng;
  readonly #runner: FakeRunner;
  readonly #world: WorkerWorld;
  readonly #saves: FaultSaves;
  readonly #noise: NoisyReports;
  #loads: RankLoad[] = [];
  #metadata: ConnectorMetadata | undefined;
  /** The step has a forward pass, which waits for its sync loads. */
  #hasForward: boolean = false;
  #failures: readonly BlockLoadFailure[] = nothing;

  constructor(parts: FaultWorkerParts) {
    const { prng, runner, stores, world } = parts;
    this.#parts = parts;
    this.#prng = prng;
    this.#runner = runner;
    this.#world = world;
    this.#saves = new FaultSaves(prng, runner, stores, world);
    this.#noise = new NoisyReports(prng);
  }

  get saves(): FaultSaves {
    return this.#saves;
  }

  registerKvCaches(): void {}

  async handlePreemptions({ saves, jobsToFlush }: ConnectorMetadata): Promise<void> {
    this.#saves.order(saves, this.#world.nowMs, this.#world.faults.saveFails);
    this.#saves.flush(jobsToFlush);
    this.#parts.flushed();
  }

  bindConnectorMetadata(metadata: ConnectorMetadata): void {
    this.#metadata = metadata;
    this.#hasForward = false;
  }

  startLoadKv(): void {
    const { cancelled, loads } = this.#bound();
    for (const id of cancelled) this.#cancel(id);
    if (this.#prng.chance(this.#world.faults.vanish)) this.#parts.stores.remove();
    for (const job of loads) this.#loads.push(this.#fateOf(job));
  }

  async waitForLayerLoad(layer: number): Promise<void> {
    if (layer > 0) return;
    this.#hasForward = true;
    this.#move(this.#world.nowMs, true);
    // A worker leaves out sequences that have a failed block, or computes them in vain.
    if (this.#prng.chance(0.5)) this.#failures = this.#takeSyncFailures();
  }

  saveKvLayer(): void {}

  async waitForSave(): Promise<void> {}

  getFinished(): TransferReport {
    const { reportsAtMs, faults } = this.#world;
    this.#move(reportsAtMs, false);
    const { loadFailures, ...report } = this.#noise.addTo(this.#report(), faults);
    this.#failures = loadFailures;
    if (this.#loads.length > 0)
      this.#loads = this.#loads.filter(({ drainAtMs, isReported }) => !(isReported && drainAtMs <= reportsAtMs));
    this.#saves.finish(reportsAtMs);
    return report;
  }

  getBlockIdsWithLoadErrors(): readonly BlockLoadFailure[] {
    const failures = this.#failures;
    this.#failures = nothing;
    return failures;
  }

  clearConnectorMetadata(): void {
    this.#metadata = undefined;
  }

  async shutdown(): Promise<{ readonly drained: boolean }> {
    return { drained: true };
  }

  /** A save that has not read its invalidated blocks stores nothing; loaded content is invalid, too. */
  memoryInvalidated(blocks: readonly BlockId[]): void {
    if (blocks.length === 0) return;
    this.#saves.memoryInvalidated(blocks);
    for (const { isDecided, invalidated } of this.#loads)
      if (isDecided) for (const block of blocks) invalidated.add(block);
  }

  /** Hung loads drain within 100 seconds. */
  calm(): void {
    for (const load of this.#loads) load.drainAtMs = Math.min(load.drainAtMs, this.#world.nowMs + 100_000);
  }

  /** The next end of a load or save. */
  nextEventMs(): number {
    let next = this.#saves.nextEndMs;
    for (const { isDecided, isSilent, drainAtMs, decideAtMs } of this.#loads)
      next = Math.min(next, isDecided || isSilent ? drainAtMs : decideAtMs);
    return next;
  }

  #bound(): ConnectorMetadata {
    assert(this.#metadata !== undefined, 'a step has metadata');
    return this.#metadata;
  }

  #fateOf(job: LoadJob): RankLoad {
    const prng = this.#prng;
    const { faults, nowMs } = this.#world;
    const failed = new Set<BlockId>();
    const content = new Map<BlockId, StoredBlock>();
    for (const { block, key, place } of job.blocks) {
      const stored = this.#parts.stores.get(place, key);
      if (stored === undefined || prng.chance(faults.corrupt)) failed.add(block);
      else content.set(block, stored);
    }
    const isHung = prng.chance(faults.hung);
    const isSilent = prng.chance(faults.silent);
    const inStep = job.mode === 'sync' && !prng.chance(faults.slow);
    const deadline = nowMs + job.timeoutMs;
    const decideAtMs = isHung ? deadline : inStep ? nowMs : nowMs + prng.between(0, 120);
    const isWhole = prng.chance(faults.whole) && !isHung;
    if (isHung) for (const { block } of job.blocks) if (prng.chance(0.5)) failed.add(block);
    if (isWhole) for (const { block } of job.blocks) failed.add(block);
    const drainAtMs = isHung ? deadline + prng.between(0, 20_000) : decideAtMs;
    const load = { job, content, decideAtMs, drainAtMs, failed, isHung, isSilent, isWhole, ...underWay };
    if (isSilent) load.drainAtMs = prng.chance(0.5) ? decideAtMs : deadline + prng.between(5000, 30_000);
    return { ...load, invalidated: new Set() };
  }

  #cancel(id: TransferId): void {
    const { nowMs } = this.#world;
    for (const load of this.#loads) {
      if (load.job.transfer !== id || load.isDecided || this.#prng.chance(0.3)) continue;
      for (const { block } of load.job.blocks) load.failed.add(block);
      load.decideAtMs = nowMs;
      if (!load.isHung) load.drainAtMs = Math.max(nowMs, load.isSilent ? load.drainAtMs : 0);
    }
  }

  /** The progress of I/O. Sync loads of a step with a forward pass are decided before it, or not in this step. */
  #move(nowMs: number, isBeforeForward: boolean): void {
    this.#saves.move(nowMs);
    for (const load of this.#loads) {
      if (!isBeforeForward && load.early === undefined) this.#arriveEarly(load);
      const isDone = load.isArrived || load.decideAtMs <= nowMs;
      for (const { block } of load.job.blocks) {
        const isBusy = load.isHung && load.failed.has(block) && load.drainAtMs > nowMs;
        if ((!isDone || isBusy) && load.early?.has(block) !== true) this.#runner.overwrite(block);
      }
      if (!load.isDecided) {
        const mustWait = load.job.mode === 'sync' && this.#hasForward && !isBeforeForward;
        if (load.decideAtMs > nowMs || mustWait) continue;
        load.isDecided = true;
      }
      if (load.isArrived || (load.isSilent && load.drainAtMs > nowMs)) continue;
      load.isArrived = true;
      this.#arrive(load);
    }
  }

  #arriveEarly(load: RankLoad): void {
    load.early = new Set(earlyBlocksOf(load));
    for (const block of load.early) this.#runner.writeBlock(block, load.content.get(block)!);
  }

  /** A block that failed is garbage. */
  #arrive({ job, content, early, failed, invalidated }: RankLoad): void {
    for (const { block } of job.blocks) {
      if (early?.has(block) === true) continue;
      const stored = content.get(block);
      if (stored === undefined || failed.has(block) || invalidated.has(block)) this.#runner.overwrite(block);
      else this.#runner.writeBlock(block, stored);
    }
  }

  #takeSyncFailures(): readonly BlockLoadFailure[] {
    const failures: BlockLoadFailure[] = [];
    for (const load of this.#loads) {
      if (load.job.mode !== 'sync' || !load.isArrived || load.isWhole || load.areFailuresReported) continue;
      load.areFailuresReported = true;
      failures.push(...this.#failuresOf(load));
    }
    return failures;
  }

  #report(): ConnectorOutput {
    if (this.#loads.length === 0 && this.#saves.isEmpty) return emptyOutput;
    const { reportsAtMs } = this.#world;
    // A silent worker reports a load when its I/O is over, if ever.
    const decided = this.#loads.filter(({ isArrived }) => isArrived);
    const fresh = decided.filter(({ isReported }) => !isReported);
    for (const load of fresh) load.isReported = true;
    const ended = this.#saves.ended(reportsAtMs);
    return {
      ...emptyOutput,
      arrived: this.#loads.flatMap((load) => earlyReportOf(load)),
      finishedRecving: fresh.map(({ job }) => job.transfer),
      failedRecving: fresh.filter(({ isWhole }) => isWhole).map(({ job }) => job.transfer),
      loadFailures: fresh.flatMap((load): readonly BlockLoadFailure[] =>
        load.isWhole || load.areFailuresReported ? nothing : this.#failuresOf(load),
      ),
      loadedElsewhere: fresh.flatMap(({ job, failed }) =>
        // Any loads: the engine only counts from where their blocks came.
        job.transfer % 4 === 0
          ? job.blocks
              .filter(({ block }) => !failed.has(block))
              .map(({ block }) => ({ transfer: job.transfer, block, place: places[this.#parts.rank % places.length]! }))
          : [],
      ),
      drained: [
        ...decided.filter(({ drainAtMs }) => drainAtMs <= reportsAtMs).map(({ job }) => job.transfer),
        ...ended.map(({ job }) => job.transfer),
      ],
      finishedSending: ended.map(({ job }) => job.transfer),
      saveFailures: ended.flatMap(({ job, fails }) =>
        fails ? job.blocks.map(({ key }) => ({ transfer: job.transfer, key, reason: 'storeFailed' }) as const) : [],
      ),
    };
  }

  #failuresOf({ job, failed, isHung, drainAtMs }: RankLoad): readonly BlockLoadFailure[] {
    const isBlockBusy = isHung && drainAtMs > this.#world.reportsAtMs;
    return [...failed].map((block) => ({
      transfer: job.transfer,
      block,
      reason: this.#prng.pick(reasons),
      isBlockBusy,
    }));
  }
}

/** Each rank reports a block once. */
function earlyReportOf(load: RankLoad): { readonly transfer: TransferId; readonly block: BlockId }[] {
  if (load.early === undefined || load.isEarlyReported || load.isDecided) return [];
  load.isEarlyReported = true;
  return [...load.early].map((block) => ({ transfer: load.job.transfer, block }));
}

const nothing: readonly never[] = [];
const reasons = ['corrupt', 'wrongKey', 'wrongModel', 'missing', 'storeFailed', 'timedOut'] as const;
