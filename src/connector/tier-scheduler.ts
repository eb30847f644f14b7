import { assert } from '../base/assert.ts';
import type { JsonObject } from '../base/json.ts';
import type { RequestId } from '../core/ids.ts';
import type { BlockKey } from './block-key.ts';
import { CircuitBreaker, type CircuitBreakerOptions, circuitBreakerDefaults } from './circuit-breaker.ts';
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
} from './connector.ts';
import type { LookupAnswers } from './look-up.ts';
import { LruBytes } from './lru-bytes.ts';
import type { Tier } from './tier.ts';

export interface TierSchedulerOptions {
  readonly role: KvRole;
  readonly mode: LoadMode;
  /** A look-up that takes longer has found nothing. */
  readonly lookupTimeoutMs: number;
  /** This engine's name, for whoever reads the answers to `do_remote_decode`. */
  readonly engineId?: string;
  readonly breaker?: CircuitBreakerOptions;
}

/** What the stores were asked for one request. */
interface Lookup {
  readonly answers: Map<BlockKey, boolean>;
  running: { readonly deadlineMs: number; readonly controller: AbortController } | undefined;
}

/** Keys of which it is remembered that they are stored. */
const knownMax = 1 << 18;

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
  readonly #breaker: CircuitBreaker;
  readonly #lookups = new Map<RequestId, Lookup>();
  readonly #loads = new Map<TransferId, LoadJob>();
  readonly #saves = new Map<TransferId, Set<BlockKey>>();
  /** Keys that some save is out for. */
  readonly #saving = new Set<BlockKey>();
  readonly #stored = new LruBytes<BlockKey>();
  #events: KvEvent[] = [];
  #isClosed: boolean = false;

  constructor(tiers: readonly Tier[], context: SchedulerConnectorContext, options: TierSchedulerOptions) {
    assert(tiers.length === context.identities.length && tiers.length > 0, 'one tier per rank');
    this.#tiers = tiers;
    this.#place = tiers[0]!.name;
    this.#context = context;
    this.#options = options;
    this.#breaker = new CircuitBreaker(context.clock, options.breaker ?? circuitBreakerDefaults);
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
      const unasked = request.wanted.map(({ key }) => key).filter((key) => !lookup.answers.has(key));
      if (unasked.length > 0) this.#startLookup(lookup, [...new Set(unasked)]);
    }
    if (lookup.running !== undefined) return { kind: 'askLater', deadlineMs: lookup.running.deadlineMs };
    const found = request.wanted.filter(({ key }) => lookup.answers.get(key) === true);
    for (const { key } of found) this.#remember(key);
    return { kind: 'found', blocks: found.map((block) => ({ ...block, place: this.#place })), mode };
  }

  updateStateAfterAlloc(request: ConnectorRequest, load: LoadJob | undefined): void {
    // Another admission, after a preemption perhaps, is to see what the stores have then.
    this.#endLookup(request.id);
    if (load !== undefined) this.#loads.set(load.transfer, load);
  }

  buildConnectorMeta(step: ConnectorStep): ConnectorPlan {
    if (!savesKv(this.#options.role)) return nothingToSave;
    const blocks: SaveBlock[] = [];
    for (const { key, page } of step.newlyValid) {
      if (this.#stored.touch(key) || this.#saving.has(key)) continue;
      this.#saving.add(key);
      blocks.push({ key, page });
    }
    if (blocks.length === 0) return nothingToSave;
    const transfer = step.newTransferId();
    this.#saves.set(transfer, new Set(blocks.map(({ key }) => key)));
    return { saves: [{ transfer, blocks }] };
  }

  updateConnectorOutput(output: ConnectorOutput): void {
    for (const { transfer, page } of output.loadFailures) {
      const block = this.#loads.get(transfer)?.blocks.find((candidate) => candidate.page === page);
      // Whatever the reason: when it has been computed again, it is to be stored again if it is not there.
      if (block !== undefined) this.#stored.delete(block.key);
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

  /** Look-ups go on without steps, and saves are ordered in the step that offers them. */
  hasPendingWork(): boolean {
    return false;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
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
    const permit = this.#isClosed ? undefined : this.#breaker.tryAcquire();
    if (permit === undefined) {
      for (const key of keys) lookup.answers.set(key, false);
      return;
    }
    const { clock, timers, wake } = this.#context;
    const { lookupTimeoutMs } = this.#options;
    const controller = new AbortController();
    const running = { deadlineMs: clock.nowMs() + lookupTimeoutMs, controller };
    lookup.running = running;
    const answer = (found: readonly LookupAnswers[]): void => {
      timer.cancel();
      if (lookup.running !== running) return;
      lookup.running = undefined;
      for (const [i, key] of keys.entries()) {
        lookup.answers.set(key, found.length > 0 && found.every((ofRank) => ofRank[i] === true));
      }
      wake();
    };
    const timer = timers.after(lookupTimeoutMs, () => {
      permit.fail();
      controller.abort();
      answer([]);
    });
    controller.signal.addEventListener('abort', () => permit.withdraw());
    Promise.all(this.#tiers.map((tier) => tier.has(keys, controller.signal))).then(
      (found) => {
        permit.succeed();
        answer(found);
      },
      () => {
        permit.fail();
        answer([]);
      },
    );
  }

  #endLookup(id: RequestId): void {
    const lookup = this.#lookups.get(id);
    if (lookup === undefined) return;
    this.#lookups.delete(id);
    const { running } = lookup;
    lookup.running = undefined;
    running?.controller.abort();
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

  #remember(key: BlockKey): void {
    this.#stored.set(key, 1);
    if (this.#stored.count <= knownMax) return;
    for (const oldest of this.#stored.names()) {
      this.#stored.delete(oldest);
      return;
    }
  }
}

const nothingToSave: ConnectorPlan = Object.freeze({ saves: [] });
