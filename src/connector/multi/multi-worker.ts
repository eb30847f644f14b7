import { assertDefined } from '../../base/assert.ts';
import type { BlockMemory } from '../../core/block-memory.ts';
import type { BlockId } from '../../core/ids.ts';
import type {
  BlockLoadFailure,
  ConnectorMetadata,
  PlaceChange,
  TransferId,
  TransferReport,
  WorkerConnector,
} from '../connector.ts';
import { type ConnectorStats, sumOfStats } from '../connector-stats.ts';
import type { TierOrder, TierOrderAnswer } from '../tier-orders.ts';
import { JoinedEnds } from '../transfer/joined-ends.ts';
import { carryOutInAll } from './multi-administration.ts';
import { messageOf } from './multi-message.ts';
import { loadOf } from './multi-scheduler.ts';
import { countersOf, nameOf, statsOf } from './names.ts';

/**
 * The worker sides of several connectors as one. A load has a part for each connector that promised blocks of it, and a save belongs to
 * one connector (`MultiScheduler`). Each connector gets its own orders only, so what it reports of other transfers is ignored.
 */
export class MultiWorker implements WorkerConnector {
  readonly administer: WorkerConnector['administer'];
  readonly #sides: readonly WorkerConnector[];
  readonly #ends = new JoinedEnds();
  /** By side, the blocks of its parts of loads that it has not decided. */
  readonly #loading: readonly Map<TransferId, ReadonlySet<BlockId>>[];
  /** By side, how many ranks it has said take part. */
  readonly #expected: number[];
  /** Of parts of loads that failed as a whole. */
  #failures: BlockLoadFailure[] = [];
  /** The orders of the step, one for each side. */
  #orders: readonly ConnectorMetadata[] | undefined;

  constructor(sides: readonly WorkerConnector[]) {
    this.#sides = sides;
    this.#loading = sides.map(() => new Map());
    this.#expected = sides.map(() => 0);
    const orders = sides.map((side) => side.administer?.bind(side));
    if (orders.some((administer) => administer !== undefined))
      this.administer = (order: TierOrder): Promise<TierOrderAnswer> => carryOutInAll(order, orders);
  }

  registerKvCaches(memory: BlockMemory): void {
    for (const side of this.#sides) side.registerKvCaches(memory);
  }

  async handlePreemptions(metadata: ConnectorMetadata): Promise<void> {
    this.#orders = this.#split(metadata);
    await Promise.all(this.#each((side, orders) => side.handlePreemptions(orders)));
  }

  bindConnectorMetadata(_metadata: ConnectorMetadata): void {
    this.#each((side, orders) => side.bindConnectorMetadata(orders));
  }

  startLoadKv(): void {
    for (const side of this.#sides) side.startLoadKv();
  }

  async waitForLayerLoad(layer: number): Promise<void> {
    await Promise.all(this.#sides.map((side) => side.waitForLayerLoad(layer)));
  }

  saveKvLayer(layer: number): void {
    for (const side of this.#sides) side.saveKvLayer(layer);
  }

  async waitForSave(): Promise<void> {
    await Promise.all(this.#sides.map((side) => side.waitForSave()));
  }

  getFinished(): TransferReport {
    const reports = this.#sides.map((side) => side.getFinished());
    for (const [i, report] of reports.entries()) this.#failWhole(i, report);
    const arrived = reports.flatMap(({ arrived = [] }, i) =>
      arrived.filter(({ transfer, block }) => this.#loading[i]!.get(transfer)?.has(block) === true),
    );
    for (const [i, { finishedRecving }] of reports.entries())
      for (const id of finishedRecving) this.#loading[i]!.delete(id);
    const loadedElsewhere = reports.flatMap(({ loadedElsewhere = [] }, i) =>
      loadedElsewhere.map((block) => ({ ...block, place: nameOf(i, block.place) })),
    );
    const placeChanges = reports.flatMap((report, i) => changesOf(i, report));
    const stats = statsOfAll(reports);
    return {
      ...this.#ends.ended(reports),
      failedRecving: [],
      saveFailures: reports.flatMap(({ saveFailures }) => saveFailures),
      ...(loadedElsewhere.length === 0 ? {} : { loadedElsewhere }),
      ...(arrived.length === 0 ? {} : { arrived }),
      evicted: [],
      ...(placeChanges.length === 0 ? {} : { placeChanges }),
      counters: Object.assign({}, ...reports.map(({ counters }, i) => countersOf(i, counters))) as Record<
        string,
        number
      >,
      ...(stats === undefined ? {} : { stats }),
      expectedFinishedCount: this.#expectedCount(reports),
    };
  }

  getBlockIdsWithLoadErrors(): readonly BlockLoadFailure[] {
    const failures = this.#failures;
    this.#failures = [];
    return [...failures, ...this.#sides.flatMap((side) => side.getBlockIdsWithLoadErrors())];
  }

  clearConnectorMetadata(): void {
    this.#orders = undefined;
    for (const side of this.#sides) side.clearConnectorMetadata();
  }

  async shutdown(options: { readonly timeoutMs: number }): Promise<{ readonly drained: boolean }> {
    const ends = await Promise.all(this.#sides.map((side) => side.shutdown(options)));
    return { drained: ends.every(({ drained }) => drained) };
  }

  #each<Result>(call: (side: WorkerConnector, orders: ConnectorMetadata) => Result): Result[] {
    const orders = assertDefined(this.#orders, 'a step begins with handlePreemptions');
    return this.#sides.map((side, i) => call(side, orders[i]!));
  }

  /** Ids that a side does not know, it ignores. */
  #split({ loads, saves, cancelled, jobsToFlush, extra }: ConnectorMetadata): readonly ConnectorMetadata[] {
    const message = messageOf(extra);
    const orders = this.#sides.map((_, i): ConnectorMetadata => {
      const own = message.extras[i];
      return {
        loads: loads.map((load) => loadOf(i, load)).filter((load) => load !== undefined),
        saves: saves.filter(({ transfer }) => message.saves[transfer] === i),
        cancelled,
        jobsToFlush,
        ...(own === undefined ? {} : { extra: own }),
      };
    });
    for (const [i, { loads: ownLoads }] of orders.entries())
      for (const { transfer, blocks } of ownLoads)
        this.#loading[i]!.set(transfer, new Set(blocks.map(({ block }) => block)));
    for (const { transfer } of loads) this.#begin('load', transfer, orders);
    for (const { transfer } of saves) this.#begin('save', transfer, orders);
    return orders;
  }

  #begin(kind: 'load' | 'save', id: TransferId, orders: readonly ConnectorMetadata[]): void {
    const sides = [...orders.keys()].filter((i) =>
      orders[i]![kind === 'load' ? 'loads' : 'saves'].some(({ transfer }) => transfer === id),
    );
    this.#ends.begin(kind, id, sides);
  }

  /** The rest of the load may have arrived from other connectors. */
  #failWhole(side: number, { failedRecving }: TransferReport): void {
    for (const transfer of failedRecving)
      for (const block of this.#loading[side]!.get(transfer) ?? [])
        this.#failures.push({ transfer, block, reason: 'storeFailed', isBlockBusy: false });
  }

  /** Transfers that fewer ranks report than one connector expects would be decided too early. */
  #expectedCount(reports: readonly TransferReport[]): number {
    if (reports.every(({ expectedFinishedCount }) => expectedFinishedCount === 0)) return 0;
    for (const [i, { expectedFinishedCount }] of reports.entries())
      if (expectedFinishedCount > 0) this.#expected[i] = expectedFinishedCount;
    return Math.max(...this.#expected);
  }
}

/** A connector's own store has no name in reports, so in the list it has the empty one. */
function changesOf(connector: number, { evicted, placeChanges = [] }: TransferReport): PlaceChange[] {
  const changes = placeChanges.map((change) => ({ ...change, place: nameOf(connector, change.place) }));
  return evicted.length === 0 ? changes : [...changes, { place: nameOf(connector, ''), stored: [], evicted }];
}

function statsOfAll(reports: readonly TransferReport[]): ConnectorStats | undefined {
  if (reports.every(({ stats }) => stats === undefined)) return undefined;
  return sumOfStats(reports.map(({ stats }, i) => stats && statsOf(i, stats)));
}
