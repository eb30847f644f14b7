import { assert, assertDefined, assertNever } from '../../base/assert.ts';
import type { BlockMemory } from '../../core/block-memory.ts';
import type { BlockKey } from '../block-key.ts';
import type {
  BlockLoadFailure,
  BlockSaveFailure,
  ConnectorMetadata,
  TransferId,
  TransferReport,
  WorkerConnector,
  WorkerConnectorContext,
} from '../connector.ts';
import { type ConnectorStats, changeOfStats } from '../connector-stats.ts';
import type { LoadFailureReason, SaveFailureReason } from '../reasons.ts';
import { hasKvOn } from '../tier/blocks-of-rank.ts';
import { TransferQueue } from '../transfer/transfer-queue.ts';
import { delay } from './delay.ts';
import { FaultDice, type FaultPlan } from './fault-rules.ts';
import { drawFaults, type FaultyBlock, type FaultyStep, takesTime } from './faulty-step.ts';
import { HungCalls, never } from './hung-calls.ts';

/** A save that is slow or hangs has failed by then. */
const saveTimeoutMs = 30_000;

/**
 * The worker side of a connector that has no tier to wrap, with faults of its loads and saves.
 *
 *     block without a fault    --> the connector inside
 *     slow, late               --> the connector inside, and a queue of faults
 *     any other fault          --> the queue of faults only: the connector inside never sees the block
 *
 * A transfer is decided, and drained, when both sides say so. The queue keeps the deadlines of loads (I8), and knows which
 * blocks a fault may still write (I5).
 */
export class FaultyWorker implements WorkerConnector {
  readonly #inner: WorkerConnector;
  readonly #context: WorkerConnectorContext;
  readonly #dice: FaultDice;
  readonly #hung = new HungCalls();
  readonly #hasKv: (key: BlockKey) => boolean;
  readonly #loads: TransferQueue<FaultyBlock, LoadFailureReason>;
  readonly #saves: TransferQueue<FaultyBlock, SaveFailureReason>;
  /** How many sides have not decided, or not drained, a transfer. Absent: one side has the whole transfer. */
  readonly #undecided = new Map<TransferId, number>();
  readonly #undrained = new Map<TransferId, number>();
  /** Transfers with the fault `duplicate`: their end is reported twice. */
  readonly #duplicates = new Set<TransferId>();
  #reported: ConnectorStats = {};
  #memory: BlockMemory | undefined;
  /** Of the current step. */
  #step: FaultyStep | undefined;
  #decidedLoads: TransferId[] = [];
  #decidedSaves: TransferId[] = [];
  #drained: TransferId[] = [];
  #loadFailures: BlockLoadFailure[] = [];
  #saveFailures: BlockSaveFailure[] = [];
  #again: { readonly loads: TransferId[]; readonly saves: TransferId[] } = { loads: [], saves: [] };
  #shutdown: Promise<{ readonly drained: boolean }> | undefined;

  constructor(inner: WorkerConnector, context: WorkerConnectorContext, plan: FaultPlan) {
    this.#inner = inner;
    this.#context = context;
    this.#dice = new FaultDice(plan);
    this.#hasKv = hasKvOn(context.identity);
    const { clock, timers, wake: onChange } = context;
    const options = { concurrency: Number.MAX_SAFE_INTEGER, clock, timers, onChange };
    this.#loads = new TransferQueue({ ...options, run: (block, signal) => this.#load(block, signal) });
    this.#saves = new TransferQueue({ ...options, run: (block, signal) => this.#save(block, signal) });
  }

  registerKvCaches(memory: BlockMemory): void {
    this.#memory = memory;
    this.#inner.registerKvCaches(memory);
  }

  handlePreemptions(metadata: ConnectorMetadata): Promise<void> {
    for (const id of metadata.cancelled) this.#loads.cancel(id);
    this.#step = drawFaults(metadata, this.#dice, this.#hasKv);
    this.#expect(this.#step);
    return this.#inner.handlePreemptions(this.#step.inner);
  }

  bindConnectorMetadata(_metadata: ConnectorMetadata): void {
    this.#inner.bindConnectorMetadata(this.#current().inner);
  }

  startLoadKv(): void {
    const { loads, saves } = this.#current();
    for (const { job, faulty } of loads)
      this.#loads.submit(job.transfer, faulty, { timeoutMs: job.timeoutMs, urgent: job.mode === 'sync' });
    for (const { job, faulty } of saves) this.#saves.submit(job.transfer, faulty, { timeoutMs: saveTimeoutMs });
    this.#inner.startLoadKv();
  }

  async waitForLayerLoad(layer: number): Promise<void> {
    await this.#inner.waitForLayerLoad(layer);
    for (const { job } of this.#current().loads) if (job.mode === 'sync') await this.#loads.whenDecided(job.transfer);
  }

  saveKvLayer(layer: number): void {
    this.#inner.saveKvLayer(layer);
  }

  waitForSave(): Promise<void> {
    return this.#inner.waitForSave();
  }

  getFinished(): TransferReport {
    const report = this.#inner.getFinished();
    this.#collect();
    // A block that arrived inside may still have a fault.
    const arrived = report.arrived?.filter(({ transfer }) => !this.#undecided.has(transfer));
    const finishedRecving = ended(this.#undecided, [...report.finishedRecving, ...this.#decidedLoads.splice(0)]);
    const finishedSending = ended(this.#undecided, [...report.finishedSending, ...this.#decidedSaves.splice(0)]);
    const again = this.#again;
    this.#again = {
      loads: finishedRecving.filter((id) => this.#duplicates.delete(id)),
      saves: finishedSending.filter((id) => this.#duplicates.delete(id)),
    };
    return {
      ...report,
      finishedRecving: [...finishedRecving, ...again.loads],
      finishedSending: [...finishedSending, ...again.saves],
      drained: ended(this.#undrained, [...report.drained, ...this.#drained.splice(0)]),
      saveFailures: [...report.saveFailures, ...this.#saveFailures.splice(0)],
      ...(arrived === undefined ? {} : { arrived }),
      counters: { ...report.counters, ...this.#newFaults() },
    };
  }

  /** A block that is slow or late may be reported by both sides. The engine joins the two failures. */
  getBlockIdsWithLoadErrors(): readonly BlockLoadFailure[] {
    this.#collect();
    return [...this.#inner.getBlockIdsWithLoadErrors(), ...this.#loadFailures.splice(0)];
  }

  clearConnectorMetadata(): void {
    this.#step = undefined;
    this.#inner.clearConnectorMetadata();
  }

  shutdown({ timeoutMs }: { readonly timeoutMs: number }): Promise<{ readonly drained: boolean }> {
    this.#shutdown ??= this.#end(timeoutMs);
    return this.#shutdown;
  }

  /** Ends the calls that hang. Their blocks fail. */
  releaseHung(): void {
    this.#hung.release();
  }

  checkInvariants(): void {
    this.#loads.checkInvariants();
    this.#saves.checkInvariants();
    for (const left of [...this.#undecided.values(), ...this.#undrained.values()])
      assert(left === 1 || left === 2, `${left} sides have a transfer`);
  }

  /** Notes which transfers end only when both sides have ended them. */
  #expect({ loads, saves, duplicates }: FaultyStep): void {
    for (const { job, isShared } of [...loads, ...saves]) if (isShared) this.#undecided.set(job.transfer, 2);
    for (const { job, isShared } of loads) if (isShared) this.#undrained.set(job.transfer, 2);
    // A fault of a save does not read the pool.
    for (const { job, isShared } of saves) if (!isShared) this.#drained.push(job.transfer);
    for (const id of duplicates) this.#duplicates.add(id);
  }

  async #load({ key, block, rule }: FaultyBlock, signal: AbortSignal): Promise<LoadFailureReason | undefined> {
    const bytes = assertDefined(this.#memory, 'the pool is not registered').bytesOf(block);
    switch (rule.fault) {
      case 'missing':
        return 'missing';
      case 'truncated':
      case 'wrongModel':
      case 'bitFlip':
        // The bytes of the store cannot be changed from here. This is the answer of its verification.
        bytes.fill(0x5a);
        return rule.fault === 'bitFlip' ? 'corrupt' : rule.fault;
      case 'partial':
        bytes.fill(0x5a, 0, Math.floor(bytes.length / 2));
        return 'storeFailed';
      case 'slow':
        await delay(this.#context.timers, rule.delayMs, signal);
        return undefined;
      case 'late':
        await delay(this.#context.timers, rule.delayMs, never);
        if (signal.aborted) bytes.fill(0x5a);
        return undefined;
      case 'hung':
        await this.#hung.hang('load', key, rule.ignoresAbort, signal);
        return 'storeFailed';
      case 'error':
      case 'full':
        return 'storeFailed';
      case 'duplicate':
        return undefined;
      default:
        return assertNever(rule.fault);
    }
  }

  async #save({ key, rule }: FaultyBlock, signal: AbortSignal): Promise<SaveFailureReason | undefined> {
    switch (rule.fault) {
      // Reported as stored, and not stored.
      case 'missing':
      case 'truncated':
      case 'wrongModel':
      case 'bitFlip':
      case 'duplicate':
        return undefined;
      case 'slow':
      case 'late':
        await delay(this.#context.timers, rule.delayMs, signal);
        return undefined;
      case 'hung':
        await this.#hung.hang('store', key, rule.ignoresAbort, signal);
        return 'storeFailed';
      case 'full':
        return 'storeFull';
      case 'error':
      case 'partial':
        return 'storeFailed';
      default:
        return assertNever(rule.fault);
    }
  }

  /** How often each fault was drawn since the last report. */
  #newFaults(): Readonly<Record<string, number>> {
    const now = { own: { ...this.#dice.counts } };
    const { own = {} } = changeOfStats(now, this.#reported);
    this.#reported = now;
    return own;
  }

  #collect(): void {
    const loads = this.#loads.takeReport();
    this.#decidedLoads.push(...loads.decided);
    this.#drained.push(...loads.drained);
    for (const { transfer, item, reason, isBusy } of loads.failures) {
      // The connector inside may still write a block that is slow or late: it has not reported the load as drained.
      const isBlockBusy = isBusy || (takesTime(item.rule) && this.#undrained.get(transfer) === 2);
      this.#loadFailures.push({ transfer, block: item.block, reason, isBlockBusy });
    }
    const saves = this.#saves.takeReport();
    this.#decidedSaves.push(...saves.decided);
    for (const { transfer, item, reason } of saves.failures)
      this.#saveFailures.push({ transfer, key: item.key, reason });
  }

  async #end(timeoutMs: number): Promise<{ readonly drained: boolean }> {
    this.#loads.close();
    const [{ drained }] = await Promise.all([this.#inner.shutdown({ timeoutMs }), this.#drainedWithin(timeoutMs)]);
    const isDrained = drained && this.#loads.openCount === 0;
    this.#saves.close();
    await this.#hung.close();
    return { drained: isDrained };
  }

  #drainedWithin(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#context.timers.after(timeoutMs, resolve);
      void this.#loads.whenDrained().then(() => {
        timer.cancel();
        resolve();
      });
    });
  }

  #current(): FaultyStep {
    return assertDefined(this.#step, 'a step begins with handlePreemptions');
  }
}

/** The transfers that no side has left to end. `open`: how many sides have to end a transfer; absent: one. */
function ended(open: Map<TransferId, number>, ids: readonly TransferId[]): TransferId[] {
  return ids.filter((id) => {
    const left = (open.get(id) ?? 1) - 1;
    if (left === 0) open.delete(id);
    else open.set(id, left);
    return left === 0;
  });
}
