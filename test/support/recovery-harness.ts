/**
 * A real model with the real engine, scheduler, ranks and connector sides. The model is opened once and used for hundreds of short
 * runs. Each run has its own scheduler, connector and stores, and a pool full of garbage.
 */
import { createHash } from 'node:crypto';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { assert } from '../../src/base/assert.ts';
import { systemClock } from '../../src/base/clock.ts';
import type { BlockKey } from '../../src/connector/block-key.ts';
import type { KvIdentity } from '../../src/connector/connector.ts';
import { systemTimers } from '../../src/connector/system-timers.ts';
import { hasKvOn } from '../../src/connector/tier/blocks-of-rank.ts';
import { StagedWorker } from '../../src/connector/transfer/staged-worker.ts';
import { blockCount, blockId, tokenCount } from '../../src/core/ids.ts';
import type { KvGroupSpec } from '../../src/core/kv-spec.ts';
import type { AdapterRef, RequestStats } from '../../src/core/request.ts';
import type { TokenLogprobs } from '../../src/core/step.ts';
import { Adapters } from '../../src/engine/adapters.ts';
import type { EngineStats, GenerateRequest } from '../../src/engine/contract.ts';
import { Engine } from '../../src/engine/engine.ts';
import { PredictionDrafter } from '../../src/engine/prediction-drafter.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { findAdapter } from '../../src/ggml/lora-adapter.ts';
import { readModelConfig } from '../../src/ggml/model-config.ts';
import { longestRequest } from '../../src/kv/create-group.ts';
import type { Runner } from '../../src/runner/contract.ts';
import { GgmlRunner } from '../../src/runner/ggml-runner.ts';
import { layerGroups } from '../../src/runner/kv-groups.ts';
import { kvTypes } from '../../src/runner/kv-memory.ts';
import type { SchedulerOptions } from '../../src/scheduler/contract.ts';
import type { RequestState } from '../../src/scheduler/request-state.ts';
import { Scheduler } from '../../src/scheduler/scheduler.ts';
import type { DraftOrder, Speculator } from '../../src/scheduler/speculation/speculator.ts';
import type { Tokenizer } from '../../src/tokenizer/contract.ts';
import { openTokenizer } from '../../src/tokenizer/llama-tokenizer.ts';
import type { Executor } from '../../src/worker/executor.ts';
import { PipelineExecutor } from '../../src/worker/executor-pipeline.ts';
import { InlineRank } from '../../src/worker/rank-inline.ts';
import { stagesOf } from './drive.ts';
import { rowsOnGpu } from './gpu.ts';
import { MemoryConnector, type MemoryConnectorOptions, type StoredBlocks } from './memory-connector.ts';

export const blockSize = 16;
/** Of models with states. */
const checkpointTokens = 32;

export interface HarnessRequest extends GenerateRequest {
  /** Milliseconds after the start of the run. */
  readonly arriveMs?: number;
  /** The request is aborted when it has this many tokens; 0: as soon as it was submitted. */
  readonly abortAfter?: number;
}

export interface HarnessExtras {
  /** Connectors get copies of blocks, as of a pool in the memory of a device. */
  readonly isStaged?: boolean;
  /** The layer with which the second of two ranks begins; default: about the middle. On a GPU, the first rank then is on the CPU. */
  readonly secondFrom?: number | undefined;
  /** The model's prediction layer drafts. */
  readonly predicts?: boolean;
  /** The file of a LoRA adapter with the name `lora`. */
  readonly adapter?: string;
}

export interface Completion {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly logprobs: readonly TokenLogprobs[];
  readonly reason: string;
  readonly stats: RequestStats;
}

export interface RunOptions {
  readonly requests: readonly HarnessRequest[];
  readonly scheduler?: Partial<SchedulerOptions>;
  /** Blocks of the pool, including the null block. */
  readonly blocks?: number;
  /** Absent: no connector. */
  readonly store?: Omit<MemoryConnectorOptions, 'identities'>;
  readonly loadTimeoutMs?: number;
  /** Each request is submitted when the one before has ended. */
  readonly isSequential?: boolean;
  /** The engine is closed when all requests together have emitted this many deltas. */
  readonly closeAfter?: number;
}

export interface RunResult {
  readonly completions: readonly Completion[];
  readonly stats: EngineStats;
  /** Blocks that a worker reported as failed; see `MemoryConnector`. */
  readonly failedBlocks: number;
  /** Blocks that arrived on all ranks, counted in the stores. */
  readonly arrived: ReadonlySet<string>;
  /** The same when each request had ended, by request. */
  readonly arrivedAtEnd: readonly ReadonlySet<string>[];
  /** All blocks that this run stored, by rank; empty without a store. */
  readonly stored: StoredBlocks;
}

/** Late reports, repeated reports and reports of unknown transfers. */
export const ignoredReports = ({ stats: { transfers } }: RunResult): number => transfers.ignored;

const maxModelLen = 512;

/** `npm run test:gpu` runs files on a GPU. */
export const testDevice = process.env.KVASIR_TEST_DEVICE === 'gpu' ? 'gpu' : 'cpu';

/** Of a step. */
const mostRows = (): number => (testDevice === 'gpu' ? rowsOnGpu() : 256);

export class RecoveryHarness {
  readonly #runners: readonly GgmlRunner[];
  readonly #tokenizer: Tokenizer;
  readonly identities: readonly KvIdentity[];
  /** Part of the keys of blocks. */
  readonly fingerprint: string;
  /** Of the whole model. */
  readonly groups: readonly KvGroupSpec[];
  readonly #blocksMax: number;
  readonly #extras: HarnessExtras;
  /** The requests with `lora: 'lora'` have it. */
  readonly adapter: AdapterRef | undefined;
  readonly #adapters: Adapters;

  private constructor(runners: readonly GgmlRunner[], tokenizer: Tokenizer, extras: HarnessExtras, adapters: Adapters) {
    this.#runners = runners;
    this.#extras = extras;
    this.#adapters = adapters;
    this.adapter = extras.adapter === undefined ? undefined : adapters.find('lora');
    this.#tokenizer = tokenizer;
    this.groups = runners[0]!.kvCacheSpec.groups;
    this.#blocksMax = blocksPerGroup * this.groups.length;
    this.identities = runners.map(({ kvCacheSpec: { fingerprint, blockBytes, groups } }, rank) => ({
      fingerprint,
      modelName: 'harness',
      dtype: 'f16',
      rank,
      worldSize: runners.length,
      blockBytes,
      groups,
    }));
    const ranks = runners.map((runner, rank) => new InlineRank(runner, this.identities[rank]!));
    this.fingerprint = new PipelineExecutor(ranks).kvCacheSpec.fingerprint;
  }

  /** `ranks`: the number of ranks, all in this process. */
  static async open(path: string, ranks = 1, extras: HarnessExtras = {}): Promise<RecoveryHarness> {
    const file = await readGguf(path);
    const config = readModelConfig(file);
    const groupCount = layerGroups(config, { blockSize, kvType: kvTypes.f16, checkpointTokens }).length;
    const runners: GgmlRunner[] = [];
    const { secondFrom } = extras;
    const isDivided = secondFrom !== undefined && testDevice === 'gpu';
    for (const stage of stagesOf(config, secondFrom === undefined ? ranks : [secondFrom])) {
      runners.push(
        await GgmlRunner.open({
          file,
          config,
          device: isDivided && stage.firstLayer === 0 ? 'cpu' : testDevice,
          threads: 1,
          numerics: 'exact',
          rowsMax: mostRows(),
          blockSize: tokenCount(blockSize),
          stateCheckpointTokens: checkpointTokens,
          kvCacheBytes: (blockBytes) => blocksPerGroup * groupCount * blockBytes,
          predicts: extras.predicts === true,
          stage,
          placement: isDivided ? `divided at ${secondFrom}` : undefined,
        }),
      );
    }
    const load = async (adapter: string): Promise<string> => {
      const source = await findAdapter(adapter, { file, config });
      for (const runner of runners) await runner.adapters.load(source);
      return source.digest;
    };
    const adapters = new Adapters({ modelNames: [], countMax: 1, loader: { load, unload: async () => {} } });
    if (extras.adapter !== undefined) await adapters.load({ name: 'lora', path: extras.adapter });
    return new RecoveryHarness(runners, await openTokenizer(file), extras, adapters);
  }

  get vocabSize(): number {
    return this.#tokenizer.vocabSize;
  }

  /** Runs the requests to their ends, checks that no block or transfer stays in use, and returns the results. */
  async run(options: RunOptions): Promise<RunResult> {
    const { requests, store, blocks = this.#blocksMax, closeAfter = Infinity } = options;
    // After this, a read of KV that was neither written nor verified gives a wrong text.
    for (const { memory } of this.#runners) {
      const garbage = new Uint8Array(memory.blockBytes).fill(0x5a);
      for (let block = 0; block < this.#blocksMax; block++) memory.write(blockId(block), garbage);
    }
    const connector =
      store === undefined ? undefined : await MemoryConnector.open({ ...store, identities: this.identities });
    const { engine, scheduler, storedKeys } = this.#open(options, blocks, connector);
    let deltas = 0;
    const arrivedAtEnd: ReadonlySet<string>[] = [];
    const complete = async (request: HarnessRequest, index: number): Promise<Completion> => {
      const completion = await this.#complete(engine, request, () => {
        if (++deltas >= closeAfter) void engine.close();
      });
      arrivedAtEnd[index] = onAllRanks(connector?.arrived ?? [], this.identities);
      return completion;
    };
    const runs: Promise<Completion>[] = [];
    for (const [index, request] of requests.entries()) {
      const before = options.isSequential === true ? runs.at(-1) : undefined;
      runs.push(before === undefined ? complete(request, index) : before.then(() => complete(request, index)));
    }
    // Hung calls pin their blocks, and a small pool may need these blocks: so the calls end after a while.
    const releasing = setInterval(() => connector?.releaseHung(), 100);
    // I8: a run takes milliseconds, so a request that has not ended by then never will, also on a busy machine.
    const watchdog = new AbortController();
    const completions = await Promise.race([
      Promise.all(runs),
      sleep(patienceMs, undefined, { signal: watchdog.signal }).then(() => {
        throw new Error(`I8: requests do not end: ${JSON.stringify(engine.stats())}`);
      }),
    ]).finally(() => {
      watchdog.abort();
    });
    if (deltas < closeAfter) await settled(engine, connector);
    await engine.close();
    clearInterval(releasing);
    scheduler.checkInvariants();
    const stats = engine.stats();
    assert(
      stats.blocks.referenced === 0 || deltas >= closeAfter,
      `${stats.blocks.referenced} blocks are still referenced`,
    );
    assert(stats.running + stats.waiting === 0, 'requests are still running or waiting');
    return {
      completions,
      stats,
      failedBlocks: connector?.failedBlocks.size ?? 0,
      arrived: onAllRanks(connector?.arrived ?? [], this.identities),
      arrivedAtEnd,
      stored: (await connector?.contents(storedKeys)) ?? [],
    };
  }

  async close(): Promise<void> {
    for (const runner of this.#runners) await runner.close();
    this.#tokenizer.close();
  }

  #open(options: RunOptions, blocks: number, connector: MemoryConnector | undefined) {
    let notify = (): void => undefined;
    const context = { clock: systemClock, timers: systemTimers, wake: () => notify() };
    const ranks = this.#runners.map((runner, rank) => {
      const identity = this.identities[rank]!;
      const side = connector?.openWorker({ ...context, identity });
      const pool = this.#extras.isStaged === true ? undefined : runner.blockMemory;
      const staged = side && pool === undefined ? new StagedWorker(side, runner.deviceBlocks) : side;
      if (pool !== undefined) side?.registerKvCaches(pool);
      return new InlineRank(withBlocks(runner, blocks), identity, staged);
    });
    const side = connector?.openScheduler({ ...context, identities: this.identities });
    // Runs without a store are what the others are compared with.
    const drafts = this.#extras.predicts === true && connector !== undefined;
    const pipeline = new PipelineExecutor(ranks);
    const executor = checkedBefore(pipeline, () => scheduler.checkInvariants());
    const { maxNumBatchedTokens = 64, ...otherScheduling } = options.scheduler ?? {};
    const scheduling: SchedulerOptions = {
      maxNumBatchedTokens: Math.min(maxNumBatchedTokens, mostRows()),
      maxNumSeqs: 16,
      maxModelLen: longestRequest({ ...executor.kvCacheSpec, blockCount: blockCount(blocks) }, maxModelLen),
      enablePrefixCaching: true,
      policy: 'fcfs',
      ...otherScheduling,
    };
    const scheduler: Scheduler = new Scheduler(executor.kvCacheSpec, scheduling, sha256, {
      connector: side,
      speculator: drafts ? new AlwaysDrafting(3) : undefined,
      loadTimeoutMs: () => options.loadTimeoutMs ?? 2000,
      askLaterMaxMs: 2000,
      pollMs: 3,
    });
    const storedKeys = new Set<BlockKey>();
    const engine = new Engine(
      {
        scheduler,
        executor,
        tokenizer: withoutClose(this.#tokenizer),
        adapters: this.#adapters,
        model: {
          name: 'harness',
          path: '',
          architecture: 'harness',
          vocabSize: this.vocabSize,
          maxModelLen: scheduling.maxModelLen,
          hasChatTemplate: false,
        },
        ...(side === undefined ? {} : { connector: side }),
        ...(drafts ? { draftModel: new PredictionDrafter(pipeline) } : {}),
      },
      {
        scheduler: scheduling,
        maxWaiting: 1000,
        invariants: 'all',
        onKvEvents: (events) => {
          for (const { kind, keys } of events) if (kind === 'stored') for (const key of keys) storedKeys.add(key);
        },
      },
    );
    notify = () => engine.notifyTransfers();
    return { engine, scheduler, storedKeys };
  }

  async #complete(engine: Engine, request: HarnessRequest, onDelta: () => void): Promise<Completion> {
    const { arriveMs = 0, abortAfter = Infinity, ...rest } = request;
    if (arriveMs > 0) await sleep(arriveMs);
    const abort = new AbortController();
    const tokens: number[] = [];
    const logprobs: TokenLogprobs[] = [];
    let text = '';
    let stats: RequestStats | undefined;
    let reason = 'none';
    if (abortAfter === 0) setImmediate(() => abort.abort());
    if (!engine.isHealthy()) return notAccepted;
    for await (const delta of engine.generate(rest, { signal: abort.signal })) {
      text += delta.text;
      tokens.push(...delta.tokenIds);
      logprobs.push(...(delta.logprobs ?? []));
      stats = delta.stats;
      reason = delta.finish?.reason ?? reason;
      if (tokens.length >= abortAfter) abort.abort();
      onDelta();
    }
    return { text, tokens, logprobs, reason, stats: stats! };
  }
}

/** The result of a request that comes after the engine was closed. */
const notAccepted: Completion = {
  text: '',
  tokens: [],
  logprobs: [],
  reason: 'abort',
  stats: { promptTokens: 0, cachedTokens: 0, outputTokens: 0, computedTokens: 0, recomputedTokens: 0, preemptions: 0 },
};

/** Keys that are in the set of every rank with KV in the block. `identities`: one per rank; absent: all have KV in all blocks. */
export function onAllRanks(
  sets: readonly ReadonlySet<string>[],
  identities?: readonly KvIdentity[],
): ReadonlySet<string> {
  const hasKv = sets.map((_, rank) => (identities === undefined ? () => true : hasKvOn(identities[rank]!)));
  const isOnAll = (key: string): boolean => sets.every((keys, rank) => keys.has(key) || !hasKv[rank]!(key as BlockKey));
  return new Set(sets.flatMap((keys) => [...keys]).filter(isOnAll));
}

/** After this time, a run that hangs fails with the reason. */
const patienceMs = 120_000;
const blocksPerGroup = 160;
const sha256 = (bytes: Uint8Array): Uint8Array => createHash('sha256').update(bytes).digest();

/** After the last request: waits until all transfers have ended and their blocks are unpinned. */
async function settled(engine: Engine, connector: MemoryConnector | undefined): Promise<void> {
  const deadline = performance.now() + patienceMs;
  connector?.releaseHung();
  while (engine.stats().transfers.open > 0) {
    // An engine that an assertion has stopped completes no transfers: the assertion is the result of the run.
    const health = engine.health();
    if (health.status === 'broken') throw new Error(health.message);
    assert(performance.now() < deadline, `${engine.stats().transfers.open} transfers do not end`);
    connector?.releaseHung();
    await sleep(2);
  }
  await nextTurn();
}

/** A runner with fewer blocks, whose `close` does nothing. */
function withBlocks(runner: GgmlRunner, blocks: number): Runner {
  return {
    kvCacheSpec: { ...runner.kvCacheSpec, blockCount: blocks as typeof runner.kvCacheSpec.blockCount },
    vocabSize: runner.vocabSize,
    stage: runner.stage,
    blockMemory: runner.blockMemory,
    adapters: runner.adapters,
    execute: (plan, hidden) => runner.execute(plan, hidden),
    draft: (requests, count) => runner.draft(requests, count),
    release: (requests) => runner.release(requests),
    close: async () => {},
  };
}

function checkedBefore(executor: Executor, check: () => void): Executor {
  return {
    kvCacheSpec: executor.kvCacheSpec,
    execute: (step) => {
      check();
      return executor.execute(step);
    },
    close: () => executor.close(),
  };
}

/** Drafts before each step of decodes, and verifies all drafts, whatever that costs. */
class AlwaysDrafting implements Speculator {
  readonly #count: number;
  #ordered: readonly RequestState[] = [];
  readonly #drafts = new Map<RequestState, Int32Array>();

  constructor(count: number) {
    this.#count = count;
  }

  orderDrafts(decodes: readonly RequestState[]): DraftOrder {
    this.#ordered = decodes;
    return {
      requests: decodes.map(({ request, tokens }) => ({ id: request.id, text: tokens.view() })),
      count: this.#count,
    };
  }

  takeDrafts(drafts: readonly Int32Array[]): void {
    for (const [i, state] of this.#ordered.entries()) this.#drafts.set(state, drafts[i]!);
  }

  draft(decodes: readonly RequestState[]): (Int32Array | undefined)[] {
    const drafts = decodes.map((state) => this.#drafts.get(state));
    this.#drafts.clear();
    return drafts.map((tokens) => (tokens?.length === 0 ? undefined : tokens));
  }

  verified(): void {}

  observe(): void {}
}

/** A tokenizer that many engines share, whose `close` does nothing. */
function withoutClose(tokenizer: Tokenizer): Tokenizer {
  return new Proxy(tokenizer, {
    get(target, name) {
      if (name === 'close') return () => {};
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}
