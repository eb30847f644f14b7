import { setImmediate as nextTurn } from 'node:timers/promises';
import { byName } from '../../base/by-name.ts';
import type { Clock } from '../../base/clock.ts';
import { settlesWithin } from '../../base/deadlines.ts';
import type { MemoryAhead } from '../../base/memory-ahead.ts';
import type { Timers } from '../../base/timers.ts';
import type { BlockKey } from '../block-key.ts';
import type { PlaceChange } from '../connector.ts';
import { type ConnectorStats, sumOfStats, type TierLevels, type TierTotals } from '../connector-stats.ts';
import { tierClosed } from '../errors.ts';
import type { LoadFailureReason } from '../reasons.ts';
import type { HostTier } from '../tier/host/tier-host.ts';
import type { LookupAnswers } from '../tier/look-up.ts';
import { OpenCalls } from '../tier/open-calls.ts';
import {
  type HangableTier,
  isHangable,
  type StoreAnswer,
  type TamperableTier,
  type TierContext,
} from '../tier/tier.ts';
import { levelsOf, TierMeter } from '../tier/tier-meter.ts';
import type { TierOrder, TierOrderAnswer } from '../tier-orders.ts';
import { carryOut } from './carry-out.ts';
import type { SecondaryTier } from './secondary-tier.ts';
import type { WritePace } from './write-pace.ts';

export interface TierStackOptions {
  readonly host: HostTier;
  /** Maps the memory of the host tier. The stack wakes it, also at once, and closes it. */
  readonly memoryAhead?: MemoryAhead<Uint8Array>;
  /** In the order in which they are tried. */
  readonly secondaries: readonly SecondaryTier[];
  readonly clock: Clock;
  readonly timers: Timers;
  /** Of the writes to the secondaries. */
  readonly pace?: WritePace;
  /** How long another server may wait for leased blocks. */
  readonly leaseMs?: number;
  /** How long `close` waits for the next block to be written. */
  readonly closeTimeoutMs?: number;
  /** For orders: the bytes of a block, and how a tier is opened that is attached. */
  readonly blockBytes: number;
  readonly openSecondary: (name: string, spec: string) => Promise<SecondaryTier>;
}

const defaultCloseTimeoutMs = 500;
/** The process that closes its engine waits 5 s for a worker. */
const closeMaxMs = 4_000;

/**
 * Host memory, and tiers below it, as one tier of one rank.
 *
 *     store:  pool --> host memory --> every secondary tier, in the background
 *     load:   host memory, or else the tier that was promised, or else the others in order;
 *             a block from below is kept in host memory, too
 *
 * A load fails only if no tier gives the block: the next tier is tried before the KV is computed again.
 */
export class TierStack implements TamperableTier {
  readonly name = 'host';
  readonly #host: HostTier;
  /** Replaced, and never changed: calls under way go on with the tiers that there were. */
  #secondaries: readonly SecondaryTier[];
  /** What detached tiers did. */
  #detached: ConnectorStats = {};
  readonly #options: TierStackOptions;
  readonly #hostMeter = new TierMeter();
  readonly #calls: OpenCalls;
  /** Host memory has no threads: a hung call blocks a thread of the first tier that has some. */
  readonly hang: HangableTier['hang'] | undefined;

  constructor(options: TierStackOptions) {
    this.#options = options;
    this.#host = options.host;
    this.#secondaries = options.secondaries;
    this.#calls = new OpenCalls(() => tierClosed({ tier: this.name }));
    const hangable = options.secondaries.map(({ tier }) => tier).find(isHangable);
    this.hang = hangable === undefined ? undefined : (...call) => hangable.hang(...call);
    options.memoryAhead?.wake();
  }

  has(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    return this.#calls.run(async () => {
      const answers: (boolean | undefined)[] = keys.map((key) =>
        signal.aborted ? undefined : this.#host.holds(key) || undefined,
      );
      for (const { tier } of this.#secondaries) {
        const open = keys.map((_, i) => i).filter((i) => answers[i] !== true);
        if (open.length === 0 || signal.aborted) break;
        const found = await tier.has(
          open.map((i) => keys[i]!),
          signal,
        );
        for (const [at, i] of open.entries()) answers[i] = found[at] ?? answers[i];
      }
      if (this.#secondaries.length === 0 && !signal.aborted) return answers.map((answer) => answer === true);
      return answers;
    });
  }

  load(
    key: BlockKey,
    into: Uint8Array,
    signal: AbortSignal,
    context?: TierContext,
  ): Promise<LoadFailureReason | undefined> {
    return this.#loading(async () => {
      signal.throwIfAborted();
      // A copy takes long for the event loop, so each has a turn of its own.
      await nextTurn();
      signal.throwIfAborted();
      let reason = this.#loadFromHost(key, into, context?.place);
      if (reason === undefined) {
        context?.servedBy?.(this.#host.name);
        return undefined;
      }
      for (const secondary of this.#inOrder(context?.place)) {
        const failure = await secondary.load(key, into, signal, context);
        signal.throwIfAborted();
        if (failure === undefined) {
          // Keeps the block in host memory, if there is room.
          this.#host.storeNow(key, into, context?.saltTag);
          context?.servedBy?.(secondary.name);
          return undefined;
        }
        // A tier that has no such block says less than one with a damaged block or an error.
        if (reason === 'missing') reason = failure;
      }
      return reason;
    });
  }

  store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal, context?: TierContext): Promise<StoreAnswer> {
    return this.#calls.run(async () => {
      signal.throwIfAborted();
      await nextTurn();
      signal.throwIfAborted();
      const startedMs = this.#options.clock.nowMs();
      const answer = this.#host.storeNow(key, bytes, context?.saltTag);
      this.#options.memoryAhead?.wake();
      if (answer === 'stored') {
        this.#hostMeter.stored(bytes.length, this.#options.clock.nowMs() - startedMs);
        for (const secondary of this.#secondaries) secondary.offer(key);
      } else if (answer === 'full') this.#hostMeter.storeFailed('storeFull');
      return answer;
    });
  }

  /** Another server is about to load these blocks from a secondary tier. */
  lease(keys: readonly BlockKey[]): void {
    const { pace, leaseMs } = this.#options;
    if (keys.length > 0) pace?.lease(leaseMs ?? 0);
    for (const secondary of this.#secondaries) secondary.lease(keys, (key) => this.#host.holds(key));
  }

  delete(key: BlockKey): Promise<void> {
    return this.#calls.run(async () => {
      // A block that is being written is pinned in host memory, and could not be stored again meanwhile.
      await this.#whenWritten();
      await this.#host.delete(key);
      await Promise.all(this.#secondaries.map(({ tier }) => tier.delete(key)));
    });
  }

  /** Carries out an order of an administrator. */
  administer(order: TierOrder): Promise<TierOrderAnswer> {
    return this.#calls.run(() =>
      carryOut(order, {
        ...this.#options,
        secondaries: this.#secondaries,
        load: (...call) => this.load(...call),
        attach: (secondary) => {
          this.#secondaries = [...this.#secondaries, secondary];
        },
        detach: (name) => this.#detach(name),
      }),
    );
  }

  /** Loads from the tier end as those from a tier that fails. Blocks that wait to be written are dropped. */
  async #detach(name: string): Promise<number | undefined> {
    const secondary = this.#secondaries.find((tier) => tier.name === name);
    if (secondary === undefined) return undefined;
    this.#secondaries = this.#secondaries.filter((tier) => tier !== secondary);
    const { openStores } = secondary;
    const closing = secondary.close();
    this.#detached = sumOfStats([this.#detached, { tiers: { [name]: secondary.totals() } }]);
    await settlesWithin(this.#options.timers, this.#options.closeTimeoutMs ?? defaultCloseTimeoutMs, closing);
    return openStores;
  }

  /** Changes the block in every tier that has it. */
  tamper(key: BlockKey, corrupt: (stored: Uint8Array) => Uint8Array): Promise<boolean> {
    return this.#calls.run(async () => {
      await this.#whenWritten();
      let isChanged = await this.#host.tamper(key, corrupt);
      for (const { tier } of this.#secondaries)
        if ('tamper' in tier && (await (tier as TamperableTier).tamper(key, corrupt))) isChanged = true;
      return isChanged;
    });
  }

  /** Of host memory: look-ups ask the other tiers themselves. */
  takeEvicted(): readonly BlockKey[] {
    return this.#host.takeEvicted();
  }

  /** Of the tiers below host memory. */
  takeChanges(): readonly PlaceChange[] {
    return this.#secondaries.map((secondary) => secondary.takeChange()).filter((change) => change !== undefined);
  }

  counters(): Readonly<Record<string, number>> {
    return {};
  }

  /** Of each tier. */
  stats(): Pick<ConnectorStats, 'tiers' | 'levels'> {
    const { evicted = 0 } = this.#host.counters();
    const tiers: Record<string, TierTotals> = byName({ [this.#host.name]: { ...this.#hostMeter.totals, evicted } });
    const levels: Record<string, TierLevels> = byName({ [this.#host.name]: levelsOf(this.#host) });
    for (const secondary of this.#secondaries) {
      tiers[secondary.name] = secondary.totals();
      levels[secondary.name] = secondary.levels();
    }
    const { tiers: all = tiers } = this.#detached.tiers === undefined ? {} : sumOfStats([this.#detached, { tiers }]);
    return { tiers: all, levels: { tiers: levels } };
  }

  /** Waits for blocks that wait to be written, as long as blocks are written. Tiers that hang are not waited for. */
  async close(): Promise<void> {
    const timeoutMs = this.#options.closeTimeoutMs ?? defaultCloseTimeoutMs;
    const calls = this.#calls.close();
    void this.#options.memoryAhead?.close();
    await this.#whileWriting(timeoutMs);
    this.#options.pace?.close();
    const closing = Promise.all(this.#secondaries.map((secondary) => secondary.close()));
    await settlesWithin(this.#options.timers, timeoutMs, closing);
    await calls;
    await this.#host.close();
  }

  checkInvariants(): void {
    this.#host.checkInvariants();
    for (const secondary of this.#secondaries) secondary.checkInvariants();
  }

  /** Writes leave the machine to the load. */
  #loading<T>(load: () => Promise<T>): Promise<T> {
    const { pace } = this.#options;
    return this.#calls.run(async () => {
      pace?.beginLoad();
      try {
        return await load();
      } finally {
        pace?.endLoad();
      }
    });
  }

  /** Until all blocks are written, none was written for `timeoutMs`, or the longest time has passed. */
  async #whileWriting(timeoutMs: number): Promise<void> {
    const { clock, timers } = this.#options;
    const untilMs = clock.nowMs() + Math.max(timeoutMs, closeMaxMs);
    for (let before = -1; this.#openStores > 0 && this.#openStores !== before && clock.nowMs() < untilMs; ) {
      before = this.#openStores;
      const leftMs = untilMs - clock.nowMs();
      await settlesWithin(timers, Math.min(timeoutMs, leftMs), this.#whenWritten());
    }
  }

  async #whenWritten(): Promise<void> {
    await Promise.all(this.#secondaries.map((secondary) => secondary.whenWritten()));
  }

  get #openStores(): number {
    return this.#secondaries.reduce((sum, { openStores }) => sum + openStores, 0);
  }

  #loadFromHost(key: BlockKey, into: Uint8Array, place: string | undefined): LoadFailureReason | undefined {
    const startedMs = this.#options.clock.nowMs();
    const reason = this.#host.loadNow(key, into);
    if (reason === undefined) this.#hostMeter.loaded(into.length, this.#options.clock.nowMs() - startedMs);
    // A block that another tier promised need not be in host memory.
    else if (reason !== 'missing' || place === undefined || place === this.#host.name)
      this.#hostMeter.loadFailed(reason);
    return reason;
  }

  #inOrder(place: string | undefined): readonly SecondaryTier[] {
    const promised = this.#secondaries.filter(({ name }) => name === place);
    if (promised.length === 0) return this.#secondaries;
    return [...promised, ...this.#secondaries.filter(({ name }) => name !== place)];
  }
}
