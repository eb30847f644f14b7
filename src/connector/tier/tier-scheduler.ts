import { assert } from '../../base/assert.ts';
import type { JsonObject } from '../../base/json.ts';
import type { BlockId, RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import {
  type ConnectorPlan,
  type ConnectorRequest,
  type ConnectorStep,
  type KvBlock,
  type KvEvent,
  type KvRole,
  type LoadJob,
  type LoadMode,
  loadsKv,
  type MatchAnswer,
  type SaveBlock,
  type SchedulerConnector,
  type SchedulerConnectorContext,
  savesKv,
  type TransferOutcomes,
} from '../connector.ts';
import { type CircuitBreakerOptions, circuitBreakerDefaults } from './circuit-breaker.ts';
import { GatheredWakes } from './gathered-wakes.ts';
import type { LookupAnswers } from './look-up.ts';
import { isRemoteDecode, RemoteDecode, remoteDecodeAnswer } from './remote-decode.ts';
import { type RemotePrefill, RemotePrefills } from './remote-prefill.ts';
import type { Tier, TierWrapping } from './tier.ts';
import { countsOfTier, sumOfCounts } from './tier-counters.ts';
import { type RunningLookup, TierLookups } from './tier-lookups.ts';

export interface TierSchedulerOptions {
  readonly role: KvRole;
  readonly mode: LoadMode;
  /** Blocks without an answer by then are treated as missing. */
  readonly lookupTimeoutMs: number;
  /** As in `SchedulerConnector`. */
  readonly loadTimeoutMs?: number | undefined;
  /** The name of this engine in the answers to `do_remote_decode`. */
  readonly engineId?: string;
  /** As in `RemotePrefills`. */
  readonly remotePrefillTimeoutMs?: number | undefined;
  readonly breaker?: CircuitBreakerOptions;
}

/** The look-ups for one request. */
interface Lookup {
  /** Undefined: not known. The key is not looked up again before the next admission. */
  readonly answers: Map<BlockKey, boolean | undefined>;
  running: RunningLookup | undefined;
}

/** How many stored keys are remembered. */
const knownMax = 1 << 18;
/**
 * How long a block counts as stored after it was found or saved. Other processes may evict it. After this time, a block
 * that a request uses is looked up again, and saved again if it is missing.
 */
const storedTrustMs = 60_000;
/** The shortest time between two such look-ups, because computing the keys of a request takes time. */
const refreshMs = 1_000;

/**
 * The scheduler side of every connector that keeps blocks in a tier. A block is stored if all ranks have their part of
 * it. Look-ups run in the background: the first answer for a request is `askLater`.
 */
export class TierScheduler implements SchedulerConnector {
  /** `TierWorker` flushes saves. */
  readonly canFlush = true;
  /** One per rank, with that rank's identity; used for look-ups only. */
  readonly #tiers: readonly Tier[];
  readonly #place: string;
  readonly #context: SchedulerConnectorContext;
  readonly #options: TierSchedulerOptions;
  readonly #tierLookups: TierLookups;
  readonly #wakes: GatheredWakes;
  readonly #lookups = new Map<RequestId, Lookup>();
  readonly #remotePrefills: RemotePrefills;
  /** Of requests that another server continues. */
  readonly #remoteDecodes = new Map<RequestId, RemoteDecode>();
  /** Of requests whose KV another server has promised. */
  readonly #prefills = new Map<RequestId, RemotePrefill>();
  /** When each key was last found or saved; oldest first. */
  readonly #stored = new Map<BlockKey, number>();
  /** Keys that were stored and are missing now: saved again if the pool still has their blocks. */
  readonly #removed = new Set<BlockKey>();
  #refresh: RunningLookup | undefined;
  #refreshedMs = -Infinity;
  #events: KvEvent[] = [];

  constructor(bare: readonly Tier[], context: SchedulerConnectorContext & TierWrapping, options: TierSchedulerOptions) {
    assert(bare.length === context.identities.length && bare.length > 0, 'one tier per rank');
    const tiers = bare.map((tier, rank) => context.wrapTier?.(tier, context.identities[rank]!) ?? tier);
    this.#tiers = tiers;
    this.#place = tiers[0]!.name;
    this.#context = context;
    this.#options = options;
    this.#tierLookups = new TierLookups(
      tiers,
      context,
      options.lookupTimeoutMs,
      options.breaker ?? circuitBreakerDefaults,
    );
    this.#wakes = new GatheredWakes(context.clock, context.timers, () => context.wake());
    this.#remotePrefills = new RemotePrefills(context, options.remotePrefillTimeoutMs);
  }

  get loadTimeoutMs(): number | undefined {
    return this.#options.loadTimeoutMs;
  }

  getMatchedBlocks(request: ConnectorRequest): MatchAnswer {
    const { mode, role } = this.#options;
    if (!loadsKv(role) || request.wanted.length === 0) return { kind: 'found', blocks: [], mode };
    let lookup = this.#lookups.get(request.id);
    if (lookup === undefined) {
      this.#readPrefill(request);
      lookup = { answers: new Map(), running: undefined };
      this.#lookups.set(request.id, lookup);
    }
    if (lookup.running === undefined) {
      const { answers } = lookup;
      const newKeys = new Set<BlockKey>();
      // A block that failed is not looked up again for the request.
      for (const { key, failedFrom } of request.wanted)
        if (!answers.has(key) && failedFrom === undefined && !this.#tierLookups.isCoolingDown(key)) newKeys.add(key);
      if (newKeys.size > 0) this.#startLookup(lookup, [...newKeys], request);
    }
    if (lookup.running !== undefined) return { kind: 'askLater', deadlineMs: lookup.running.deadlineMs };
    const found = request.wanted.filter(({ key }) => lookup.answers.get(key) === true);
    return { kind: 'found', blocks: found.map((block) => ({ ...block, place: this.#place })), mode };
  }

  updateStateAfterAlloc(request: ConnectorRequest, _: LoadJob | undefined, valid: () => readonly KvBlock[]): void {
    // The next call of `getMatchedBlocks`, after a preemption or a failure, starts a new look-up.
    this.#endLookup(request.id);
    if (isRemoteDecode(request) && savesKv(this.#options.role)) {
      if (!this.#remoteDecodes.has(request.id)) this.#remoteDecodes.set(request.id, new RemoteDecode());
      this.#remoteDecodes.get(request.id)!.add(valid());
    }
    this.#refreshStored(valid);
  }

  buildConnectorMeta(step: ConnectorStep): ConnectorPlan {
    this.#wakes.stepBegins();
    if (!savesKv(this.#options.role)) return nothingToSave;
    const blocks: SaveBlock[] = [];
    const taken = new Set<BlockKey>();
    const save = (key: BlockKey, block: BlockId): void => {
      if (this.#isStored(key) || step.isSaving(key) || taken.has(key)) return;
      taken.add(key);
      blocks.push({ key, block });
    };
    for (const valid of step.newlyValid) {
      save(valid.key, valid.block);
      this.#remoteDecodes.get(valid.requestId)?.add([valid]);
    }
    for (const key of this.#removed) {
      const block = step.validBlock(key);
      if (block !== undefined) save(key, block);
    }
    this.#removed.clear();
    return saveOf(step, blocks);
  }

  updateConnectorOutput({ loads, saves, evicted }: TransferOutcomes): void {
    this.#wakes.stepEnds();
    // The block is saved again when it is computed again. A worker's death says nothing about the store.
    for (const { key, result } of loads) if (result !== 'loaded' && result !== 'workerDied') this.#stored.delete(key);
    const stored = saves.filter(({ result }) => result === 'stored').map(({ key }) => key);
    for (const key of stored) this.#remember(key);
    if (stored.length > 0) this.#events.push({ kind: 'stored', keys: stored, place: this.#place });
    if (evicted.length > 0) {
      for (const key of evicted) this.#stored.delete(key);
      this.#events.push({ kind: 'removed', keys: evicted, place: this.#place });
    }
  }

  requestFinished(
    request: ConnectorRequest,
    valid: () => readonly KvBlock[],
  ): { readonly kvTransferParams?: JsonObject } {
    this.#endLookup(request.id);
    this.#prefills.delete(request.id);
    const remote = this.#remoteDecodes.get(request.id);
    remote?.add(valid());
    this.#remoteDecodes.delete(request.id);
    const { identities } = this.#context;
    return remoteDecodeAnswer(request, remote?.blocks ?? [], { engineId: this.#options.engineId, identities });
  }

  takeEvents(): readonly KvEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  counters(): Readonly<Record<string, number>> {
    return sumOfCounts([
      ...this.#tiers.map(countsOfTier),
      this.#tierLookups.counters(),
      this.#remotePrefills.counters(),
    ]);
  }

  /** Look-ups need no step. Blocks that they found missing need one to be saved. */
  hasPendingWork(): boolean {
    return this.#removed.size > 0;
  }

  async close(): Promise<void> {
    this.#wakes.close();
    this.#tierLookups.close();
    this.#refresh?.cancel();
    for (const id of [...this.#lookups.keys()]) this.#endLookup(id);
    // Not awaited: a tier that hangs must not stop the engine from closing, and this side stores nothing.
    for (const tier of this.#tiers) void tier.close();
    await Promise.resolve();
  }

  /** The wait for a promised block begins with the first look-up. */
  #readPrefill(request: ConnectorRequest): void {
    if (this.#prefills.has(request.id)) return;
    const prefill = this.#remotePrefills.read(request);
    if (prefill !== undefined) this.#prefills.set(request.id, prefill);
  }

  #startLookup(lookup: Lookup, keys: readonly BlockKey[], { id, wanted }: ConnectorRequest): void {
    const promised = this.#remotePrefills.promised(this.#prefills.get(id), wanted);
    lookup.running = this.#wakes.start((done) =>
      this.#remotePrefills.lookUp<boolean | undefined>(
        keys,
        promised,
        (asked, answered) => this.#tierLookups.start(asked, answered),
        (answers) => {
          lookup.running = undefined;
          this.#learn(keys, answers, (key, answer) => void lookup.answers.set(key, answer));
          done();
        },
      ),
    );
    if (lookup.running === undefined) for (const key of keys) lookup.answers.set(key, undefined);
  }

  #endLookup(id: RequestId): void {
    const lookup = this.#lookups.get(id);
    if (lookup === undefined) return;
    this.#lookups.delete(id);
    lookup.running?.cancel();
  }

  /** Looks up the blocks of a request that were stored long ago, because other processes may have removed them. */
  #refreshStored(valid: () => readonly KvBlock[]): void {
    const nowMs = this.#context.clock.nowMs();
    if (!savesKv(this.#options.role) || this.#refresh !== undefined || nowMs - this.#refreshedMs < refreshMs) return;
    this.#refreshedMs = nowMs;
    const keys = [...new Set(valid().map(({ key }) => key))].filter(
      (key) => this.#stored.has(key) && !this.#isStored(key) && !this.#tierLookups.isCoolingDown(key),
    );
    if (keys.length === 0) return;
    this.#refresh = this.#tierLookups.start(keys, (answers) => {
      this.#refresh = undefined;
      this.#learn(keys, answers, (key, answer) => {
        if (answer === false) this.#removed.add(key);
      });
      if (this.#removed.size > 0) this.#context.wake();
    });
  }

  /** Updates the stored keys. A missing block is saved again when it becomes valid. */
  #learn(
    keys: readonly BlockKey[],
    answers: LookupAnswers,
    each: (key: BlockKey, answer: boolean | undefined) => void,
  ): void {
    for (const [i, key] of keys.entries()) {
      const answer = answers[i];
      if (answer === true) this.#remember(key);
      else if (answer === false) this.#stored.delete(key);
      each(key, answer);
    }
  }

  /** Whether the key was recently found in the store or saved. */
  #isStored(key: BlockKey): boolean {
    const seenMs = this.#stored.get(key);
    return seenMs !== undefined && this.#context.clock.nowMs() - seenMs < storedTrustMs;
  }

  #remember(key: BlockKey): void {
    this.#stored.delete(key);
    this.#stored.set(key, this.#context.clock.nowMs());
    if (this.#stored.size <= knownMax) return;
    for (const oldest of this.#stored.keys()) {
      this.#stored.delete(oldest);
      return;
    }
  }
}

export const nothingToSave: ConnectorPlan = Object.freeze({ saves: [] });

/** One save of these blocks, or none. */
export const saveOf = (step: Pick<ConnectorStep, 'newTransferId'>, blocks: readonly SaveBlock[]): ConnectorPlan =>
  blocks.length === 0 ? nothingToSave : { saves: [{ transfer: step.newTransferId(), blocks }] };
