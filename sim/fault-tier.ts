import { assert } from '../src/base/assert.ts';
import type { JsonObject } from '../src/base/json.ts';
import type { Prng } from '../src/base/prng.ts';
import type { BlockKey } from '../src/connector/block-key.ts';
import {
  type ConnectorMetadata,
  type ConnectorOutput,
  type ConnectorPlan,
  type ConnectorRequest,
  type ConnectorStep,
  emptyOutput,
  type FoundBlock,
  type KvBlock,
  type LoadJob,
  type LoadOutcome,
  type MatchAnswer,
  type RankReport,
  type SaveJob,
  type TransferId,
  type TransferOutcomes,
} from '../src/connector/connector.ts';
import type { LoadFailureReason } from '../src/connector/reasons.ts';
import { graceMs } from '../src/connector/transfer/transfer-ledger.ts';
import { type BlockId, blockIndex, type RequestId } from '../src/core/ids.ts';
import type { ConnectorPort } from '../src/scheduler/external-kv.ts';
import { ArrivalLookUps } from './arrival-look-ups.ts';
import { EarlyBlocks } from './early-blocks.ts';
import type { FakeRunner, StoredBlock } from './fake-runner.ts';
import { FaultSaves } from './fault-saves.ts';
import { FaultStores, places } from './fault-stores.ts';
import { noFaults, type TierFaults } from './faults.ts';
import type { HitChecker } from './hit-checker.ts';
import { NoisyReports } from './noisy-reports.ts';
import type { PrefixChecker } from './prefix-checker.ts';
import { type RankLoad, underWay } from './rank-load.ts';

const ranksMax = 3;

export interface FaultTierOptions {
  readonly faults: TierFaults;
  /** An offloading tier that saves each block that it is offered, and promises each block that it has. */
  readonly isComplete?: boolean;
  /** The most blocks in one store; the oldest is removed first. */
  readonly blocksMax?: number;
  /** Decides the look-ups that begin when requests arrive. Absent: look-ups begin with the first question. */
  readonly arrivals?: Prng;
}

/**
 * Both sides of a connector over two stores and one to three ranks, with every fault that can happen. It treats the blocks of an open
 * transfer as I/O does. A load leaves garbage in them until it has arrived, also long after it was given up; a save reads them at
 * any time. So if the engine frees, reads or writes a block too early, a text or a check is wrong.
 */
export class FaultTier implements ConnectorPort {
  readonly #prng: Prng;
  readonly #runner: FakeRunner;
  readonly stores: FaultStores;
  readonly #ranks: readonly number[];
  #loads: RankLoad[] = [];
  /** All ranks' parts in a load, also those that are over: a block is invalid if the part of one rank is invalid. */
  readonly #parts = new Map<TransferId, RankLoad[]>();
  readonly #saves: FaultSaves;
  readonly #noise: NoisyReports;
  readonly #finished = new Set<RequestId>();
  readonly #isComplete: boolean;
  /** The engine may overwrite blocks that saves read: the step flushes these saves first. */
  readonly canFlush: boolean;
  readonly #mode: 'sync' | 'async' | 'mixed';
  /** Blocks that have failed in a store since the last step began. */
  readonly #failing: LoadOutcome[] = [];
  readonly #cancelled = new Set<TransferId>();
  #stepLoaders: ReadonlySet<RequestId> = new Set();
  /** The requests whose own load was decided with a failed block by the last report. */
  failedLoaders: ReadonlySet<RequestId> = new Set();
  /** Request, place and key of blocks that failed while the request waited: the engine must not load them from there again. */
  readonly #failed = new Set<string>();
  /** The same from the report on, also for cancelled loads: the engine may use such a place or not. */
  readonly #doubted = new Set<string>();
  readonly #reported = new Set<RankLoad>();
  readonly #early = new EarlyBlocks();
  #isDeathUnreported: boolean = false;
  /** When the engine gives up a load. */
  readonly #expiresAtMs = new Map<TransferId, number>();
  /** Loads whose deadline is not over, and loads whose deadline is over. */
  #timely: LoadJob[] = [];
  readonly #late: LoadJob[] = [];
  /** When the engine last received reports. */
  #heardAtMs = 0;
  readonly #arrivals: ArrivalLookUps;
  #nowMs = 0;
  faults: TierFaults;
  /** Called when look-ups have ended. */
  wake: () => void = () => undefined;
  hits: HitChecker | undefined;
  /** Only if the tier is complete. */
  prefixes: PrefixChecker | undefined;
  loadedBlocks = 0;
  failedBlocks = 0;

  constructor(prng: Prng, runner: FakeRunner, options: FaultTierOptions) {
    const { faults, isComplete = false, blocksMax = Infinity } = options;
    this.#prng = prng;
    this.#runner = runner;
    this.faults = faults;
    this.#isComplete = isComplete;
    this.canFlush = prng.chance(0.7) || isComplete;
    this.#mode = prng.pick(['sync', 'async', 'mixed'] as const);
    this.stores = new FaultStores(prng, blocksMax);
    this.stores.onSave = (key) => this.prefixes?.stored(key);
    this.#saves = new FaultSaves(prng, runner, this.stores, isComplete);
    this.#ranks = Array.from({ length: prng.between(1, ranksMax) }, (_, rank) => rank);
    this.#noise = new NoisyReports(prng);
    const placeOf = (key: BlockKey): string | undefined => this.stores.placeOf(key, () => true);
    this.#arrivals = new ArrivalLookUps(options.arrivals, placeOf, () => this.wake());
  }

  get nowMs(): number {
    return this.#nowMs;
  }

  set nowMs(nowMs: number) {
    this.#nowMs = nowMs;
    this.#arrivals.advance(nowMs);
  }

  requestArrived(request: ConnectorRequest): void {
    this.#arrivals.arrived(request);
  }

  getMatchedBlocks(request: ConnectorRequest): MatchAnswer {
    const answer = this.#match(request);
    this.prefixes?.asked(request.id, answer.kind === 'found');
    if (this.hits === undefined) return answer;
    // Blocks of loads that the engine has given up without a report count as failed, too.
    for (const { requestId, blocks } of this.#givenUp())
      if (requestId === request.id)
        for (const { place, key } of blocks) this.#doubted.add(`${requestId} ${place} ${key}`);
    const isUsable = (key: string, place: string): boolean => !this.#doubted.has(`${request.id} ${place} ${key}`);
    this.hits.asked(request, answer, this.nowMs, isUsable);
    return answer;
  }

  #match({ id, wanted }: ConnectorRequest): MatchAnswer {
    const prng = this.#prng;
    const deadlineMs = this.#arrivals.deadlineOf(id);
    if (deadlineMs !== undefined) return { kind: 'askLater', deadlineMs };
    if (prng.chance(this.faults.askLater)) return { kind: 'askLater', deadlineMs: this.nowMs + prng.between(1, 200) };
    // The blocks of a flushed save are stored before the next plan.
    if (this.#isComplete && this.#saves.isSaving(new Set(wanted.map(({ key }) => key))))
      return { kind: 'askLater', deadlineMs: this.nowMs + 1000 };
    const share = this.#isComplete ? 1 : prng.pick([1, 1, 1, 0.7]);
    // A connector may remember failed blocks and their places, or leave it to the engine to refuse them.
    const knowsFailures = prng.chance(0.7);
    const blocks: FoundBlock[] = [];
    const isChecked = knowsFailures && this.#failed.size > 0;
    // A complete tier knows its blocks at all times.
    const early = this.#isComplete ? undefined : this.#arrivals.take(id);
    for (const block of wanted) {
      const isUsable = (place: string): boolean => !isChecked || !this.#failed.has(`${id} ${place} ${block.key}`);
      const { group, index, key } = block;
      const place = early?.has(key) === true ? early.get(key) : this.stores.placeOf(key, isUsable);
      if (place !== undefined && prng.chance(share)) blocks.push({ group, index, key, place });
      else if (prng.chance(this.faults.falseHits)) blocks.push({ group, index, key, place: prng.pick(places) });
    }
    if (prng.chance(this.faults.foreign)) {
      const [block, key] = [prng.pick(wanted), this.stores.anyKey()];
      if (key !== undefined) blocks.unshift({ ...block, key, place: prng.pick(places) });
    }
    if (blocks.length > 0 && prng.chance(this.faults.unknown))
      blocks.push({ ...blocks[0]!, index: blockIndex(10_000) });
    const mode = this.#mode === 'mixed' ? prng.pick(['sync', 'async'] as const) : this.#mode;
    return { kind: 'found', blocks, mode };
  }

  updateStateAfterAlloc(request: ConnectorRequest, load: LoadJob | undefined, valid: () => readonly KvBlock[]): void {
    assert(!this.#finished.has(request.id), `${request.id} is admitted after its end`);
    this.hits?.allocated(request, load, this.nowMs);
    this.prefixes?.admitted(request.id);
    this.#arrivals.end(request.id);
    if (load === undefined) return;
    const keys = new Set(valid().map(({ key }) => key));
    for (const { key } of load.blocks) if (keys.has(key)) assert(false, `I4: block ${key} is valid and will be loaded`);
    this.#timely.push(load);
    this.#expiresAtMs.set(load.transfer, this.nowMs + load.timeoutMs + graceMs);
  }

  buildConnectorMeta({ newlyValid, newTransferId, validBlock }: ConnectorStep): ConnectorPlan {
    this.#arrivals.stepBegins();
    const [first] = newlyValid;
    if (first !== undefined && validBlock(first.key) === undefined)
      assert(false, `I4: block ${first.key} is offered, but it is not valid`);
    if (this.hits?.hasInvalid === true) for (const { blocks } of this.#givenUp()) this.hits.loadsFailed(blocks);
    const saves: SaveJob[] = [];
    for (const { key, block } of newlyValid)
      if (this.#isComplete || this.#prng.chance(0.8))
        saves.push({ transfer: newTransferId(), blocks: [{ key, block }] });
    return { saves };
  }

  updateConnectorOutput({ loads, saves }: TransferOutcomes): void {
    this.#arrivals.stepEnds();
    this.#noise.check(loads, saves);
    for (const { transfer, result } of loads)
      assert(
        result === 'notReported' || this.#heardAtMs < this.#expiresAtMs.get(transfer)!,
        `I6: load ${transfer} was given up, and its report is accepted now`,
      );
    this.#heardAtMs = this.nowMs;
    const failed = loads.filter(({ result }) => result !== 'loaded');
    if (failed.length > 0) this.prefixes?.fillerLost();
    const awaited = failed.filter(({ transfer }) => !this.#cancelled.has(transfer));
    this.failedLoaders = new Set(awaited.filter(isReported).map(({ requestId }) => requestId));
    this.hits?.loadsFailed(failed.filter(isReported));
    for (const { requestId, place, key } of failed.filter(isOfStore)) this.#doubted.add(`${requestId} ${place} ${key}`);
    this.#failing.push(...failed.filter(isOfStore));
  }

  requestFinished(
    { id, kvTransferParams }: ConnectorRequest,
    valid: () => readonly KvBlock[],
  ): { readonly kvTransferParams?: JsonObject } {
    assert(!this.#finished.has(id), `${id} has ended twice`);
    this.#finished.add(id);
    this.#arrivals.end(id);
    this.hits?.ended(id);
    // As a prefill instance answers: the client's own parameters, and the number of the request's valid blocks.
    return kvTransferParams === undefined ? {} : { kvTransferParams: { ...kvTransferParams, blocks: valid().length } };
  }

  hasPendingWork(): boolean {
    return false;
  }

  counters(): Readonly<Record<string, number>> {
    return { loadedBlocks: this.loadedBlocks, failedBlocks: this.failedBlocks };
  }

  /** The time of the next end of a load or save, for a world without other work. */
  nextEventMs(): number | undefined {
    let next: number | undefined;
    const consider = (at: number): void => {
      if (at !== Infinity && (next === undefined || at < next)) next = at;
    };
    for (const load of this.#loads) consider(load.isDecided || load.isSilent ? load.drainAtMs : load.decideAtMs);
    consider(this.#saves.nextEndMs);
    consider(this.#arrivals.nextEventMs);
    return next;
  }

  /** The first part of a step: flushed saves read their blocks. Then blocks may be overwritten. */
  handlePreemptions({ saves, jobsToFlush }: ConnectorMetadata): void {
    this.#saves.order(saves, this.nowMs, this.faults.saveFails);
    assert(this.canFlush || jobsToFlush.length === 0, 'I5: a flush is ordered from a connector that cannot flush');
    this.#saves.flush(jobsToFlush);
  }

  /** The part of a step before the forward pass: new loads begin; a step with tokens waits for its sync loads. */
  begin(metadata: ConnectorMetadata, hasTokens: boolean, invalid: readonly BlockId[]): Set<BlockId> {
    this.#checkPromises(metadata);
    for (const id of metadata.cancelled) this.#cancel(id);
    if (this.#prng.chance(this.faults.vanish)) this.stores.remove();
    for (const job of metadata.loads)
      this.#parts.set(
        job.transfer,
        this.#ranks.map((rank) => this.#fateOf(job, rank, hasTokens)),
      );
    for (const { transfer } of metadata.loads) this.#loads.push(...this.#parts.get(transfer)!);
    this.memoryInvalidated(invalid);
    if (this.#isDeathUnreported) this.#endLoadsOfDead();
    this.#move(true);
    const failed = new Set<BlockId>();
    for (const { job, failed: blocks, isArrived } of this.#loads)
      if (job.mode === 'sync' && isArrived) for (const block of blocks) failed.add(block);
    this.#stepLoaders = new Set(this.#loads.map(({ job }) => job.requestId));
    return failed;
  }

  /** The part of a step after the forward pass: the reports of all ranks. */
  finish(): readonly RankReport[] {
    this.#move(false);
    const reports: RankReport[] = this.#ranks.map((rank) => this.#reportOf(rank));
    if (this.#loads.length > 0)
      this.#loads = this.#loads.filter(({ drainAtMs, isDecided }) => !(isDecided && drainAtMs <= this.nowMs));
    this.#saves.finish(this.nowMs);
    if (!this.#isDeathUnreported) return reports;
    this.#isDeathUnreported = false;
    return reports.with(0, 'workerDied');
  }

  /** A save that has not read its invalidated blocks stores nothing; loaded content is invalid, too. */
  memoryInvalidated(blocks: readonly BlockId[]): void {
    if (blocks.length === 0) return;
    this.#saves.memoryInvalidated(blocks);
    for (const { isDecided, invalidated } of this.#loads)
      if (isDecided) for (const block of blocks) invalidated.add(block);
  }

  /** The whole pool is lost, and the I/O of the worker of rank 0 ends. Its death is reported, or the end of each of its transfers. */
  workerDied(): void {
    this.#isDeathUnreported = this.nowMs % 2 === 0;
    this.#endLoadsOfDead();
  }

  #endLoadsOfDead(): void {
    for (const load of this.#loads) {
      if (load.rank !== 0) continue;
      if (!load.isDecided) {
        load.hasDied = true;
        for (const { block } of load.job.blocks) load.failed.add(block);
      }
      Object.assign(load, { isSilent: false, decideAtMs: this.nowMs, drainAtMs: this.nowMs });
    }
  }

  /** Saves that a step flushed. */
  get flushedSaves(): number {
    return this.#saves.flushedCount;
  }

  /** The requests with loads of their own that were open in this step, decided or not. */
  get loaders(): ReadonlySet<RequestId> {
    return this.#stepLoaders;
  }

  /** No new faults; hung loads drain within 100 seconds. */
  calm(): void {
    // Requests must end even if the connector always answers "ask later".
    this.faults = { ...noFaults, askLater: this.faults.askLater };
    for (const load of this.#loads) load.drainAtMs = Math.min(load.drainAtMs, this.nowMs + 100_000);
  }

  #fateOf(job: LoadJob, rank: number, hasTokens: boolean): RankLoad {
    const prng = this.#prng;
    const { faults } = this;
    const failed = new Set<BlockId>();
    const content = new Map<BlockId, StoredBlock>();
    for (const { block, key, place } of job.blocks) {
      const stored = this.stores.get(place, key);
      if (stored === undefined || prng.chance(faults.corrupt)) failed.add(block);
      else content.set(block, stored);
    }
    const isHung = prng.chance(faults.hung);
    const isSilent = prng.chance(faults.silent);
    const inStep = job.mode === 'sync' && hasTokens && !prng.chance(faults.slow);
    const deadline = this.nowMs + job.timeoutMs;
    const decideAtMs = isHung ? deadline : inStep ? this.nowMs : this.nowMs + prng.between(0, 120);
    const drainAtMs = isHung ? deadline + prng.between(0, 20_000) : decideAtMs;
    if (isHung) for (const { block } of job.blocks) if (prng.chance(0.5)) failed.add(block);
    const isWhole = prng.chance(faults.whole) && !isHung;
    if (isWhole) for (const { block } of job.blocks) failed.add(block);
    const load = {
      job,
      rank,
      content,
      decideAtMs,
      drainAtMs,
      failed,
      invalidated: new Set<BlockId>(),
      isHung,
      isSilent,
      isWhole,
      ...underWay,
    };
    if (isSilent) load.drainAtMs = prng.chance(0.5) ? decideAtMs : deadline + prng.between(5000, 30_000);
    return load;
  }

  #cancel(id: TransferId): void {
    for (const load of this.#loads) {
      if (load.job.transfer !== id || load.isDecided || this.#prng.chance(0.3)) continue;
      for (const { block } of load.job.blocks) load.failed.add(block);
      load.decideAtMs = this.nowMs;
      if (!load.isHung) load.drainAtMs = Math.max(this.nowMs, load.isSilent ? load.drainAtMs : 0);
    }
  }

  /** The progress of I/O up to now. Sync loads are decided before the forward pass, or not in this step. */
  #move(isBeforeForward: boolean): void {
    this.#saves.move(this.nowMs);
    if (!isBeforeForward)
      for (const { job } of this.#loads)
        for (const [block, stored] of this.#early.arrive(this.#parts.get(job.transfer)!))
          this.#runner.writeBlock(block, stored);
    for (const load of this.#loads) {
      const isDone = load.isArrived || load.decideAtMs <= this.nowMs;
      for (const { block } of load.job.blocks) {
        const isBusy = load.isHung && load.failed.has(block) && load.drainAtMs > this.nowMs;
        if ((!isDone || isBusy) && !this.#early.has(load.job.transfer, block)) this.#runner.overwrite(block);
      }
      if (!load.isDecided) {
        if (load.decideAtMs > this.nowMs || (load.job.mode === 'sync' && !isBeforeForward)) continue;
        load.isDecided = true;
      }
      if (load.isArrived || (load.isSilent && load.drainAtMs > this.nowMs)) continue;
      load.isArrived = true;
      this.#arrive(load);
    }
  }

  /** The last rank to arrive completes the blocks; a block that failed on any rank is garbage. */
  #arrive({ job, content }: RankLoad): void {
    const all = this.#parts.get(job.transfer)!;
    if (all.some((load) => !load.isArrived)) return;
    for (const { block } of job.blocks) {
      const stored = content.get(block);
      if (this.#early.has(job.transfer, block)) this.loadedBlocks++;
      else if (all.some(({ invalidated }) => invalidated.has(block))) this.#runner.overwrite(block);
      else if (stored === undefined || all.some(({ failed }) => failed.has(block))) {
        this.failedBlocks++;
        this.#runner.overwrite(block);
      } else {
        this.loadedBlocks++;
        this.#runner.writeBlock(block, stored);
      }
    }
  }

  #reportOf(rank: number): ConnectorOutput {
    if (this.#loads.length === 0 && this.#saves.isEmpty) return this.#noise.addTo(rank, emptyOutput, this.faults);
    const mine = this.#loads.filter((load) => load.rank === rank);
    // A silent worker reports a load when its I/O is over, if ever.
    const decided = mine.filter((load) => load.isArrived);
    const fresh = decided.filter((load) => !this.#reported.has(load));
    for (const load of fresh) this.#reported.add(load);
    const ended = this.#saves.ended(this.nowMs);
    const arrived = this.#early.reportOf(mine);
    if (decided.length === 0 && ended.length === 0 && arrived.length === 0)
      return this.#noise.addTo(rank, emptyOutput, this.faults);
    const output: ConnectorOutput = {
      ...emptyOutput,
      arrived,
      finishedRecving: fresh.map(({ job }) => job.transfer),
      failedRecving: fresh.filter(({ isWhole }) => isWhole).map(({ job }) => job.transfer),
      loadFailures: fresh.flatMap((load) => {
        if (load.isWhole) return [];
        const isBlockBusy = load.isHung && load.drainAtMs > this.nowMs;
        return [...load.failed].map(
          (block) => ({ transfer: load.job.transfer, block, reason: this.#reasonOf(load), isBlockBusy }) as const,
        );
      }),
      loadedElsewhere: fresh.flatMap(({ job, failed }) =>
        // Any loads: the engine only counts from where their blocks came.
        job.transfer % 4 === 0
          ? job.blocks
              .filter(({ block }) => !failed.has(block))
              .map(({ block }) => ({ transfer: job.transfer, block, place: places[rank % places.length]! }))
          : [],
      ),
      drained: [
        ...decided.filter(({ drainAtMs }) => drainAtMs <= this.nowMs).map(({ job }) => job.transfer),
        ...ended.map(({ job }) => job.transfer),
      ],
      finishedSending: ended.map(({ job }) => job.transfer),
      saveFailures: ended.flatMap(({ job, fails }) =>
        fails ? job.blocks.map(({ key }) => ({ transfer: job.transfer, key, reason: 'storeFailed' }) as const) : [],
      ),
    };
    return this.#noise.addTo(rank, output, this.faults);
  }

  #reasonOf({ hasDied }: RankLoad): LoadFailureReason {
    const reason = this.#prng.pick(reasons);
    return hasDied ? 'workerDied' : reason;
  }

  /** All loads whose deadline is over, with or without a report. */
  #givenUp(): readonly LoadJob[] {
    if (this.#timely.some(({ transfer }) => this.#expiresAtMs.get(transfer)! <= this.nowMs))
      this.#timely = this.#timely.filter((load) => {
        const isLate = this.#expiresAtMs.get(load.transfer)! <= this.nowMs;
        if (isLate) this.#late.push(load);
        return !isLate;
      });
    return this.#late;
  }

  /** Blocks of decided, not cancelled loads that failed must not be in the new loads. */
  #checkPromises({ loads, cancelled }: ConnectorMetadata): void {
    for (const id of cancelled) this.#cancelled.add(id);
    for (const { transfer, requestId, place, key } of this.#failing.splice(0))
      if (!this.#cancelled.has(transfer)) this.#failed.add(`${requestId} ${place} ${key}`);
    for (const { requestId, blocks } of loads)
      for (const { place, key } of blocks)
        if (this.#failed.has(`${requestId} ${place} ${key}`))
          assert(false, `I8: ${requestId} loads ${key} from ${place} again, where it failed`);
  }

  get hasFaults(): boolean {
    return Object.values(this.faults).some((rate) => rate > 0);
  }
}

const isReported = ({ result }: LoadOutcome): boolean => result !== 'notReported';
const isOfStore = ({ result }: LoadOutcome): boolean => result !== 'workerDied';

const reasons = ['corrupt', 'wrongKey', 'wrongModel', 'missing', 'storeFailed', 'timedOut'] as const;
