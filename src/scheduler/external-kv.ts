import { assert } from '../base/assert.ts';
import type { JsonObject } from '../base/json.ts';
import { type BlockKey, blockKey, digestBytes, groupOfKey, writeKeyDigest } from '../connector/block-key.ts';
import {
  type ConnectorMetadata,
  type ConnectorOutput,
  type ConnectorRequest,
  emptyOutput,
  type FoundBlock,
  type KvBlock,
  type LoadJob,
  type LoadMode,
  type SchedulerConnector,
  type TransferId,
  type ValidBlock,
} from '../connector/connector.ts';
import { type DecidedLoad, TransferLedger } from '../connector/transfer/transfer-ledger.ts';
import type { BlockPlace, PlacedBlock } from '../core/block-place.ts';
import { type BlockId, NULL_BLOCK, type StepId } from '../core/ids.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import type { RequestState } from './request-state.ts';

/** What the scheduler asks of a connector's scheduler half. */
export type ConnectorPort = Pick<
  SchedulerConnector,
  | 'getMatchedBlocks'
  | 'updateStateAfterAlloc'
  | 'buildConnectorMeta'
  | 'updateConnectorOutput'
  | 'requestFinished'
  | 'hasPendingWork'
  | 'counters'
>;

export interface ExternalKvOptions {
  /** Deadline of a load. Default: min(30 s, 2 s + 0.1 s per 1024 tokens), as in SGLang. */
  readonly loadTimeoutMs?: (tokens: number) => number;
  /** How long a request waits for a connector that says "ask later", whatever the connector says. Default 30 s. */
  readonly askLaterMaxMs?: number;
  /** How often an engine that only waits for transfers looks whether they have ended, if nobody wakes it. Default 100 ms. */
  readonly pollMs?: number;
}

/** What a connector has found for a request. */
export interface Match {
  readonly blocks: readonly FoundPlace[];
  readonly mode: LoadMode;
}

interface FoundPlace extends BlockPlace {
  readonly found: FoundBlock;
}

interface OpenLoad {
  readonly job: LoadJob;
  readonly placed: readonly PlacedBlock[];
  readonly state: RequestState;
}

/**
 * The scheduler's dealings with a connector: what is asked for, which loads are under way and for whom, what may be
 * saved. The ledger keeps the ids, the holds and the deadlines; here it is decided who still waits. Time stands still
 * between calls.
 */
export class ExternalKv {
  readonly ledger: TransferLedger;
  readonly #kv: KvCache;
  readonly #connector: ConnectorPort;
  readonly #timeoutMs: (tokens: number) => number;
  readonly #askLaterMaxMs: number;
  readonly #pollMs: number;
  /** Loads that somebody waits for. */
  readonly #loads = new Map<TransferId, OpenLoad>();
  readonly #counters: Record<string, number> = {};
  #newlyValid: ValidBlock[] = [];
  /** By page; for checks alone. */
  #checkScratch: { readonly counts: Int32Array; readonly awaited: Uint8Array } | undefined;
  #nowMs = 0;
  #lastStepMs = -Infinity;
  #isNotified: boolean = false;
  /** Answers of the connector that were none: blocks that nobody asked for, keys that are not theirs. */
  invalidAnswerCount = 0;

  constructor(kv: KvCache, connector: ConnectorPort, options: ExternalKvOptions = {}) {
    const { pool } = kv.parts;
    this.#kv = kv;
    this.#connector = connector;
    this.#timeoutMs = options.loadTimeoutMs ?? ((tokens) => Math.min(30_000, 2000 + (100 * tokens) / 1024));
    this.#askLaterMaxMs = options.askLaterMaxMs ?? 30_000;
    this.#pollMs = options.pollMs ?? 100;
    this.ledger = new TransferLedger(
      { nowMs: () => this.#nowMs },
      { pin: (block) => pool.pin(block), release: (block) => pool.unpin(block) },
    );
    kv.parts.onBlockCached = (block, request, group, index) => {
      // Until the connector has been told of it, nobody may overwrite it.
      pool.pin(block);
      const state = this.stateOf(request.slot);
      const key = blockKey(group, request.chains[group]!.words, index);
      this.#newlyValid.push({ group, index, key, block, requestId: state.request.id });
    };
  }

  readonly #states: (RequestState | undefined)[] = [];

  added(state: RequestState): void {
    this.#states[state.kv.slot] = state;
  }

  get nowMs(): number {
    return this.#nowMs;
  }

  setTime(nowMs: number): void {
    assert(nowMs >= this.#nowMs, `time went back from ${this.#nowMs} to ${nowMs}`);
    this.#nowMs = nowMs;
  }

  /** Something ended outside a step. */
  notify(): void {
    this.#isNotified = true;
  }

  get isNotified(): boolean {
    return this.#isNotified;
  }

  /**
   * Which of these blocks could be loaded; undefined: it is to be asked again, in time. `places`: what a request without
   * pages lacks, or what a request has lost.
   */
  match(state: RequestState, places = this.#kv.wanted(state.kv)): Match | undefined {
    const wanted = places.map((place) => blockOf(state, place));
    if (wanted.length === 0) return nothingFound;
    const answer = this.#connector.getMatchedBlocks(this.#requestOf(state, wanted));
    if (answer.kind === 'askLater') {
      // The first deadline holds until the admission, so that no row of small delays becomes a long one.
      state.queryDeadlineMs ??= Math.min(answer.deadlineMs, this.#nowMs + this.#askLaterMaxMs);
      return this.#nowMs < state.queryDeadlineMs ? undefined : nothingFound;
    }
    const open = new Map(wanted.map((index) => [`${index.group}/${index.index}`, index]));
    const blocks: FoundPlace[] = [];
    for (const found of answer.blocks) {
      const place = `${found.group}/${found.index}`;
      if (open.get(place)?.key !== found.key) {
        this.invalidAnswerCount++;
        continue;
      }
      open.delete(place);
      if (this.ledger.isUsable(state.request.id, found)) blocks.push({ group: found.group, index: found.index, found });
    }
    return { blocks, mode: answer.mode };
  }

  /** The request has pages, and knows what can be loaded; `placed` are the pages that wait for a load. */
  admitted(state: RequestState, match: Match, placed: readonly PlacedBlock[]): void {
    // Another question, after a preemption or a loss, has a deadline of its own.
    state.queryDeadlineMs = undefined;
    const request = this.#requestOf(state, []);
    if (placed.length === 0) {
      this.#connector.updateStateAfterAlloc(request, undefined, () => this.#valid(state));
      return;
    }
    const finds = new Map(match.blocks.map((find) => [`${find.group}/${find.index}`, find.found]));
    const blocks = placed.map(({ group, index, block }) => ({ ...finds.get(`${group}/${index}`)!, block }));
    const job = this.ledger.openLoad(state.request.id, match.mode, this.#timeoutMs(state.tokens.length), blocks);
    if (match.mode === 'sync') this.#kv.loadInStep(placed);
    this.#loads.set(job.transfer, { job, placed, state });
    this.#connector.updateStateAfterAlloc(request, job, () => this.#valid(state));
  }

  /** Whether the workers are to get a step even if there is nothing to compute. */
  needsStep(): boolean {
    if (this.ledger.hasUnsent || this.#newlyValid.length > 0) return true;
    if ((this.ledger.nextExpiryMs() ?? Infinity) <= this.#nowMs) return true;
    if (this.ledger.openCount === 0 && !this.#connector.hasPendingWork()) return false;
    return this.#isNotified || this.#nowMs >= this.#lastStepMs + this.#pollMs;
  }

  /** When a step is needed at the latest although nothing was rung for. */
  nextWakeMs(): number | undefined {
    if (this.needsStep()) return this.#nowMs;
    if (this.ledger.openCount === 0 && !this.#connector.hasPendingWork()) return undefined;
    return Math.min(this.ledger.nextExpiryMs() ?? Infinity, this.#lastStepMs + this.#pollMs);
  }

  /** The step's message to the workers. */
  compose(stepId: StepId): ConnectorMetadata {
    const newlyValid = this.#newlyValid;
    this.#newlyValid = [];
    this.#isNotified = false;
    this.#lastStepMs = this.#nowMs;
    const newTransferId = (): TransferId => this.ledger.newTransferId();
    const metadata = this.ledger.composeMetadata(
      this.#connector.buildConnectorMeta({
        stepId,
        newlyValid,
        newTransferId,
        validBlock: (key) => this.#validBlock(key),
      }),
    );
    for (const { block } of newlyValid) this.#kv.parts.pool.unpin(block);
    return metadata;
  }

  /** What connectors have counted since the start, on all ranks and beside the scheduler. */
  get counters(): Readonly<Record<string, number>> {
    const sum = { ...this.#counters };
    for (const [name, count] of Object.entries(this.#connector.counters?.() ?? {}))
      sum[name] = (sum[name] ?? 0) + count;
    return sum;
  }

  /** Takes the workers' report. Returns the loads that are decided by it or by their deadline, as far as anybody waits. */
  receive(output: ConnectorOutput | undefined): OpenLoadOutcome[] {
    const change = this.ledger.apply(output ?? emptyOutput);
    this.#connector.updateConnectorOutput(change.accepted);
    const { counters } = change.accepted;
    for (const name in counters) this.#counters[name] = (this.#counters[name] ?? 0) + counters[name]!;
    const outcomes: OpenLoadOutcome[] = [];
    for (const decided of [...change.decided, ...this.ledger.takeExpired()]) {
      const open = this.#loads.get(decided.load.transfer);
      if (open === undefined) continue;
      this.#loads.delete(decided.load.transfer);
      this.#forgetIfOver(open.state);
      outcomes.push({ decided, ...open });
    }
    return outcomes;
  }

  /** Pages of loads that were to be there within the step `metadata` went out with, and are not decided. */
  lateIn(metadata: ConnectorMetadata | undefined): BlockId[] {
    const pages: BlockId[] = [];
    for (const { transfer, mode, blocks } of metadata?.loads ?? [])
      if (mode === 'sync' && this.#loads.has(transfer)) for (const { block } of blocks) pages.push(block);
    return pages;
  }

  /** What is said to be invalid must not be saved. */
  dropInvalid(blocks: readonly BlockId[]): void {
    if (this.#newlyValid.length === 0 || blocks.length === 0) return;
    const invalid = new Set(blocks);
    this.#newlyValid = this.#newlyValid.filter(({ block }) => {
      if (invalid.has(block)) this.#kv.parts.pool.unpin(block);
      return !invalid.has(block);
    });
  }

  /** Once, when a request has ended and before it gives its pages back. Returns the connector's word to the client. */
  ended(state: RequestState): JsonObject | undefined {
    return this.#connector.requestFinished(this.#requestOf(state, []), () => this.#valid(state)).kvTransferParams;
  }

  /** A request has given its pages back: loads that nobody waits for any more are cancelled. */
  released(state: RequestState): void {
    for (const [transfer, open] of this.#loads) {
      if (open.placed.some(({ block }) => this.#kv.parts.residency.isLoading(block))) continue;
      this.#loads.delete(transfer);
      // Just this load: the request may have another one that somebody waits for.
      this.ledger.abandonLoad(transfer);
      this.#forgetIfOver(open.state);
    }
    this.#forgetIfOver(state);
  }

  /** A request has ended, so its load is no longer needed. */
  #forgetIfOver(state: RequestState): void {
    if (state.status !== 'ended') return;
    for (const open of this.#loads.values()) if (open.state === state) return;
    this.ledger.forget(state.request.id);
  }

  /** The pool is short of pages: what nobody uses is not kept to be saved. Whether that has freed any. */
  dropUnstartedSaves(): boolean {
    const { pool } = this.#kv.parts;
    const unused = this.#newlyValid.filter(({ block }) => pool.references(block) === 0);
    if (unused.length === 0) return false;
    this.#newlyValid = this.#newlyValid.filter(({ block }) => pool.references(block) > 0);
    for (const { block } of unused) pool.unpin(block);
    return true;
  }

  /** Whether transfers hold pages that nobody uses: these will come back. Saves of them that have not begun are dropped. */
  hasPinnedUnused(): boolean {
    const { pool } = this.#kv.parts;
    const isUnused = (block: BlockId): boolean => pool.references(block) === 0;
    this.ledger.flush(isUnused);
    let hasUnused = false;
    this.ledger.eachHold((block) => {
      if (isUnused(block)) hasUnused = true;
    });
    return hasUnused;
  }

  /** Whether transfers, or saves that no worker has heard of, hold blocks. */
  get holdsBlocks(): boolean {
    return this.ledger.openCount > 0 || this.#newlyValid.length > 0;
  }

  /** I5 and I6: pages are held as often as transfers say, and each load that somebody waits for is known. */
  checkInvariants(): void {
    const { pool, residency } = this.#kv.parts;
    this.#checkScratch ??= { counts: new Int32Array(pool.blockCount), awaited: new Uint8Array(pool.blockCount) };
    const counts = this.#checkScratch.counts.fill(0);
    const awaited = this.#checkScratch.awaited.fill(0);
    this.ledger.eachHold((block) => counts[block]!++);
    for (const { block } of this.#newlyValid) counts[block]!++;
    for (const { placed, job } of this.#loads.values()) {
      if (!this.ledger.isOpen(job.transfer)) fail(`I6: load ${job.transfer} is awaited, but not open`);
      for (const { block } of placed) awaited[block] = 1;
    }
    for (let id = 1; id < pool.blockCount; id++) {
      const block = id as BlockId;
      if (pool.pinCount(block) !== counts[block])
        fail(`I5: page ${block} is held ${pool.pinCount(block)} times for ${counts[block]} transfers`);
      if (residency.isLoading(block) && awaited[block] === 0)
        fail(`I8: page ${block} waits for a load that is not under way`);
    }
  }

  stateOf(slot: number): RequestState {
    const state = this.#states[slot];
    assert(state !== undefined, `slot ${slot} has no request`);
    return state;
  }

  /** What it holds that was offered to be saved, by itself or by those before it. */
  #valid(state: RequestState): KvBlock[] {
    const { cached } = this.#kv.parts;
    const blocks: KvBlock[] = [];
    for (const [group, table] of state.kv.tables.entries())
      for (let index = state.kv.firstAllocated[group]!; index < table.length; index++)
        if (cached.has(table.at(index))) blocks.push(blockOf(state, { group, index }));
    return blocks;
  }

  #validBlock(key: BlockKey): BlockId | undefined {
    const digest = new Uint8Array(digestBytes);
    writeKeyDigest(key, digest, 0);
    const block = this.#kv.parts.cached.find(groupOfKey(key), new Uint32Array(digest.buffer), 0);
    return block === NULL_BLOCK ? undefined : block;
  }

  #requestOf(state: RequestState, wanted: readonly KvBlock[]): ConnectorRequest {
    const { id, kvTransferParams } = state.request;
    const tokenCount = state.tokens.length as ConnectorRequest['tokenCount'];
    return { id, tokenCount, wanted, ...(kvTransferParams === undefined ? {} : { kvTransferParams }) };
  }
}

export interface OpenLoadOutcome extends OpenLoad {
  readonly decided: DecidedLoad;
}

export const nothingFound: Match = Object.freeze({ blocks: [], mode: 'sync' });

function blockOf({ kv }: RequestState, { group, index }: BlockPlace): KvBlock {
  const key: BlockKey = blockKey(group, kv.chains[group]!.words, index);
  return { group, index, key };
}

/** For loops over all pages: the sentence is made only when it is needed. */
function fail(message: string): never {
  assert(false, message);
}
