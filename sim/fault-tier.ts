import { assert } from '../src/base/assert.ts';
import type { JsonObject } from '../src/base/json.ts';
import type { Prng } from '../src/base/prng.ts';
import type { BlockKey } from '../src/connector/block-key.ts';
import type {
  ConnectorMetadata,
  ConnectorPlan,
  ConnectorRequest,
  ConnectorStep,
  FoundBlock,
  KvBlock,
  LoadJob,
  LoadOutcome,
  MatchAnswer,
  SaveJob,
  TransferId,
  TransferOutcomes,
} from '../src/connector/connector.ts';
import { graceMs } from '../src/connector/transfer/transfer-ledger.ts';
import { type BlockId, blockIndex, type RequestId } from '../src/core/ids.ts';
import type { ConnectorPort } from '../src/scheduler/external-kv.ts';
import { ArrivalLookUps } from './arrival-look-ups.ts';
import type { FakeRunner } from './fake-runner.ts';
import { FaultStores, places } from './fault-stores.ts';
import { FaultWorker, type WorkerWorld } from './fault-worker.ts';
import { noFaults, type TierFaults } from './faults.ts';
import type { HitChecker } from './hit-checker.ts';
import { OutcomeChecker } from './noisy-reports.ts';
import type { PrefixChecker } from './prefix-checker.ts';

export interface FaultTierOptions {
  readonly rankCount: number;
  readonly faults: TierFaults;
  /** An offloading tier that saves each block that it is offered, and promises each block that it has. */
  readonly isComplete?: boolean;
  /** The most blocks in one store; the oldest is removed first. */
  readonly blocksMax?: number;
  /** Decides the look-ups that begin when requests arrive. Absent: look-ups begin with the first question. */
  readonly arrivals?: Prng;
}

/**
 * A connector over two stores, each with a part for every rank, with every fault that can happen: its scheduler side, and the workers of
 * the ranks (`fault-worker.ts`).
 */
export class FaultTier implements ConnectorPort, WorkerWorld {
  readonly #prng: Prng;
  /** By rank. */
  readonly stores: readonly FaultStores[];
  readonly #workers: FaultWorker[] = [];
  readonly #outcomes = new OutcomeChecker();
  readonly #finished = new Set<RequestId>();
  readonly isComplete: boolean;
  /** Whether a place promises a block that only some ranks have there. */
  readonly #promisesParts: boolean;
  /** Saves read their blocks so late that steps flush many of them. */
  readonly readsLate: boolean;
  readonly #mode: 'sync' | 'async' | 'mixed';
  /** Blocks that have failed in a store since the last step began. */
  readonly #failing: LoadOutcome[] = [];
  readonly #cancelled = new Set<TransferId>();
  /** Loads with blocks whose outcome the engine has not told yet. */
  readonly #openLoads = new Map<TransferId, { readonly requestId: RequestId; readonly blocks: Set<BlockId> }>();
  /** The requests whose own load was decided with a failed block by the last report. */
  failedLoaders: ReadonlySet<RequestId> = new Set();
  /** Request, place and key of blocks that failed while the request waited: the engine must not load them from there again. */
  readonly #failed = new Set<string>();
  /** The same from the report on, also for cancelled loads: the engine may use such a place or not. */
  readonly #doubted = new Set<string>();
  /** When the engine gives up a load. */
  readonly #expiresAtMs = new Map<TransferId, number>();
  /** Loads whose deadline is not over, and loads whose deadline is over. */
  #timely: LoadJob[] = [];
  readonly #late: LoadJob[] = [];
  /** When the engine last received reports. */
  #heardAtMs = 0;
  readonly #arrivals: ArrivalLookUps;
  #nowMs = 0;
  reportsAtMs = 0;
  faults: TierFaults;
  /** Called when look-ups have ended. */
  wake: () => void = () => undefined;
  hits: HitChecker | undefined;
  /** Only if the tier is complete. */
  prefixes: PrefixChecker | undefined;
  loadedBlocks = 0;
  failedBlocks = 0;
  #flushedBefore = 0;

  constructor(prng: Prng, options: FaultTierOptions) {
    const { faults, isComplete = false, blocksMax = Infinity, rankCount } = options;
    this.#prng = prng;
    this.faults = faults;
    this.isComplete = isComplete;
    this.readsLate = !(prng.chance(0.7) || isComplete);
    this.#mode = prng.pick(['sync', 'async', 'mixed'] as const);
    this.stores = Array.from({ length: rankCount }, () => new FaultStores(prng.fork(), blocksMax));
    for (const stores of this.stores)
      stores.onSave = (key) => {
        if (this.#isKnown(places, key)) this.prefixes?.stored(key);
      };
    this.#promisesParts = prng.chance(0.5) && this.hasFaults;
    this.#arrivals = new ArrivalLookUps(
      options.arrivals,
      (key) => this.#placeOf(key),
      () => this.wake(),
    );
  }

  /** A worker of the rank, whose memory the runner has. It replaces a worker that has died. */
  workerOf(rank: number, runner: FakeRunner, flushed: () => void): FaultWorker {
    this.#flushedBefore += this.#workers[rank]?.saves.flushedCount ?? 0;
    const parts = { rank, prng: this.#prng.fork(), runner, stores: this.stores[rank]!, world: this, flushed };
    const worker = new FaultWorker(parts);
    this.#workers[rank] = worker;
    return worker;
  }

  /** An administrator clears the stores, or removes some blocks from them. */
  clearStores(): void {
    for (const stores of this.stores) stores.clear();
  }

  /** Whether the parts of all ranks are in one of these places. */
  #isKnown(inPlaces: readonly string[], key: BlockKey): boolean {
    const has = (stores: FaultStores): boolean => inPlaces.some((place) => stores.has(place, key));
    return this.#promisesParts ? this.stores.some(has) : this.stores.every(has);
  }

  /** The place of the block. A place that is not usable is the answer only if no usable place has the block. */
  #placeOf(key: BlockKey, isUsable: (place: string) => boolean = () => true): string | undefined {
    const known = places.filter((place) => this.#isKnown([place], key));
    return known.find(isUsable) ?? known[0];
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
    const wantedKeys = new Set(wanted.map(({ key }) => key));
    if (this.isComplete && this.#workers.some(({ saves }) => saves.isSaving(wantedKeys)))
      return { kind: 'askLater', deadlineMs: this.nowMs + 1000 };
    const share = this.isComplete ? 1 : prng.pick([1, 1, 1, 0.7]);
    // A connector may remember failed blocks and their places, or leave it to the engine to refuse them.
    const knowsFailures = prng.chance(0.7);
    const blocks: FoundBlock[] = [];
    const isChecked = knowsFailures && this.#failed.size > 0;
    // A complete tier knows its blocks at all times.
    const early = this.isComplete ? undefined : this.#arrivals.take(id);
    for (const block of wanted) {
      const isUsable = (place: string): boolean => !isChecked || !this.#failed.has(`${id} ${place} ${block.key}`);
      const { group, index, key } = block;
      const place = early?.has(key) === true ? early.get(key) : this.#placeOf(key, isUsable);
      if (place !== undefined && prng.chance(share)) blocks.push({ group, index, key, place });
      else if (prng.chance(this.faults.falseHits)) blocks.push({ group, index, key, place: prng.pick(places) });
    }
    if (prng.chance(this.faults.foreign)) {
      const [block, key] = [prng.pick(wanted), this.stores[0]!.anyKey()];
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
      if (this.isComplete || this.#prng.chance(0.8))
        saves.push({ transfer: newTransferId(), blocks: [{ key, block }] });
    return { saves };
  }

  updateConnectorOutput({ loads, saves }: TransferOutcomes): void {
    this.#arrivals.stepEnds();
    this.#outcomes.check(loads, saves);
    for (const { transfer, result } of loads)
      assert(
        result === 'notReported' || this.#heardAtMs < this.#expiresAtMs.get(transfer)!,
        `I6: load ${transfer} was given up, and its report is accepted now`,
      );
    this.#heardAtMs = this.nowMs;
    for (const { transfer, block, result } of loads) {
      if (result === 'loaded') this.loadedBlocks++;
      else this.failedBlocks++;
      const open = this.#openLoads.get(transfer);
      if (open?.blocks.delete(block) === true && open.blocks.size === 0) this.#openLoads.delete(transfer);
    }
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
    const ends = this.#workers.map((worker) => worker.nextEventMs());
    const next = Math.min(...ends, this.#arrivals.nextEventMs);
    return next === Infinity ? undefined : next;
  }

  /** When the engine must give up a load at the latest; Infinity: no request waits for one. */
  nextExpiryMs(): number {
    let next = Infinity;
    for (const transfer of this.#openLoads.keys())
      if (!this.#cancelled.has(transfer)) next = Math.min(next, this.#expiresAtMs.get(transfer)!);
    return next;
  }

  /** These blocks are invalid on all ranks. */
  memoryInvalidated(blocks: readonly BlockId[]): void {
    for (const worker of this.#workers) worker.memoryInvalidated(blocks);
  }

  /** Saves that a step flushed, on all ranks. */
  get flushedSaves(): number {
    return this.#workers.reduce((sum, { saves }) => sum + saves.flushedCount, this.#flushedBefore);
  }

  /** The requests with loads of their own that are open. */
  get loaders(): ReadonlySet<RequestId> {
    return new Set([...this.#openLoads.values()].map(({ requestId }) => requestId));
  }

  /** No new faults; hung loads drain within 100 seconds. */
  calm(): void {
    // Requests must end even if the connector always answers "ask later".
    this.faults = { ...noFaults, askLater: this.faults.askLater };
    for (const worker of this.#workers) worker.calm();
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

  /** The orders of a step, before the workers get them. Blocks of decided, not cancelled loads that failed must not be in the new loads. */
  checkOrders({ loads, cancelled }: ConnectorMetadata): void {
    for (const id of cancelled) this.#cancelled.add(id);
    for (const { transfer, requestId, place, key } of this.#failing.splice(0))
      if (!this.#cancelled.has(transfer)) this.#failed.add(`${requestId} ${place} ${key}`);
    for (const { transfer, requestId, blocks } of loads) {
      this.#openLoads.set(transfer, { requestId, blocks: new Set(blocks.map(({ block }) => block)) });
      for (const { place, key } of blocks)
        if (this.#failed.has(`${requestId} ${place} ${key}`))
          assert(false, `I8: ${requestId} loads ${key} from ${place} again, where it failed`);
    }
  }

  get hasFaults(): boolean {
    return Object.values(this.faults).some((rate) => rate > 0);
  }
}

const isReported = ({ result }: LoadOutcome): boolean => result !== 'notReported';
const isOfStore = ({ result }: LoadOutcome): boolean => result !== 'workerDied';
