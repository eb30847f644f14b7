import { assert } from '../base/assert.ts';
import { byName } from '../base/by-name.ts';
import type { JsonObject } from '../base/json.ts';
import { type BlockKey, blockKey, digestBytes, groupOfKey, writeKeyDigest } from '../connector/block-key.ts';
import {
  askLaterMaxMs,
  type ConnectorMetadata,
  type ConnectorRequest,
  type FoundBlock,
  type KvBlock,
  type KvLoadPolicy,
  type LoadBlock,
  type LoadMode,
  type LoadOutcome,
  loadTimeoutOf,
  type RankReport,
  type SchedulerConnector,
  type TransferId,
} from '../connector/connector.ts';
import { addStats, type ConnectorStats, namedCounts, sumOfStats } from '../connector/connector-stats.ts';
import type { OpenLoad } from '../connector/transfer/open-transfer.ts';
import { TransferLedger } from '../connector/transfer/transfer-ledger.ts';
import type { BlockPlace, PlacedBlock } from '../core/block-place.ts';
import { ByPlace } from '../core/by-place.ts';
import { type BlockId, blockIndex, groupIndex, NULL_BLOCK, type StepId } from '../core/ids.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import { countPlaces, type LoadCost, type LoadPrices, type LoadTiming } from './load-cost.ts';
import { NewlyValid } from './newly-valid.ts';
import type { RequestState } from './request-state.ts';
import { spansOf } from './spans-of.ts';

/** The methods of a connector's scheduler side that the scheduler calls. */
export type ConnectorPort = Pick<
  SchedulerConnector,
  | 'requestArrived'
  | 'getMatchedBlocks'
  | 'updateStateAfterAlloc'
  | 'buildConnectorMeta'
  | 'updateConnectorOutput'
  | 'requestFinished'
  | 'hasPendingWork'
  | 'counters'
  | 'stats'
  | 'loadPolicy'
  | 'loadTimeoutMs'
>;

export interface ExternalKvOptions {
  /** Deadline of a load. Default: the connector's, or `defaultLoadTimeoutMs`. */
  readonly loadTimeoutMs?: (tokens: number) => number;
  /** The longest time that a request waits for a connector that answers "ask later". Default: 30 s. */
  readonly askLaterMaxMs?: number;
  /** How often an engine that only waits for transfers takes a step if no transfer notifies it. Default 100 ms. */
  readonly pollMs?: number;
  /** Default: the connector's, or `always`. */
  readonly loadPolicy?: KvLoadPolicy | undefined;
  /** With the policy `auto`, these prices instead of learned ones, for the simulator. */
  readonly loadPrices?: LoadPrices | undefined;
  /** With the policy `auto`: `LoadChoice`'s, for the simulator. */
  readonly probeAfter?: number | undefined;
}

/** The blocks that a connector promises for a request. */
export interface Match {
  readonly blocks: readonly FoundPlace[];
  readonly mode: LoadMode;
}

export interface FoundPlace extends BlockPlace {
  readonly found: FoundBlock;
}

/** What the ledger keeps with a load. */
interface LoadOwner {
  readonly state: RequestState;
  /** Undefined: loads are not measured. */
  readonly timing: LoadTiming | undefined;
}

/** Outcomes of blocks of one load that requests wait for. */
export interface RequestLoad {
  /** The request that ordered the load. Others may share its blocks. */
  readonly state: RequestState;
  readonly mode: LoadMode;
  readonly blocks: readonly LoadOutcome[];
}

/**
 * The scheduler's calls to a connector: which blocks it asks for, when requests need their loads no longer, and which
 * blocks may be stored. The ledger has all open transfers. Time changes only by `setTime`.
 */
export class ExternalKv {
  readonly ledger: TransferLedger<LoadOwner>;
  readonly #kv: KvCache;
  readonly #connector: ConnectorPort;
  readonly #timeoutMs: (tokens: number) => number;
  readonly #askLaterMaxMs: number;
  readonly #pollMs: number;
  readonly #counters: Record<string, number> = byName();
  /** Of the workers. */
  readonly #stats: ConnectorStats = {};
  readonly #loadCost: LoadCost | undefined;
  readonly #newlyValid: NewlyValid;
  /** By block; only for checks. */
  #checkScratch: { readonly counts: Int32Array; readonly awaited: Uint8Array } | undefined;
  #nowMs = 0;
  #lastStepMs = -Infinity;
  #isNotified: boolean = false;
  /** The time of the last notification, if it was given. */
  #notifiedMs: number | undefined;
  /** Blocks in answers of the connector that the engine did not ask for, or with a wrong key. */
  invalidAnswerCount = 0;

  /** `loadCost` learns from the loads. */
  constructor(kv: KvCache, connector: ConnectorPort, options: ExternalKvOptions = {}, loadCost?: LoadCost) {
    const { pool } = kv.parts;
    this.#kv = kv;
    this.#connector = connector;
    this.#loadCost = loadCost;
    this.#timeoutMs = options.loadTimeoutMs ?? loadTimeoutOf(connector);
    this.#askLaterMaxMs = options.askLaterMaxMs ?? askLaterMaxMs;
    this.#pollMs = options.pollMs ?? 100;
    this.ledger = new TransferLedger(
      { nowMs: () => this.#nowMs },
      { pin: (block) => pool.pin(block), release: (block) => pool.unpin(block) },
    );
    this.#newlyValid = new NewlyValid(pool.blockCount);
    pool.onAllocate = (block) => {
      this.#newlyValid.allocated(block);
      this.ledger.willOverwrite(block);
    };
    kv.parts.onBlockCached = (block, request, group, index) => {
      const state = this.stateOf(request.slot);
      const key = blockKey(group, request.chains[group]!.words, index);
      this.#newlyValid.add({ group, index, key, block, requestId: state.request.id });
    };
  }

  readonly #states: (RequestState | undefined)[] = [];

  added(state: RequestState): void {
    this.#states[state.kv.slot] = state;
  }

  /** The request may be admitted at the next plan: the connector may look up its blocks until then. */
  arrived(state: RequestState): void {
    if (this.#connector.requestArrived === undefined) return;
    const places = this.#kv.wanted(state.kv);
    if (places.length > 0) this.#connector.requestArrived(this.#lookUpOf(state, places));
  }

  get nowMs(): number {
    return this.#nowMs;
  }

  setTime(nowMs: number): void {
    assert(nowMs >= this.#nowMs, `time went back from ${this.#nowMs} to ${nowMs}`);
    this.#nowMs = nowMs;
  }

  /** A transfer ended, or a connector knows more. */
  notify(nowMs?: number): void {
    this.#isNotified = true;
    this.#notifiedMs = nowMs;
  }

  get isNotified(): boolean {
    return this.#isNotified;
  }

  /**
   * Returns the blocks that the connector promises; undefined means that the connector must be asked again later.
   * `places`: the blocks that a waiting request does not find in the pool, or that a request must compute again.
   */
  match(state: RequestState, places = this.#kv.wanted(state.kv)): Match | undefined {
    if (places.length === 0) return nothingFound;
    const request = this.#lookUpOf(state, places);
    const { wanted } = request;
    const answer = this.#connector.getMatchedBlocks(request);
    if (answer.kind === 'askLater') {
      // The first deadline stays until the admission, so many short delays cannot add up to a long one.
      state.queryDeadlineMs ??= Math.min(answer.deadlineMs, this.#nowMs + this.#askLaterMaxMs);
      return this.#nowMs < state.queryDeadlineMs ? undefined : nothingFound;
    }
    const open = new ByPlace(wanted);
    const blocks: FoundPlace[] = [];
    for (const found of answer.blocks) {
      if (open.take(found)?.key !== found.key) {
        this.invalidAnswerCount++;
        continue;
      }
      if (this.ledger.isUsable(state.request.id, found)) blocks.push({ group: found.group, index: found.index, found });
    }
    return { blocks, mode: answer.mode };
  }

  /** False for a block that failed for this request from the same place. */
  isUsable(state: RequestState, { found }: FoundPlace): boolean {
    return this.ledger.isUsable(state.request.id, found);
  }

  /** The request has blocks. Opens a load of the `placed` blocks, which `match` promises, and informs the connector. */
  admitted(state: RequestState, match: Match, placed: readonly PlacedBlock[]): void {
    // A later question, after a preemption or a recovery, has a deadline of its own.
    state.queryDeadlineMs = undefined;
    const request = this.#requestOf(state, []);
    if (placed.length === 0) {
      this.#connector.updateStateAfterAlloc(request, undefined, () => this.#valid(state));
      return;
    }
    const promised = new ByPlace(match.blocks);
    const blocks = placed.map((placed): LoadBlock => {
      const { group, index, key, place } = promised.take(placed)!.found;
      return { group, index, key, place, block: placed.block };
    });
    const { cacheSalt } = state.request;
    const load = { mode: match.mode, timeoutMs: this.#timeoutMs(state.tokens.length), cacheSalt, blocks };
    const owner = { state, timing: this.#loadCost?.begin(countPlaces(blocks)) };
    const job = this.ledger.openLoad(state.request.id, load, owner);
    if (match.mode === 'sync') this.#kv.loadInStep(placed);
    this.#connector.updateStateAfterAlloc(request, job, () => this.#valid(state));
  }

  /** Whether the workers need a step even if no tokens are scheduled. */
  needsStep(): boolean {
    if (this.ledger.hasUnsent || !this.#newlyValid.isEmpty) return true;
    if ((this.ledger.nextExpiryMs() ?? Infinity) <= this.#nowMs) return true;
    if (this.ledger.openCount === 0 && !this.#connector.hasPendingWork()) return false;
    return this.#isNotified || this.#nowMs >= this.#lastStepMs + this.#pollMs;
  }

  /** The latest time of the next step if no transfer notifies the engine. */
  nextWakeMs(): number | undefined {
    if (this.needsStep()) return this.#nowMs;
    if (this.ledger.openCount === 0 && !this.#connector.hasPendingWork()) return undefined;
    return Math.min(this.ledger.nextExpiryMs() ?? Infinity, this.#lastStepMs + this.#pollMs);
  }

  /** The orders for transfers that the workers get with the step. */
  compose(stepId: StepId): ConnectorMetadata {
    const newlyValid = this.#newlyValid;
    this.#isNotified = false;
    this.#lastStepMs = this.#nowMs;
    const newTransferId = (): TransferId => this.ledger.newTransferId();
    const metadata = this.ledger.composeMetadata(
      this.#connector.buildConnectorMeta({
        stepId,
        newlyValid: newlyValid.all,
        newTransferId,
        isSaving: (key) => this.ledger.isSaving(key),
        validBlock: (key) => this.#validBlock(key) ?? newlyValid.overwrittenBlock(key),
      }),
      (block) => newlyValid.isOverwritten(block),
    );
    newlyValid.offered();
    return metadata;
  }

  /** The connector's counters since the start, of all ranks and the scheduler side. */
  get counters(): Readonly<Record<string, number>> {
    const sum = { ...this.#counters };
    for (const counts of [this.#connector.counters?.() ?? {}, namedCounts(this.stats)])
      for (const name in counts) sum[name] = (sum[name] ?? 0) + counts[name]!;
    return sum;
  }

  get stats(): ConnectorStats {
    return sumOfStats([this.#connector.stats?.(), this.#stats]);
  }

  /**
   * Applies the reports of a step, which computed tokens if `isComputing`, and informs the connector. Returns the outcomes
   * of loads that requests wait for: of all blocks of decided loads, and of blocks that have arrived before.
   */
  receive(reports: readonly RankReport[], isComputing = false): readonly RequestLoad[] {
    // In a step with tokens, a load may end long before its report.
    const endedMs = isComputing && this.#isNotified ? (this.#notifiedMs ?? this.#nowMs) : this.#nowMs;
    const { loads, outcomes } = this.ledger.apply(reports);
    this.#connector.updateConnectorOutput(outcomes);
    const { counters } = outcomes;
    for (const name in counters) this.#counters[name] = (this.#counters[name] ?? 0) + counters[name]!;
    if (outcomes.stats !== undefined) addStats(this.#stats, outcomes.stats);
    return loads.map(({ load, blocks }) => {
      const { state } = load.owner;
      if (load.isDecided) {
        this.#measure(load, blocks, endedMs);
        this.#countLoaded(state, blocks);
      }
      return { state, mode: load.job.mode, blocks };
    });
  }

  /** The time of a load is known if each block came from its place, and if no step waited for the load. */
  #measure({ owner, orderedMs, job }: OpenLoad<LoadOwner>, blocks: readonly LoadOutcome[], endedMs: number): void {
    if (owner.timing === undefined) return;
    const isWhole = blocks.every(({ result, place }, i) => result === 'loaded' && place === job.blocks[i]!.place);
    this.#loadCost!.end(owner.timing, isWhole && job.mode !== 'sync' ? endedMs - orderedMs : undefined);
  }

  /** Counts the loaded tokens of the request by the place that they came from. */
  #countLoaded(state: RequestState, outcomes: readonly LoadOutcome[]): void {
    const byPlace = new Map<string, BlockPlace[]>();
    for (const outcome of outcomes) {
      if (outcome.result !== 'loaded') continue;
      const blocks = byPlace.get(outcome.place);
      if (blocks === undefined) byPlace.set(outcome.place, [outcome]);
      else blocks.push(outcome);
    }
    for (const [place, blocks] of byPlace)
      state.loaded(
        place,
        spansOf(this.#kv, blocks).reduce((sum, { start, end }) => sum + end - start, 0),
      );
  }

  /** Blocks of the step's sync loads that are not decided. */
  lateIn(metadata: ConnectorMetadata | undefined): BlockId[] {
    const late: BlockId[] = [];
    for (const { transfer, mode, blocks } of metadata?.loads ?? [])
      if (mode === 'sync' && this.ledger.isAwaited(transfer)) for (const { block } of blocks) late.push(block);
    return late;
  }

  /** Invalid blocks must not be stored, and their owners write them again. */
  dropInvalid(blocks: readonly BlockId[]): void {
    for (const block of blocks) this.ledger.willOverwrite(block);
    if (!this.#newlyValid.isEmpty) this.#newlyValid.drop(new Set(blocks));
  }

  /**
   * Called once, when a request has ended and before its blocks are released. Returns the connector's answer to the
   * client.
   */
  ended(state: RequestState): JsonObject | undefined {
    return this.#connector.requestFinished(this.#requestOf(state, []), () => this.#valid(state)).kvTransferParams;
  }

  /** The blocks of a request were released: cancels loads that no request waits for any more. */
  released(state: RequestState): void {
    for (const load of this.ledger.awaited()) {
      if (load.job.blocks.some(({ block }) => this.#kv.parts.residency.isLoading(block))) continue;
      const { timing } = load.owner;
      if (timing !== undefined) this.#loadCost!.end(timing, undefined);
      this.ledger.abandon(load);
    }
    if (state.status === 'ended') this.ledger.forget(state.request.id);
  }

  /** These blocks are not in the prefix cache any more, and are not stored if they were not offered yet. */
  removed(blocks: readonly BlockId[]): void {
    if (blocks.length > 0 && !this.#newlyValid.isEmpty) this.#newlyValid.drop(new Set(blocks));
  }

  /** Whether a save of the block is open, or the next step may offer it to be stored. */
  isSaving(key: BlockKey): boolean {
    return this.ledger.isSaving(key) || this.#newlyValid.all.some((block) => block.key === key);
  }

  /** Whether loads pin blocks that no request has: these become available later. */
  hasPinnedUnused(): boolean {
    const { pool } = this.#kv.parts;
    let hasUnused = false;
    this.ledger.eachPin((block) => {
      if (pool.references(block) === 0) hasUnused = true;
    });
    return hasUnused;
  }

  /** Whether loads have pins. */
  get hasPins(): boolean {
    let hasPins = false;
    this.ledger.eachPin(() => {
      hasPins = true;
    });
    return hasPins;
  }

  /**
   * I5, I8: the pins are those of the loads, and no request fills a block that a save reads. A request waits only for
   * blocks of open loads.
   */
  checkInvariants(): void {
    const { pool, residency } = this.#kv.parts;
    this.#checkScratch ??= { counts: new Int32Array(pool.blockCount), awaited: new Uint8Array(pool.blockCount) };
    const counts = this.#checkScratch.counts.fill(0);
    const awaited = this.#checkScratch.awaited.fill(0);
    this.ledger.eachPin((block) => counts[block]!++);
    this.ledger.eachSavedBlock((block) => {
      if (residency.isOwned(block)) fail(`I5: a request fills block ${block}, which a save still reads`);
    });
    for (const { job } of this.ledger.awaited()) for (const { block } of job.blocks) awaited[block] = 1;
    for (let id = 1; id < pool.blockCount; id++) {
      const block = id as BlockId;
      if (pool.pinCount(block) !== counts[block])
        fail(`I5: block ${block} has ${pool.pinCount(block)} pins for ${counts[block]} transfers`);
      if (residency.isLoading(block) && awaited[block] === 0)
        fail(`I8: block ${block} waits for a load that is not in progress`);
    }
  }

  stateOf(slot: number): RequestState {
    const state = this.#states[slot];
    assert(state !== undefined, `slot ${slot} has no request`);
    return state;
  }

  /** The cached blocks of the request. */
  #valid(state: RequestState): KvBlock[] {
    const { cached } = this.#kv.parts;
    const blocks: KvBlock[] = [];
    for (let group = groupIndex(0); group < state.kv.tables.length; group++) {
      const table = state.kv.tables[group]!;
      for (let index = blockIndex(state.kv.firstAllocated[group]!); index < table.length; index++)
        if (cached.has(table.at(index))) blocks.push(blockOf(state, { group, index }));
    }
    return blocks;
  }

  #validBlock(key: BlockKey): BlockId | undefined {
    const digest = new Uint8Array(digestBytes);
    writeKeyDigest(key, digest, 0);
    const block = this.#kv.parts.cached.find(groupOfKey(key), new Uint32Array(digest.buffer), blockIndex(0));
    return block === NULL_BLOCK ? undefined : block;
  }

  #lookUpOf(state: RequestState, places: readonly BlockPlace[]): ConnectorRequest {
    const blocks = places.map((place) => blockOf(state, place));
    const wanted = this.ledger.wanted(state.request.id, blocks);
    const request = this.#requestOf(state, wanted);
    if (this.#loadCost?.isReady !== true) return request;
    return { ...request, computeMs: this.#loadCost.computeMs(spansOf(this.#kv, places)) };
  }

  #requestOf(state: RequestState, wanted: ConnectorRequest['wanted']): ConnectorRequest {
    const { id, cacheSalt, kvTransferParams } = state.request;
    const tokenCount = state.tokens.length as ConnectorRequest['tokenCount'];
    return {
      id,
      tokenCount,
      wanted,
      ...(cacheSalt === undefined ? {} : { cacheSalt }),
      ...(kvTransferParams === undefined ? {} : { kvTransferParams }),
    };
  }
}

export const nothingFound: Match = Object.freeze({ blocks: [], mode: 'sync' });

function blockOf({ kv }: RequestState, { group, index }: BlockPlace): KvBlock {
  const key: BlockKey = blockKey(group, kv.chains[group]!.words, index);
  return { group, index, key };
}

/** For checks of each block: the message is built only if the check fails. */
function fail(message: string): never {
  assert(false, message);
}
