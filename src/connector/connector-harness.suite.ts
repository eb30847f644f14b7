import { expect } from 'vitest';
import { assert, assertDefined } from '../base/assert.ts';
import { systemClock } from '../base/clock.ts';
import { type BlockId, blockId, type RequestId, requestId, stepId, tokenCount } from '../core/ids.ts';
import { OutputAggregator } from './aggregator.ts';
import type { BlockKey } from './block-key.ts';
import type {
  ConnectorRequest,
  KvConnector,
  KvEvent,
  KvIdentity,
  SchedulerConnector,
  ValidBlock,
  WorkerConnector,
} from './connector.ts';
import { systemTimers } from './system-timers.ts';
import { suiteBytes } from './tier.suite.ts';
import { type DecidedLoad, TransferLedger } from './transfer-ledger.ts';
import { stepWithConnector } from './worker-step.ts';

/** What block `key` holds on a rank. */
export const expectedBytes = (key: BlockKey, { rank, pageBytes }: KvIdentity): Uint8Array =>
  suiteBytes(key, pageBytes).map((byte) => byte ^ (rank * 85));

interface HarnessBlock {
  readonly key: BlockKey;
  page: BlockId | undefined;
  state: 'absent' | 'loading' | 'valid';
}

export interface HarnessRequest {
  readonly id: RequestId;
  readonly blocks: readonly HarnessBlock[];
  status: 'waiting' | 'loading' | 'running' | 'done' | 'gone';
  askedUntilMs: number | undefined;
  loadedBlocks: number;
  computedBlocks: number;
  failures: string[];
}

export interface HarnessOptions {
  readonly identities: readonly KvIdentity[];
  readonly pageCount: number;
  readonly loadTimeoutMs: number;
  /** Wraps each rank's worker half. */
  readonly wrapWorker?: (half: WorkerConnector, rank: number) => WorkerConnector;
}

/**
 * An engine without a model: it plays the engine's order of calls over plain memory. Computing a block writes the bytes
 * that belong to its key; after every step all valid blocks must hold theirs on every rank (I1), no page may be used
 * twice, and the pages that are held must be those that the ledger knows (I5, I7).
 */
export class EngineHarness {
  readonly requests = new Map<RequestId, HarnessRequest>();
  readonly events: KvEvent[] = [];
  readonly counters: Record<string, number> = {};
  readonly ledger: TransferLedger;
  readonly #options: HarnessOptions;
  readonly #scheduler: SchedulerConnector;
  readonly #ranks: readonly {
    readonly half: WorkerConnector;
    readonly identity: KvIdentity;
    readonly pool: Uint8Array;
  }[];
  readonly #aggregator: OutputAggregator;
  readonly #owners: (HarnessBlock | undefined)[];
  readonly #holds: Int32Array;
  #newlyValid: ValidBlock[] = [];
  #steps = 0;
  #wakeups = 0;

  static async open(connector: KvConnector, options: HarnessOptions): Promise<EngineHarness> {
    let harness: EngineHarness | undefined;
    const wake = (): void => harness?.ring();
    const context = { clock: systemClock, timers: systemTimers, wake };
    const scheduler = await connector.openScheduler({ ...context, identities: options.identities });
    const halves = await Promise.all(
      options.identities.map((identity) => connector.openWorker({ ...context, identity })),
    );
    harness = new EngineHarness(options, scheduler, halves);
    return harness;
  }

  private constructor(options: HarnessOptions, scheduler: SchedulerConnector, halves: readonly WorkerConnector[]) {
    this.#options = options;
    this.#scheduler = scheduler;
    this.#owners = new Array<HarnessBlock | undefined>(options.pageCount).fill(undefined);
    this.#holds = new Int32Array(options.pageCount);
    this.#ranks = halves.map((inner, rank) => {
      const identity = options.identities[rank]!;
      const half = options.wrapWorker?.(inner, rank) ?? inner;
      const pool = new Uint8Array(options.pageCount * identity.pageBytes);
      half.registerKvCaches({
        pageCount: options.pageCount,
        pageBytes: identity.pageBytes,
        blockBytes: (page) => pool.subarray(page * identity.pageBytes, (page + 1) * identity.pageBytes),
      });
      return { half, identity, pool };
    });
    this.ledger = new TransferLedger(systemClock, {
      hold: (page) => void this.#holds[page]!++,
      release: (page) => {
        assert(this.#holds[page]! > 0, `page ${page} is not held`);
        this.#holds[page]!--;
      },
    });
    this.#aggregator = new OutputAggregator(halves.length, (id) => this.ledger.isOpen(id));
  }

  get wakeups(): number {
    return this.#wakeups;
  }

  ring(): void {
    this.#wakeups++;
  }

  add(name: string, keys: readonly BlockKey[]): HarnessRequest {
    const id = requestId(name);
    assert(!this.requests.has(id), `request ${name} is known`);
    const request: HarnessRequest = {
      id,
      blocks: keys.map((key) => ({ key, page: undefined, state: 'absent' })),
      status: 'waiting',
      askedUntilMs: undefined,
      loadedBlocks: 0,
      computedBlocks: 0,
      failures: [],
    };
    this.requests.set(id, request);
    return request;
  }

  /** Gives the pages back; the request starts anew. */
  preempt(request: HarnessRequest): void {
    this.ledger.abandon(request.id);
    this.#dropPages(request);
    request.status = 'waiting';
    request.askedUntilMs = undefined;
  }

  /** Ends a request in whatever state it is. */
  end(request: HarnessRequest): void {
    this.#scheduler.requestFinished(this.#view(request), () => []);
    this.ledger.forget(request.id);
    this.#dropPages(request);
    request.status = 'gone';
    this.requests.delete(request.id);
  }

  /** Steps until all requests are done; a request must not wait for ever. */
  async runToEnd(onDone?: (request: HarnessRequest) => void): Promise<void> {
    const startedMs = systemClock.nowMs();
    for (;;) {
      const waiting = [...this.requests.values()].filter(({ status }) => status !== 'done');
      for (const request of [...this.requests.values()]) if (request.status === 'done') onDone?.(request);
      if (waiting.length === 0) return;
      const what = waiting.map(({ id, status }) => `${id} is ${status}`).join(', ');
      assert(systemClock.nowMs() - startedMs < patienceMs, `${what} for ever`);
      await this.step();
      await turn();
    }
  }

  /** Steps until the workers have nothing more to report. */
  async runToDrained(): Promise<void> {
    const startedMs = systemClock.nowMs();
    while (this.ledger.openCount > 0 || this.ledger.hasOrders || this.#newlyValid.length > 0) {
      assert(systemClock.nowMs() - startedMs < patienceMs, `${this.ledger.openCount} transfers are open for ever`);
      await this.step();
      await turn();
    }
  }

  async step(): Promise<void> {
    for (const request of this.requests.values()) if (request.status === 'waiting') this.#admit(request);
    const plan = this.#scheduler.buildConnectorMeta({
      stepId: stepId(++this.#steps),
      newlyValid: this.#newlyValid.filter(({ page }) => this.#owners[page] !== undefined || this.#holds[page]! > 0),
      newTransferId: () => this.ledger.newTransferId(),
      validPage: (key) => this.#owners.find((owner) => owner?.key === key && owner.state === 'valid')?.page,
    });
    // What crosses a process border is data.
    const metadata = structuredClone(this.ledger.composeMetadata(JSON.parse(JSON.stringify(plan))));
    for (const { page } of this.#newlyValid) this.#holds[page]!--;
    this.#newlyValid = [];
    const computing = [...this.requests.values()].filter(({ status }) => status === 'running');
    const spoiled = new Set<BlockId>();
    const outputs = await Promise.all(
      this.#ranks.map(async ({ half, identity, pool }) => {
        const forward = (failures: readonly { readonly page: BlockId }[]): Promise<void> => {
          const failed = new Set(failures.map(({ page }) => page));
          for (const page of failed) spoiled.add(page);
          for (const request of computing) {
            if (request.blocks.some(({ page }) => failed.has(page!))) continue;
            for (const block of request.blocks) {
              if (block.state !== 'absent') continue;
              pool.set(expectedBytes(block.key, identity), block.page! * identity.pageBytes);
            }
          }
          return turn();
        };
        const step = stepWithConnector(half, metadata, 3, computing.length === 0 ? undefined : forward);
        return structuredClone((await step).output);
      }),
    );
    this.#apply(this.#aggregator.aggregate(outputs), computing, spoiled);
    this.checkInvariants();
  }

  /** Ends the engine; true when nothing touches the pool any more. */
  async close(timeoutMs = 2000): Promise<boolean> {
    await this.#scheduler.close();
    const ends = await Promise.all(this.#ranks.map(({ half }) => half.shutdown({ timeoutMs })));
    return ends.every(({ drained }) => drained);
  }

  checkInvariants(): void {
    const used = new Set<BlockId>();
    for (const request of this.requests.values()) {
      for (const block of request.blocks) {
        if (block.page === undefined) continue;
        assert(this.#owners[block.page] === block && !used.has(block.page), `page ${block.page} is used twice`);
        used.add(block.page);
        if (block.state !== 'valid') continue;
        for (const { identity, pool } of this.#ranks) {
          const bytes = pool.subarray(block.page * identity.pageBytes, (block.page + 1) * identity.pageBytes);
          assert(
            Buffer.compare(bytes, expectedBytes(block.key, identity)) === 0,
            `${request.id}: a valid block is wrong on rank ${identity.rank}`,
          );
        }
      }
    }
    const held = new Map(this.ledger.countHolds());
    for (const { page } of this.#newlyValid) held.set(page, (held.get(page) ?? 0) + 1);
    for (let page = 0; page < this.#holds.length; page++) {
      assert(this.#holds[page] === (held.get(blockId(page)) ?? 0), `page ${page}: the holds do not add up`);
    }
  }

  /** Nothing is left of transfers. */
  expectNothingHeld(): void {
    expect(this.ledger.openCount).toBe(0);
    expect([...this.#holds].filter((count) => count !== 0)).toEqual([]);
  }

  #admit(request: HarnessRequest): void {
    if (this.#freePages() < request.blocks.length) return;
    const view = this.#view(request);
    const answer = this.#scheduler.getMatchedBlocks(view);
    if (answer.kind === 'askLater') {
      request.askedUntilMs ??= answer.deadlineMs;
      if (systemClock.nowMs() <= request.askedUntilMs) return;
    }
    const found = answer.kind === 'found' ? answer.blocks : [];
    const loads = found.filter((block) => this.ledger.isPromisable(request.id, block));
    for (const block of request.blocks) block.page = this.#takePage(block);
    if (loads.length === 0 || answer.kind !== 'found') {
      this.#scheduler.updateStateAfterAlloc(view, undefined, () => []);
      request.status = 'running';
      return;
    }
    const blocks = loads.map((block) => ({ ...block, page: request.blocks[block.index]!.page! }));
    for (const { index } of blocks) request.blocks[index]!.state = 'loading';
    const load = this.ledger.openLoad(request.id, answer.mode, this.#options.loadTimeoutMs, blocks);
    this.#scheduler.updateStateAfterAlloc(view, load, () => []);
    // A sync load's rows are in the same step.
    request.status = answer.mode === 'sync' ? 'running' : 'loading';
  }

  #apply(
    output: ReturnType<OutputAggregator['aggregate']>,
    computing: readonly HarnessRequest[],
    spoiled: ReadonlySet<BlockId>,
  ): void {
    for (const [name, count] of Object.entries(output.counters))
      this.counters[name] = (this.counters[name] ?? 0) + count;
    const { decided, accepted } = this.ledger.apply(output);
    this.#scheduler.updateConnectorOutput(accepted);
    this.events.push(...this.#scheduler.takeEvents());
    // A request that had a failed page on any rank was not computed on that rank: its rows do not count.
    for (const request of computing) {
      if (request.status !== 'running' || request.blocks.some(({ page }) => spoiled.has(page!))) continue;
      for (const block of request.blocks) {
        if (block.state !== 'absent') continue;
        request.computedBlocks++;
        this.#makeValid(request, block);
      }
    }
    for (const load of [...decided, ...this.ledger.takeLost()]) this.#applyLoad(load);
    for (const request of this.requests.values()) {
      if (request.status === 'running' && request.blocks.every(({ state }) => state === 'valid'))
        request.status = 'done';
    }
  }

  #applyLoad({ load, loaded, failed, isAbandoned }: DecidedLoad): void {
    const request = this.requests.get(load.requestId);
    if (isAbandoned || request === undefined) return;
    for (const { index } of loaded) {
      request.loadedBlocks++;
      this.#makeValid(request, request.blocks[index]!);
    }
    for (const { index, page, reason, isPageBusy } of failed) {
      const block = request.blocks[index]!;
      request.failures.push(reason);
      block.state = 'absent';
      if (!isPageBusy) continue;
      this.#owners[page] = undefined;
      block.page = undefined;
    }
    const missing = request.blocks.filter(({ page }) => page === undefined);
    if (missing.length > this.#freePages()) {
      this.preempt(request);
      return;
    }
    for (const block of missing) block.page = this.#takePage(block);
    request.status = 'running';
  }

  #makeValid(request: HarnessRequest, block: HarnessBlock): void {
    block.state = 'valid';
    const page = block.page!;
    this.#holds[page]!++;
    this.#newlyValid.push({
      requestId: request.id,
      group: 0,
      index: request.blocks.indexOf(block),
      key: block.key,
      page,
    });
  }

  #view(request: HarnessRequest): ConnectorRequest {
    const wanted = request.blocks.map(({ key }, index) => ({ group: 0, index, key }));
    return { id: request.id, tokenCount: tokenCount(wanted.length * 16), wanted };
  }

  #freePages(): number {
    let free = 0;
    for (let page = 1; page < this.#owners.length; page++) {
      if (this.#owners[page] === undefined && this.#holds[page] === 0) free++;
    }
    return free;
  }

  #takePage(block: HarnessBlock): BlockId {
    for (let page = 1; page < this.#owners.length; page++) {
      if (this.#owners[page] !== undefined || this.#holds[page] !== 0) continue;
      this.#owners[page] = block;
      // Whoever still reads the former content must fail.
      for (const { identity, pool } of this.#ranks)
        pool.fill(0xdd, page * identity.pageBytes, (page + 1) * identity.pageBytes);
      return blockId(page);
    }
    return assertDefined<BlockId>(undefined, 'no page is free');
  }

  #dropPages(request: HarnessRequest): void {
    for (const block of request.blocks) {
      if (block.page !== undefined) this.#owners[block.page] = undefined;
      block.page = undefined;
      block.state = 'absent';
    }
  }
}

/** A test that hangs is to say who waits for what; deadlines under test are a hundred times shorter. */
const patienceMs = 40_000;

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
