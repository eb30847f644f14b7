import { copyFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { makeFolders } from '../../src/base/make-folders.ts';
import { Prng } from '../../src/base/prng.ts';
import { type Completion, type CompletionRequest, complete } from '../../src/cli/proof/completion.ts';
import { storeFlags } from '../../src/cli/proof/filled-store.ts';
import type { BlockStore, StoredBlock } from '../../src/cli/proof/stored-blocks.ts';
import { restartDefaults } from '../../src/worker/restart-budget.ts';
import type { LoadMode } from './case-run.ts';
import { cutShort, endHang, flipBit, makeHang, removeFile } from './damage.ts';
import { type MatrixOptions, type Prepared, prepare } from './matrix.ts';
import { RestartableServer } from './restartable-server.ts';
import { type SamplingName, samplingNames, workloadOf } from './workload.ts';

export interface ScheduleOptions
  extends Pick<
    MatrixOptions,
    'workload' | 'groups' | 'serverArgs' | 'storeArgs' | 'folder' | 'onProgress' | 'modes' | 'ranks'
  > {
  readonly schedules: number;
  readonly seed: number;
}

export interface ScheduleOutcome {
  readonly schedules: number;
  readonly seed: number;
  readonly requests: number;
  readonly textsEqual: number;
  readonly requestsLost: number;
  /** The number of schedules with each fault. */
  readonly faults: Readonly<Record<string, number>>;
  readonly computedTokens: number;
  readonly externalTokens: number;
  readonly failedLoads: number;
  readonly seconds: number;
  /** The seeds of schedules with a wrong text or a lost request: `--schedules 1 --seed <seed>` repeats one. */
  readonly failed: readonly number[];
}

/**
 * Runs random schedules of faults and requests on servers with real processes. A server is used for many schedules, so
 * the effects of one fault meet the next. Its pool and its host memory are too small for all prompts, so blocks are loaded many times.
 */
export async function runSchedules(options: ScheduleOptions, signal: AbortSignal): Promise<ScheduleOutcome> {
  const started = performance.now();
  const workloads = { greedy: workloadOf(options.workload, 'greedy'), seeded: workloadOf(options.workload, 'seeded') };
  const prepared = new Map<number, Prepared>();
  for (const ranks of options.ranks) {
    options.onProgress(`${ranks} rank(s): computing the texts without a store, and filling a store`);
    prepared.set(ranks, await prepare(options, ranks, { workloads, probes: [] }, signal));
  }
  const worlds: World[] = [];
  for (const ranks of options.ranks)
    for (const mode of options.modes)
      worlds.push(await World.open({ ...options, ranks, mode, workloads, prepared: prepared.get(ranks)!, signal }));
  const total = { requests: 0, textsEqual: 0, requestsLost: 0, computedTokens: 0, externalTokens: 0, failedLoads: 0 };
  const faults: Record<string, number> = {};
  const failed: number[] = [];
  try {
    for (let i = 0; i < options.schedules; i++) {
      const seed = options.seed + i;
      const prng = new Prng(seed);
      const outcome = await prng.pick(worlds).run(prng);
      for (const name of Object.keys(total) as (keyof typeof total)[]) total[name] += outcome[name];
      for (const name of outcome.faults) faults[name] = (faults[name] ?? 0) + 1;
      if (outcome.textsEqual !== outcome.requests || outcome.requestsLost > 0) failed.push(seed);
      if ((i + 1) % 10 === 0 || outcome.textsEqual !== outcome.requests)
        options.onProgress(`${i + 1} of ${options.schedules}: ${total.textsEqual}/${total.requests} texts equal`);
    }
  } finally {
    await Promise.all(worlds.map((world) => world.close()));
  }
  const seconds = Math.round((performance.now() - started) / 1000);
  return { schedules: options.schedules, seed: options.seed, ...total, faults, seconds, failed };
}

interface WorldOptions extends Omit<ScheduleOptions, 'modes' | 'ranks'> {
  readonly ranks: 1 | 2;
  readonly mode: LoadMode;
  readonly workloads: Readonly<Record<SamplingName, readonly CompletionRequest[]>>;
  readonly prepared: Prepared;
  readonly signal: AbortSignal;
}

type FaultName =
  | 'missing'
  | 'bitFlip'
  | 'truncated'
  | 'hung'
  | 'storeDown'
  | 'workerKilled'
  | 'workerStopped'
  | 'serverKilled';

/** Host memory has room for this part of the store. */
const hostPart = 0.2;

const damages = { missing: removeFile, bitFlip: flipBit, truncated: cutShort, hung: makeHang } as const;

/** One server and its store. */
class World {
  readonly #options: WorldOptions;
  readonly #store: BlockStore;
  /** Every block of the prepared store, by its path in this world's copy. */
  readonly #blocks: readonly StoredBlock[];
  readonly #server: RestartableServer;
  /** Faults of workers since the server was last replaced. */
  #workerFaults = 0;

  static async open(options: WorldOptions): Promise<World> {
    const path = join(options.folder, `world-${options.ranks}-${options.mode}`);
    const store = await options.prepared.filled.store.copyTo(path);
    const settings = { async_load: options.mode === 'async' };
    // With all blocks in host memory, no fault of files would be met.
    const hostBytes = Math.ceil((await store.bytes()) * hostPart);
    const flags = storeFlags({ path, ranks: options.ranks, backend: 'mp', hostBytes }, settings);
    const args = [...options.serverArgs, ...options.storeArgs, ...flags];
    return new World(options, store, await store.blocks(), await RestartableServer.start(args, options.signal));
  }

  private constructor(
    options: WorldOptions,
    store: BlockStore,
    blocks: readonly StoredBlock[],
    server: RestartableServer,
  ) {
    this.#server = server;
    this.#options = options;
    this.#store = store;
    this.#blocks = blocks;
  }

  async close(): Promise<void> {
    await this.#server.kill();
    await this.#store.remove();
  }

  async run(prng: Prng) {
    const { workloads, prepared, signal } = this.#options;
    const faults = drawFaults(prng);
    if (faults.some(isOfWorker) && ++this.#workerFaults > workerFaultsMax) {
      await this.#server.replace();
      this.#workerFaults = 1;
    }
    const damaged: { readonly block: StoredBlock; readonly name: FaultName }[] = [];
    for (const name of faults) {
      const how = name in damages ? damages[name as keyof typeof damages] : undefined;
      if (how === undefined) continue;
      for (let i = prng.between(1, name === 'hung' ? 3 : 40); i > 0; i--) {
        const block = prng.pick(this.#blocks);
        if (damaged.some((other) => other.block === block)) continue;
        await how(block, prng);
        damaged.push({ block, name });
      }
    }
    const sampling = prng.pick(samplingNames);
    const chosen = Array.from({ length: prng.between(1, 4) }, () => prng.between(0, workloads[sampling].length - 1));
    const injecting = this.#injectAll(faults, prng);
    // The error is thrown below at `await injecting`; until then it must not be unhandled.
    injecting.catch(() => undefined);
    const outcomes = await Promise.allSettled(
      chosen.map((index) => complete(workloads[sampling][index]!, { origin: this.#server.origin, signal })),
    );
    await injecting;
    for (const { block, name } of damaged) await this.#restore(block, name);
    signal.throwIfAborted();
    const done = outcomes.map((outcome) => (outcome.status === 'fulfilled' ? outcome.value : undefined));
    const sum = (of: (completion: Completion) => number): number =>
      done.reduce((total, completion) => total + (completion === undefined ? 0 : of(completion)), 0);
    return {
      faults,
      requests: chosen.length,
      textsEqual: done.filter((completion, i) => completion?.answer === prepared.expected[sampling][chosen[i]!]!.answer)
        .length,
      requestsLost: done.filter((completion) => completion?.finishReason !== 'length').length,
      computedTokens: sum(({ usage }) => usage.computedTokens),
      externalTokens: sum(({ usage }) => usage.externalTokens),
      failedLoads: sum(({ usage }) => usage.failedLoads),
    };
  }

  /** Injects the faults one after the other, because a server that restarts needs its store. */
  async #injectAll(faults: readonly FaultName[], prng: Prng): Promise<void> {
    for (const name of faults) await this.#inject(name, prng.between(0, 400));
  }

  /** Faults that act while requests run. */
  async #inject(name: FaultName, afterMs: number): Promise<void> {
    if (name in damages) return;
    await sleep(afterMs);
    if (name === 'storeDown') {
      await this.#store.takeDown();
      await sleep(300);
      await this.#store.bringBack();
    } else if (name === 'serverKilled') {
      await this.#server.replace();
      this.#workerFaults = 0;
    } else {
      const [rank] = await this.#server.rankProcessIds();
      if (rank !== undefined) process.kill(rank, name === 'workerKilled' ? 'SIGKILL' : 'SIGSTOP');
    }
  }

  /** Puts the block of the prepared store back in its place. */
  async #restore(block: StoredBlock, name: FaultName): Promise<void> {
    if (name === 'hung') {
      await endHang(block);
      return;
    }
    await makeFolders(dirname(block.path));
    await copyFile(join(this.#options.prepared.filled.store.path, relative(this.#store.path, block.path)), block.path);
  }
}

const isOfWorker = (name: FaultName): boolean => name === 'workerKilled' || name === 'workerStopped';
/** A server gives a worker up whose third process ends within a minute of service. A new server begins to count again. */
const workerFaultsMax = restartDefaults.startsMax - 1;

/** Draws one to three faults. Faults of processes are rarer than those of files, because a restart takes longest. */
function drawFaults(prng: Prng): FaultName[] {
  const files: FaultName[] = ['missing', 'bitFlip', 'truncated', 'hung', 'storeDown'];
  const processes: FaultName[] = ['workerKilled', 'workerStopped', 'serverKilled'];
  const drawn = new Set<FaultName>();
  for (let i = prng.between(1, 3); i > 0; i--) drawn.add(prng.pick(files));
  if (prng.chance(0.1)) drawn.add(prng.pick(processes));
  return [...drawn];
}
