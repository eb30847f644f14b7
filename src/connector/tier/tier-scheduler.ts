import { assert } from '../../base/assert.ts';
import type { JsonObject } from '../../base/json.ts';
import type { BlockId, RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import {
  type ConnectorOutput,
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
  type TransferId,
} from '../connector.ts';
import { type CircuitBreakerOptions, circuitBreakerDefaults } from './circuit-breaker.ts';
import type { LookupAnswers } from './look-up.ts';
import type { Tier, TierWrapping } from './tier.ts';
import { countsOfTier, sumOfCounts } from './tier-counters.ts';
import { type RunningLookup, TierLookups } from './tier-lookups.ts';

export interface TierSchedulerOptions {
  readonly role: KvRole;
  readonly mode: LoadMode;
  /** What a look-up has not found by then is not found. */
  readonly lookupTimeoutMs: number;
  /** This engine's name, for whoever reads the answers to `do_remote_decode`. */
  readonly engineId?: string;
  readonly breaker?: CircuitBreakerOptions;
}

/** What the stores were asked for one request. */
interface Lookup {
  /** Undefined: not known. It is not asked again before the next admission. */
  readonly answers: Map<BlockKey, boolean | undefined>;
  running: RunningLookup | undefined;
}

/** Keys of which it is remembered that they are stored. */
const knownMax = 1 << 18;
/**
 * How long a block is believed to be stored that was seen there or saved. Other processes empty and evict; when the time is
 * over, a block that is used is looked for again, and saved again if it is gone.
 */
const storedTrustMs = 60_000;
/** Blocks in use are looked for at most so often: a look-up takes keys, and keys take time. */
const refreshMs = 1_000;

/**
 * The scheduler half of every connector that keeps blocks in a tier. A block is there when all ranks have their part of
 * it. Look-ups run behind it: the first question about a request is answered with `askLater`.
 */
export class TierScheduler implements SchedulerConnector {
  /** One per rank, each with that rank's identity; only asked. */
  readonly #tiers: readonly Tier[];
  readonly #place: string;
  readonly #context: SchedulerConnectorContext;
  readonly #options: TierSchedulerOptions;
  readonly #asker: TierLookups;
  readonly #lookups = new Map<RequestId, Lookup>();
  readonly #loads = new Map<TransferId, LoadJob>();
  readonly #saves = new Map<TransferId, Set<BlockKey>>();
  /** Keys that some save is out for. */
  readonly #saving = new Set<BlockKey>();
  /** When it was last seen that the key is stored; the one that was seen longest ago first. */
  readonly #stored = new Map<BlockKey, number>();
  /** Keys that were stored and are gone: saved again if the pool still has them. */
  readonly #gone = new Set<BlockKey>();
  /** Per request, keys that failed to load: where they are, they are broken. */
  readonly #failed = new Map<RequestId, Set<BlockKey>>();
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
    this.#asker = new TierLookups(tiers, context, options.lookupTimeoutMs, options.breaker ?? circuitBreakerDefaults);
  }

  getMatchedBlocks(request: ConnectorRequest): MatchAnswer {
    const { mode, role } = this.#options;
    if (!loadsKv(role) || request.wanted.length === 0) return { kind: 'found', blocks: [], mode };
    let lookup = this.#lookups.get(request.id);
    if (lookup === undefined) {
      lookup = { answers: new Map(), running: undefined };
      this.#lookups.set(request.id, lookup);
    }
    if (lookup.running === undefined) {
      const failed = this.#failed.get(request.id);
      const { answers } = lookup;
      const unasked = new Set<BlockKey>();
      for (const { key } of request.wanted)
        if (!answers.has(key) && failed?.has(key) !== true && !this.#asker.isQuiet(key)) unasked.add(key);
      if (unasked.size > 0) this.#startLookup(lookup, [...unasked]);
    }
    if (lookup.running !== undefined) return { kind: 'askLater', deadlineMs: lookup.running.deadlineMs };
    const found = request.wanted.filter(({ key }) => lookup.answers.get(key) === true);
    return { kind: 'found', blocks: found.map((block) => ({ ...block, place: this.#place })), mode };
  }

  updateStateAfterAlloc(request: ConnectorRequest, load: LoadJob | undefined, valid: () => readonly KvBlock[]): void {
    // Another question, after a preemption or a loss, is to see what the stores have then.
    this.#endLookup(request.id);
    if (load !== undefined) this.#loads.set(load.transfer, load);
    this.#refreshStored(valid);
  }

  buildConnectorMeta(step: ConnectorStep): ConnectorPlan {
    if (!savesKv(this.#options.role)) return nothingToSave;
    const blocks: SaveBlock[] = [];
    const save = (key: BlockKey, block: BlockId): void => {
      if (this.#isStored(key) || this.#saving.has(key)) return;
      this.#saving.add(key);
      blocks.push({ key, block });
    };
    for (const { key, block } of step.newlyValid) save(key, block);
    for (const key of this.#gone) {
      const block = step.validBlock(key);
      if (block !== undefined) save(key, block);
    }
    this.#gone.clear();
    if (blocks.length === 0) return nothingToSave;
    const transfer = step.newTransferId();
    this.#saves.set(transfer, new Set(blocks.map(({ key }) => key)));
    return { saves: [{ transfer, blocks }] };
  }

  updateConnectorOutput(output: ConnectorOutput): void {
    for (const { transfer, block: page, reason } of output.loadFailures) {
      const load = this.#loads.get(transfer);
      const block = load?.blocks.find((candidate) => candidate.block === page);
      // A worker's death says nothing about what is stored.
      if (load === undefined || block === undefined || reason === 'workerDied') continue;
      // When it has been computed again, it is to be stored again if it is not there.
      this.#stored.delete(block.key);
      const failed = this.#failed.get(load.requestId) ?? new Set();
      this.#failed.set(load.requestId, failed.add(block.key));
    }
    for (const id of output.finishedRecving) this.#loads.delete(id);
    for (const { transfer, key } of output.saveFailures) {
      if (this.#saves.get(transfer)?.delete(key) === true) this.#saving.delete(key);
    }
    for (const id of output.finishedSending) this.#finishSave(id);
    if (output.evicted.length > 0) {
      for (const key of output.evicted) this.#stored.delete(key);
      this.#events.push({ kind: 'removed', keys: output.evicted, place: this.#place });
    }
  }

  /**
   * A client that sent `do_remote_decode` (a router that sends the prompt here with `max_tokens` 1 and then elsewhere) is
   * told what the instance that decodes will find: `{ do_remote_decode: false, do_remote_prefill, remote_engine_id?,
   * stored_blocks }`. `stored_blocks` counts the blocks that are stored or about to be; none, and there is nothing to
   * fetch. Their keys follow from the tokens, so no list of them travels, and nothing waits for the other side.
   */
  requestFinished(
    request: ConnectorRequest,
    valid: () => readonly KvBlock[],
  ): { readonly kvTransferParams?: JsonObject } {
    this.#endLookup(request.id);
    this.#failed.delete(request.id);
    // An order that was taken back before a worker heard of it is never reported.
    for (const [id, { requestId }] of this.#loads) if (requestId === request.id) this.#loads.delete(id);
    const { role, engineId } = this.#options;
    if (request.kvTransferParams?.do_remote_decode !== true) return {};
    const stored = savesKv(role) ? valid().length : 0;
    const engine = engineId === undefined ? {} : { remote_engine_id: engineId };
    return {
      kvTransferParams: {
        do_remote_decode: false,
        do_remote_prefill: stored > 0,
        ...engine,
        stored_blocks: stored,
      },
    };
  }

  takeEvents(): readonly KvEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  counters(): Readonly<Record<string, number>> {
    return sumOfCounts([...this.#tiers.map(countsOfTier), this.#asker.counters()]);
  }

  /** Look-ups go on without steps; what they found to be gone is saved in a step. */
  hasPendingWork(): boolean {
    return this.#gone.size > 0;
  }

  async close(): Promise<void> {
    this.#asker.close();
    this.#refresh?.cancel();
    for (const id of [...this.#lookups.keys()]) this.#endLookup(id);
    // Not waited for: one that hangs would keep the engine from closing, and nothing of ours is at stake.
    for (const tier of this.#tiers) void tier.close();
    await Promise.resolve();
  }

  checkInvariants(): void {
    const saving = [...this.#saves.values()].reduce((sum, keys) => sum + keys.size, 0);
    assert(saving === this.#saving.size, `${saving} keys in saves, ${this.#saving.size} marked as being saved`);
  }

  #startLookup(lookup: Lookup, keys: readonly BlockKey[]): void {
    lookup.running = this.#asker.start(keys, (answers) => {
      lookup.running = undefined;
      this.#learn(keys, answers, (key, answer) => void lookup.answers.set(key, answer));
      this.#context.wake();
    });
    if (lookup.running === undefined) for (const key of keys) lookup.answers.set(key, undefined);
  }

  #endLookup(id: RequestId): void {
    const lookup = this.#lookups.get(id);
    if (lookup === undefined) return;
    this.#lookups.delete(id);
    lookup.running?.cancel();
  }

  /** Blocks that a request uses are looked for where they were stored long ago: others may have removed them. */
  #refreshStored(valid: () => readonly KvBlock[]): void {
    const nowMs = this.#context.clock.nowMs();
    if (!savesKv(this.#options.role) || this.#refresh !== undefined || nowMs - this.#refreshedMs < refreshMs) return;
    this.#refreshedMs = nowMs;
    const keys = [...new Set(valid().map(({ key }) => key))].filter(
      (key) => this.#stored.has(key) && !this.#isStored(key) && !this.#saving.has(key) && !this.#asker.isQuiet(key),
    );
    if (keys.length === 0) return;
    this.#refresh = this.#asker.start(keys, (answers) => {
      this.#refresh = undefined;
      this.#learn(keys, answers, (key, answer) => {
        if (answer === false) this.#gone.add(key);
      });
      if (this.#gone.size > 0) this.#context.wake();
    });
  }

  /** What the stores say of a key is believed: one that is gone is stored again when it is valid. */
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

  #finishSave(id: TransferId): void {
    const keys = this.#saves.get(id);
    if (keys === undefined) return;
    this.#saves.delete(id);
    for (const key of keys) {
      this.#saving.delete(key);
      this.#remember(key);
    }
    if (keys.size > 0) this.#events.push({ kind: 'stored', keys: [...keys], place: this.#place });
  }

  /** Whether the key was seen in the store, or saved, not long ago. */
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

const nothingToSave: ConnectorPlan = Object.freeze({ saves: [] });
