import { assertDefined } from '../../base/assert.ts';
import type { BlockMemory } from '../../core/block-memory.ts';
import type { BlockId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type {
  BlockLoadFailure,
  ConnectorMetadata,
  LoadJob,
  SaveJob,
  TransferId,
  TransferReport,
  WorkerConnector,
  WorkerConnectorContext,
} from '../connector.ts';
import { hasKvOn } from '../tier/blocks-of-rank.ts';
import type { TierCall, TierContext } from '../tier/tier.ts';
import { TierWorker } from '../tier/tier-worker.ts';
import { JoinedEnds } from '../transfer/joined-ends.ts';
import { FaultInjector, nothingStored } from './fault-injector.ts';
import { type DrawnFault, FaultDice, type FaultPlan, faultLog } from './fault-rules.ts';

const options = { loadsAtOnce: 1024, savesAtOnce: 1024, saveTimeoutMs: 30_000, breaker: 'none' } as const;

/**
 * The worker side of a connector that has no tier to wrap, with faults of its loads and saves. It consists of two worker
 * sides: the connector inside, and one for the blocks with a fault, whose tier is empty.
 *
 *     block without a fault        --> the connector inside
 *     slow, late, duplicate        --> both
 *     any other fault              --> the side of the faults only: the connector inside never sees the block
 *
 * A transfer is decided, and drained, when both sides say so.
 */
export class FaultyWorker implements WorkerConnector {
  readonly #inner: WorkerConnector;
  readonly #faults: TierWorker;
  readonly #injector: FaultInjector;
  readonly #dice: FaultDice;
  readonly #hasKv: (key: BlockKey) => boolean;
  /** The faults of ordered blocks, until their calls. */
  readonly #drawn = new Map<string, DrawnFault[]>();
  /** Of transfers with blocks for both sides. */
  readonly #ends = new JoinedEnds();
  /** The blocks that the connector inside may still write although they have a fault. */
  readonly #busyInside = new Map<TransferId, ReadonlySet<BlockId>>();
  /** The orders of the step for both sides. */
  #orders: { readonly inner: ConnectorMetadata; readonly faults: ConnectorMetadata } | undefined;

  constructor(inner: WorkerConnector, context: WorkerConnectorContext, plan: FaultPlan) {
    this.#inner = inner;
    this.#dice = new FaultDice(plan, faultLog(context.event, context.identity));
    this.#hasKv = hasKvOn(context.identity);
    const { counts } = this.#dice;
    const draw = (on: TierCall, key: BlockKey, call: TierContext | undefined) =>
      this.#drawn.get(nameOf(on, key, call))?.shift();
    const { identity, timers } = context;
    this.#injector = new FaultInjector(nothingStored, { identity, timers, dice: { draw, counts } });
    // Saves copy their blocks: a fault pins no block.
    this.#faults = new TierWorker(this.#injector, context, { ...options, saveBufferBytes: Number.MAX_SAFE_INTEGER });
  }

  registerKvCaches(memory: BlockMemory): void {
    this.#inner.registerKvCaches(memory);
    this.#faults.registerKvCaches(memory);
  }

  async handlePreemptions(metadata: ConnectorMetadata): Promise<void> {
    const loads = this.#split(metadata.loads, 'load', ({ requestId }, { index }) => ({ requestId, index }));
    const saves = this.#split(metadata.saves, 'store', () => undefined);
    const { extra: _, ...orders } = metadata;
    this.#orders = {
      inner: { ...metadata, loads: loads.inner, saves: saves.inner },
      faults: { ...orders, loads: loads.faults, saves: saves.faults },
    };
    const { inner, faults } = this.#orders;
    await Promise.all([this.#inner.handlePreemptions(inner), this.#faults.handlePreemptions(faults)]);
  }

  bindConnectorMetadata(_metadata: ConnectorMetadata): void {
    const { inner, faults } = assertDefined(this.#orders, 'a step begins with handlePreemptions');
    this.#inner.bindConnectorMetadata(inner);
    this.#faults.bindConnectorMetadata(faults);
  }

  startLoadKv(): void {
    this.#faults.startLoadKv();
    this.#inner.startLoadKv();
  }

  async waitForLayerLoad(layer: number): Promise<void> {
    await Promise.all([this.#inner.waitForLayerLoad(layer), this.#faults.waitForLayerLoad(layer)]);
  }

  saveKvLayer(layer: number): void {
    this.#inner.saveKvLayer(layer);
  }

  async waitForSave(): Promise<void> {
    await Promise.all([this.#inner.waitForSave(), this.#faults.waitForSave()]);
  }

  getFinished(): TransferReport {
    const [inner, faults] = [this.#inner.getFinished(), this.#faults.getFinished()];
    const { own = {} } = faults.stats ?? {};
    for (const id of inner.drained) this.#busyInside.delete(id);
    // A block that arrived inside may still have a fault.
    const arrived = inner.arrived?.filter(({ transfer }) => !this.#ends.isLoading(transfer));
    return {
      ...inner,
      ...this.#ends.ended([inner, faults]),
      saveFailures: [...inner.saveFailures, ...faults.saveFailures],
      ...(arrived === undefined ? {} : { arrived }),
      counters: { ...inner.counters, ...own },
    };
  }

  /** A block that is slow or late may be reported by both sides. The engine joins the two failures. */
  getBlockIdsWithLoadErrors(): readonly BlockLoadFailure[] {
    const failures = this.#faults.getBlockIdsWithLoadErrors().map((failure) => ({
      ...failure,
      isBlockBusy: failure.isBlockBusy || this.#busyInside.get(failure.transfer)?.has(failure.block) === true,
    }));
    return [...this.#inner.getBlockIdsWithLoadErrors(), ...failures];
  }

  clearConnectorMetadata(): void {
    this.#orders = undefined;
    this.#inner.clearConnectorMetadata();
    this.#faults.clearConnectorMetadata();
  }

  async shutdown(limits: { readonly timeoutMs: number }): Promise<{ readonly drained: boolean }> {
    const [inner, faults] = await Promise.all([this.#inner.shutdown(limits), this.#faults.shutdown(limits)]);
    await this.#injector.close();
    return { drained: inner.drained && faults.drained };
  }

  /** Ends the calls that hang. Their blocks fail. */
  releaseHung(): void {
    this.#injector.releaseHung();
  }

  checkInvariants(): void {
    this.#faults.checkInvariants();
  }

  /** Draws the faults of the blocks. A transfer with blocks for both sides ends when both have ended it. */
  #split<
    Block extends { readonly key: BlockKey; readonly block: BlockId },
    Job extends (LoadJob | SaveJob) & { readonly blocks: readonly Block[] },
  >(
    jobs: readonly Job[],
    on: TierCall,
    contextOf: (job: Job, block: Job['blocks'][number]) => TierContext | undefined,
  ): { readonly inner: readonly Job[]; readonly faults: readonly Job[] } {
    const split: { inner: Job[]; faults: Job[] } = { inner: [], faults: [] };
    for (const job of jobs) {
      const inside: Block[] = [];
      const faulty: Block[] = [];
      for (const block of job.blocks) {
        const context = contextOf(job, block);
        const drawn = this.#hasKv(block.key) ? this.#dice.draw(on, block.key, context) : undefined;
        if (drawn === undefined || ['slow', 'late', 'duplicate'].includes(drawn.rule.fault)) inside.push(block);
        if (drawn === undefined) continue;
        faulty.push(block);
        const name = nameOf(on, block.key, context);
        this.#drawn.set(name, [...(this.#drawn.get(name) ?? []), drawn]);
      }
      if (faulty.length > 0) split.faults.push({ ...job, blocks: faulty });
      if (inside.length > 0 || faulty.length === 0) split.inner.push({ ...job, blocks: inside });
      if (inside.length === 0 || faulty.length === 0) continue;
      this.#ends.begin(on === 'load' ? 'load' : 'save', job.transfer, [0, 1]);
      const both = faulty.filter((block) => inside.includes(block)).map(({ block }) => block);
      if (both.length > 0) this.#busyInside.set(job.transfer, new Set(both));
    }
    return split;
  }
}

const nameOf = (on: TierCall, key: BlockKey, context: TierContext | undefined): string =>
  `${on}/${key}/${context?.requestId}`;
