import { setImmediate as turn } from 'node:timers/promises';
import { makeRequest } from '../../sim/workload.ts';
import { assert, assertDefined } from '../base/assert.ts';
import { systemClock } from '../base/clock.ts';
import type { Prng } from '../base/prng.ts';
import { sha256 } from '../base/sha256.ts';
import { type BlockId, blockCount, blockId, type RequestId, tokenCount } from '../core/ids.ts';
import type { RequestUpdate } from '../core/request.ts';
import { Outbox } from '../engine/outbox.ts';
import { step } from '../engine/step.ts';
import type { ScheduledStep, SchedulerOptions } from '../scheduler/contract.ts';
import type { ConnectorPort } from '../scheduler/external-kv.ts';
import { Scheduler } from '../scheduler/scheduler.ts';
import { PipelineExecutor } from '../worker/executor-pipeline.ts';
import type { Rank } from '../worker/rank.ts';
import { InlineRank } from '../worker/rank-inline.ts';
import type { BlockKey } from './block-key.ts';
import type {
  ConnectorMetadata,
  ConnectorPlan,
  KvConnector,
  KvEvent,
  KvIdentity,
  LoadOutcome,
  SchedulerConnector,
  TransferId,
  WorkerConnector,
} from './connector.ts';
import { CheckingRunner, layersPerRank, suiteBlockSize, suiteFingerprint } from './connector-checks.suite.ts';
import type { LoadFailureReason } from './reasons.ts';
import { systemTimers } from './system-timers.ts';

export interface HarnessRequest {
  readonly id: RequestId;
  readonly tokens: number[];
  status: 'live' | 'done' | 'gone';
  /** Blocks that all ranks reported as loaded for the request, with the right bytes. */
  loadedBlocks: number;
  /** Full blocks that the engine computed for the request; set when the request is done. */
  computedBlocks: number;
  failures: LoadFailureReason[];
}

export interface HarnessOptions {
  readonly identities: readonly KvIdentity[];
  readonly blockCount: number;
  readonly loadTimeoutMs: number;
  readonly scheduling?: Partial<SchedulerOptions>;
  /** Which valid blocks the connector gets. Default: all. Other values make holes in the store. */
  readonly offers?: (key: BlockKey) => boolean;
  /** Wraps the worker side of each rank. */
  readonly wrapWorker?: (side: WorkerConnector, rank: number) => WorkerConnector;
}

interface SeenLoad {
  readonly request: HarnessRequest;
  /** Blocks that became invalid while the load was under way. */
  readonly invalid: Set<BlockId>;
}

/**
 * The engine without a model: the real step, scheduler, pipeline and ranks, with runners that check the KV they read. When
 * a load is reported, its blocks must have the right bytes on every rank. When a token is computed, the KV of all tokens
 * before it must be right (I1). The scheduler checks its own invariants after every step (I4, I5, I7, I8).
 */
export class EngineHarness {
  readonly requests = new Map<RequestId, HarnessRequest>();
  readonly events: KvEvent[] = [];
  readonly scheduler: Scheduler;
  readonly #options: HarnessOptions;
  readonly #connector: SchedulerConnector;
  readonly #runners: readonly CheckingRunner[];
  readonly #ranks: readonly InlineRank[];
  readonly #executor: PipelineExecutor;
  readonly #outbox = new Outbox((update) => this.#deliver(update));
  readonly #loads = new Map<TransferId, SeenLoad>();
  /** The blocks of saves that may still read them. */
  readonly #saves = new Map<TransferId, { readonly blocks: readonly BlockId[]; ranks: number }>();
  #wakeups = 0;
  #isNotified: boolean = false;
  #wake: (() => void) | undefined;

  static async open(connector: KvConnector, options: HarnessOptions): Promise<EngineHarness> {
    let harness: EngineHarness | undefined;
    const wake = (): void => harness?.notify();
    const context = { clock: systemClock, timers: systemTimers, wake };
    const scheduler = await connector.openScheduler({ ...context, identities: options.identities });
    const sides = await Promise.all(
      options.identities.map((identity) => connector.openWorker({ ...context, identity })),
    );
    harness = new EngineHarness(options, scheduler, sides);
    return harness;
  }

  private constructor(options: HarnessOptions, connector: SchedulerConnector, sides: readonly WorkerConnector[]) {
    this.#options = options;
    this.#connector = connector;
    this.#runners = options.identities.map((identity) => new CheckingRunner(identity, options.blockCount));
    this.#ranks = sides.map((inner, rank) => {
      const runner = this.#runners[rank]!;
      const side = overwritingLoads(options.wrapWorker?.(inner, rank) ?? inner, (block) => corrupt(runner, block));
      side.registerKvCaches(runner.blockMemory);
      return new InlineRank(runner, options.identities[rank]!, side);
    });
    this.#executor = new PipelineExecutor(this.#ranks.map(acrossProcesses));
    this.scheduler = new Scheduler(
      {
        groups: [{ kind: 'full', blockSize: tokenCount(suiteBlockSize), layers: layersOfAll(sides.length) }],
        blockBytes: options.identities[0]!.blockBytes,
        blockCount: blockCount(options.blockCount),
        fingerprint: suiteFingerprint,
      },
      {
        maxNumBatchedTokens: 512,
        maxNumSeqs: 16,
        maxModelLen: 1000,
        enablePrefixCaching: true,
        policy: 'fcfs',
        ...options.scheduling,
      },
      sha256,
      { connector: this.#port(connector), loadTimeoutMs: () => options.loadTimeoutMs, pollMs: 5 },
    );
  }

  get wakeups(): number {
    return this.#wakeups;
  }

  get counters(): Readonly<Record<string, number>> {
    return this.scheduler.stats().transfers.counters;
  }

  notify(): void {
    this.#wakeups++;
    this.#isNotified = true;
    this.scheduler.notifyTransfers();
    this.#wake?.();
  }

  add(name: string, prompt: ArrayLike<number>, maxTokens = 1): HarnessRequest {
    const engineRequest = makeRequest(name, prompt, { params: { maxTokens, ignoreEos: true } });
    const request: HarnessRequest = {
      id: engineRequest.id,
      tokens: Array.from(prompt),
      status: 'live',
      loadedBlocks: 0,
      computedBlocks: 0,
      failures: [],
    };
    this.scheduler.add(engineRequest);
    this.requests.set(request.id, request);
    return request;
  }

  /**
   * Overwrites these blocks, by default all, and reports them as invalid, as after a worker died. A block that is being
   * saved is not overwritten. The saves of a worker end with the worker, and the blocks of the other ranks are still
   * right.
   */
  invalidateBlocks(blocks: readonly BlockId[] = this.#blocks()): void {
    const saving = new Set([...this.#saves.values()].flatMap(({ blocks: saved }) => saved));
    for (const block of blocks) if (!saving.has(block)) this.#corrupt(block);
    for (const { invalid } of this.#loads.values()) for (const block of blocks) invalid.add(block);
    const updates = this.scheduler.invalidate(blocks);
    assert(updates.length === 0, 'no request ends when blocks become invalid');
    this.scheduler.checkInvariants();
  }

  /** Some blocks of the pool. */
  anyBlocks(prng: Prng): BlockId[] {
    return this.#blocks().filter(() => prng.chance(0.1));
  }

  /** Ends a request in any state. */
  end(request: HarnessRequest): void {
    if (request.status === 'live') this.scheduler.abort(request.id);
    request.status = 'gone';
    this.requests.delete(request.id);
  }

  /** Runs steps until all requests are done. Fails if a request waits for ever. */
  async runToEnd(onDone?: (request: HarnessRequest) => void): Promise<void> {
    const live = (): HarnessRequest[] => [...this.requests.values()].filter(({ status }) => status === 'live');
    await this.runUntil(
      () => live().length === 0,
      () => `${live().map(({ id }) => id)} wait for ever`,
    );
    for (const request of [...this.requests.values()]) onDone?.(request);
  }

  /** Runs steps until the request has `length` tokens. */
  async runToLength(request: HarnessRequest, length: number): Promise<void> {
    await this.runUntil(
      () => request.tokens.length >= length,
      () => `${request.id} waits for ever`,
    );
  }

  /** Runs steps until only `openLeft` transfers are open, and neither the scheduler nor the connector has work, such as blocks to write. */
  async runToDrained(openLeft = 0): Promise<void> {
    const hasWork = (): boolean => this.scheduler.hasWork() || this.#connector.hasPendingWork();
    await this.runUntil(
      () => this.scheduler.stats().transfers.open === openLeft && !hasWork(),
      () => `${this.scheduler.stats().transfers.open} transfers are open for ever`,
    );
  }

  /** One step of the engine. If there is no work, waits for a notification or the next deadline. */
  async step(): Promise<void> {
    const execute = async (plan: ScheduledStep) => {
      const result = await this.#executor.execute(plan);
      for (const report of result.connectorOutputs ?? [])
        if (typeof report === 'object') for (const id of report.drained) this.#drained(id);
      return result;
    };
    const executor = { kvCacheSpec: this.#executor.kvCacheSpec, execute, close: () => this.#executor.close() };
    this.#isNotified = false;
    const nowMs = (): number => systemClock.nowMs();
    const hasWorked = await step({ scheduler: this.scheduler, executor, outbox: this.#outbox, nowMs });
    this.#outbox.deliver();
    this.events.push(...this.#connector.takeEvents());
    this.scheduler.checkInvariants();
    await (hasWorked ? turn() : this.#untilWoken());
  }

  /** Closes the engine; true if no transfer touches the pool any more. The default ends with the last transfer, also on a busy machine. */
  async close(timeoutMs = 120_000): Promise<boolean> {
    await this.#connector.close();
    await Promise.all(this.#ranks.map((rank) => rank.close({ timeoutMs })));
    // A rank frees its pool only if no transfer can write it any more.
    return this.#runners.every(({ isClosed }) => isClosed);
  }

  /** Blocks that requests reference. */
  get usedBlocks(): number {
    return this.scheduler.stats().blocks.referenced;
  }

  async runUntil(isOver: () => boolean, complaint = (): string => 'it does not happen'): Promise<void> {
    const startedMs = systemClock.nowMs();
    while (!isOver()) {
      assert(systemClock.nowMs() - startedMs < patienceMs, complaint());
      await this.step();
    }
  }

  async #untilWoken(): Promise<void> {
    // A notification during the step needs another step.
    if (this.#isNotified) return turn();
    // Without a deadline, the end of a save is awaited. Not all of them cause a notification.
    const wakeMs = this.scheduler.nextWakeMs() ?? systemClock.nowMs() + 2;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      timer = setTimeout(resolve, Math.max(0, wakeMs - systemClock.nowMs()));
    });
    clearTimeout(timer);
    this.#wake = undefined;
  }

  #deliver({ requestId, newTokens, finish, stats }: RequestUpdate): void {
    const request = this.requests.get(requestId);
    if (request === undefined) return;
    request.tokens.push(...newTokens.map(({ token }) => token));
    if (finish === undefined) return;
    assert(finish.reason === 'length', `${requestId} ended: ${finish.reason}`);
    request.status = 'done';
    request.computedBlocks = Math.floor(stats.computedTokens / suiteBlockSize);
  }

  /** The connector's scheduler side for the scheduler, with a record of loads and failures. */
  #port(side: SchedulerConnector): ConnectorPort {
    const { offers = () => true } = this.#options;
    return {
      getMatchedBlocks: (request) => side.getMatchedBlocks(request),
      updateStateAfterAlloc: (request, load, valid) => {
        const ours = assertDefined(this.requests.get(request.id), 'a request that waits is known');
        if (load !== undefined) this.#loads.set(load.transfer, { request: ours, invalid: new Set() });
        side.updateStateAfterAlloc(request, load, () => valid().filter(({ key }) => offers(key)));
      },
      buildConnectorMeta: (given) => {
        const newlyValid = given.newlyValid.filter(({ key }) => offers(key));
        // As between processes: the plan must survive JSON.
        const plan: ConnectorPlan = JSON.parse(JSON.stringify(side.buildConnectorMeta({ ...given, newlyValid })));
        for (const { transfer, blocks } of plan.saves)
          this.#saves.set(transfer, { blocks: blocks.map(({ block }) => block), ranks: this.#ranks.length });
        return plan;
      },
      updateConnectorOutput: (outcomes) => {
        for (const outcome of outcomes.loads) this.#checkBlock(outcome);
        side.updateConnectorOutput(outcomes);
      },
      requestFinished: (request, valid) =>
        side.requestFinished(request, () => valid().filter(({ key }) => offers(key))),
      hasPendingWork: () => side.hasPendingWork(),
      counters: () => side.counters?.() ?? {},
    };
  }

  /** A rank no longer reads the blocks of the save. */
  #drained(id: TransferId): void {
    const save = this.#saves.get(id);
    if (save !== undefined && --save.ranks === 0) this.#saves.delete(id);
  }

  /** All ranks have reported the block: if it has not failed, it must be right on every rank, before any request uses it. */
  #checkBlock({ transfer, index, block, result }: LoadOutcome): void {
    const { request, invalid } = this.#loads.get(transfer)!;
    if (result !== 'loaded') request.failures.push(result);
    else if (!invalid.has(block)) {
      request.loadedBlocks++;
      const tokens = request.tokens.slice(0, (index + 1) * suiteBlockSize);
      for (const runner of this.#runners) runner.check(tokens, index * suiteBlockSize, block, request.id);
    }
  }

  #blocks(): BlockId[] {
    return Array.from({ length: this.#options.blockCount - 1 }, (_, index) => blockId(index + 1));
  }

  #corrupt(block: BlockId): void {
    for (const runner of this.#runners) corrupt(runner, block);
  }
}

const corrupt = ({ blockMemory }: CheckingRunner, block: BlockId): void => void blockMemory.bytesOf(block).fill(0xdd);

/** Overwrites the blocks of loads when flushed saves have read them, so that a load that does nothing is detected. */
const overwritingLoads = (side: WorkerConnector, overwrite: (block: BlockId) => void): WorkerConnector =>
  new Proxy(side, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      if (name !== 'handlePreemptions') return value.bind(target) as unknown;
      return async (metadata: ConnectorMetadata): Promise<void> => {
        await target.handlePreemptions(metadata);
        for (const { blocks } of metadata.loads) for (const { block } of blocks) overwrite(block);
      };
    },
  });

/** Copies the messages to and from a rank, as between processes. */
const acrossProcesses = (rank: InlineRank): Rank => ({
  kvCacheSpec: rank.kvCacheSpec,
  identity: rank.identity,
  execute: async (plan, upstream) => {
    const { connectorMetadata } = structuredClone({ connectorMetadata: plan.connectorMetadata! });
    const output = await rank.execute({ ...plan, connectorMetadata }, upstream);
    return { ...output, connectorOutput: structuredClone(output.connectorOutput!) };
  },
  loadAdapter: (source) => rank.loadAdapter(source),
  unloadAdapter: (digest) => rank.unloadAdapter(digest),
  close: (options) => rank.close(options),
});

const layersOfAll = (ranks: number): number[] => Array.from({ length: ranks * layersPerRank }, (_, layer) => layer);

/** After this time, a test that hangs fails with the reason. Deadlines under test are much shorter, also on a busy machine. */
const patienceMs = 240_000;
