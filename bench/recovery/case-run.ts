import { mkdir, rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { JsonObject } from '../../src/base/json.ts';
import type { Prng } from '../../src/base/prng.ts';
import { type Completion, type CompletionRequest, complete, settleAll } from '../../src/cli/proof/completion.ts';
import { type FilledStore, storeFlags } from '../../src/cli/proof/filled-store.ts';
import { longestBlock, type ReferenceGroup } from '../../src/cli/proof/needed-tokens.ts';
import { readArrived } from '../../src/cli/proof/proof-connector.ts';
import { BlockStore, type StoredBlock } from '../../src/cli/proof/stored-blocks.ts';
import type { BlockKey } from '../../src/connector/block-key.ts';
import { quantile } from '../step-times.ts';
import { type Fault, mountSmallDisk, unmount } from './faults.ts';
import { RestartableServer } from './restartable-server.ts';
import type { SamplingName } from './workload.ts';

export type LoadMode = 'sync' | 'async';

/** The variant of a case: loads, sampling and ranks. */
export interface CaseShape {
  readonly mode: LoadMode;
  readonly sampling: SamplingName;
  readonly ranks: 1 | 2;
}

export interface CaseOptions extends CaseShape {
  readonly fault: Fault;
  readonly requests: readonly CompletionRequest[];
  /** The completions of the same requests without a store. */
  readonly expected: readonly Completion[];
  /** Sent one after the other after the fault, until one of them is loaded. */
  readonly probes: readonly CompletionRequest[];
  /** A store with every full block of requests and probes, for this number of ranks. */
  readonly filled: FilledStore;
  readonly groups: readonly ReferenceGroup[];
  /** Flags of `kvasir serve`, the model among them. */
  readonly serverArgs: readonly string[];
  /** The folder for the copy of the store; removed afterwards. */
  readonly folder: string;
  readonly prng: Prng;
  readonly signal: AbortSignal;
}

/** The result of a case. */
export interface CaseRow extends CaseShape {
  readonly fault: string;
  readonly requests: number;
  /** Requests whose text, tokens and logprobs equal those of a run without a store. */
  readonly textsEqual: number;
  /** Requests that did not complete. */
  readonly requestsLost: number;
  readonly computedTokens: number;
  /** From `neededTokens`, with the blocks that the bench damaged or recorded; without counters of the planner. */
  readonly minimumTokens: number;
  /** Computed tokens minus the minimum. A negative number shows that a count is wrong. */
  readonly overMinimum: number;
  /**
   * The part of the minimum that is there only because the engine gave up loads of blocks that the bench did not damage. A load is given
   * up at its deadline, or not ordered because a circuit breaker is open. Older results lack the field.
   */
  readonly givenUpTokens?: number;
  readonly firstTokenMs: readonly number[];
  /** The longest time that a client waited for a token. */
  readonly longestWaitMs: number;
  /** The 99th percentile of the times between two tokens of a request. Older results lack the field. */
  readonly betweenTokensP99Ms?: number;
  /**
   * From the end of the fault to the first request that is loaded from the store; 0 for the first probe. A disk that is full stays full:
   * then, until the KV of a new request is stored and loaded.
   */
  readonly secondsUntilLoaded?: number;
}

const probeEveryMs = 500;
const trafficEveryMs = 1000;
/** Usually more than a save takes. If a save takes longer, a later probe finds its blocks. */
const saveMs = 200;

/** Runs one workload with one fault, on a new server process and a copy of the store. */
export async function runCase(options: CaseOptions): Promise<CaseRow> {
  const { fault, filled, folder, signal } = options;
  const disk = fault.diskPart === undefined ? undefined : Math.ceil((await filled.store.bytes()) * fault.diskPart);
  let isMounted = false;
  let store = new BlockStore(folder);
  try {
    if (disk === undefined) store = await filled.store.copyTo(folder);
    else isMounted = await mountSmallDisk(folder, disk);
    const injection = disk !== undefined && !isMounted ? { fault: 'full', on: 'store' } : fault.injection;
    const run = new CaseRun(options, store, injection);
    const row = await run.all();
    return disk !== undefined && !isMounted ? { ...row, fault: `${fault.name} (injected)` } : row;
  } finally {
    signal.throwIfAborted();
    if (isMounted) await unmount(folder);
    await store.remove();
    await rm(`${folder}-record`, { recursive: true, force: true });
  }
}

class CaseRun {
  readonly #options: CaseOptions;
  readonly #store: BlockStore;
  readonly #injection: JsonObject | undefined;
  #server!: RestartableServer;
  readonly #seen: number[];
  #probesSent = 0;
  /** Tokens that clients have received; infinite when all requests have ended. */
  #generated = 0;
  #seenAtLoss: readonly number[] | undefined;
  #waiting: { readonly tokens: number; readonly resolve: () => void }[] = [];

  constructor(options: CaseOptions, store: BlockStore, injection: JsonObject | undefined) {
    this.#options = options;
    this.#store = store;
    this.#injection = injection;
    this.#seen = options.requests.map(() => 0);
  }

  async all(): Promise<CaseRow> {
    const { fault, filled, requests, expected, groups, mode, sampling, ranks } = this.#options;
    const damaged = await this.#damage();
    await mkdir(this.#recordFolder);
    this.#server = await this.#startServer();
    try {
      const injecting = fault.inject?.(this.#scene());
      // `#trafficUntil` throws the error; until then it must not be unhandled.
      injecting?.catch(() => undefined);
      // One after the other if the minimum depends on their order.
      const outcomes = await settleAll(requests, groups.length > 1, (request, i) => this.#complete(request, i));
      // End a fault that waits for tokens that do not come.
      this.#wake(Number.POSITIVE_INFINITY);
      await this.#trafficUntil(injecting);
      await fault.mend?.(this.#store, damaged);
      const secondsUntilLoaded = await this.#secondsUntilLoaded();
      const done = outcomes.map((outcome) => (outcome.status === 'fulfilled' ? outcome.value : undefined));
      const computedTokens = sum(done, ({ usage }) => usage.computedTokens);
      const minimumTokens = await this.#minimum(damaged, done);
      const givenUpTokens =
        fault.loss === 'recorded' ? minimumTokens - filled.neededTokens(requests, this.#undamaged(damaged)) : 0;
      const over = computedTokens - minimumTokens;
      return {
        fault: fault.name,
        mode,
        sampling,
        ranks,
        requests: requests.length,
        textsEqual: done.filter((completion, i) => completion?.answer === expected[i]!.answer).length,
        requestsLost: done.filter((completion) => completion?.finishReason !== 'length').length,
        computedTokens,
        minimumTokens,
        // Outside the engine, the blocks in a rank's memory are known only up to one block, so the minimum is a bound.
        overMinimum: fault.loss === 'memory' ? Math.max(0, over) : over,
        givenUpTokens,
        firstTokenMs: done.flatMap((completion) =>
          completion === undefined ? [] : [Math.round(completion.firstTokenMs)],
        ),
        longestWaitMs: Math.round(Math.max(...done.map((completion) => completion?.longestWaitMs ?? 0))),
        betweenTokensP99Ms: p99(done.flatMap((completion) => completion?.betweenTokensMs ?? [])),
        ...(secondsUntilLoaded === undefined ? {} : { secondsUntilLoaded }),
      };
    } finally {
      await this.#server.kill();
    }
  }

  /** Damages blocks of the prompts, not of probes or of generated text: requests load only the former. */
  async #damage(): Promise<readonly StoredBlock[]> {
    const { fault, prng } = this.#options;
    if (fault.damage === undefined) return [];
    const { how, part } = fault.damage;
    const keys = this.#undamaged([]);
    const blocks = (await this.#store.blocks()).filter(({ key }) => keys.has(key));
    const chosen = blocks.filter(() => prng.chance(part));
    if (chosen.length === 0) chosen.push(prng.pick(blocks));
    for (const block of chosen) await how(block, prng);
    return chosen;
  }

  #startServer(): Promise<RestartableServer> {
    const { serverArgs, ranks, mode, fault, prng, signal } = this.#options;
    const plan = this.#injection && { seed: prng.between(0, 2 ** 31), rules: [this.#injection] };
    const backend = ranks > 1 || fault.needsRankProcess === true ? 'mp' : 'uni';
    const settings = {
      async_load: mode === 'async',
      faults: plan === undefined ? [] : Array.from({ length: ranks }, () => plan),
      ...(fault.loss === 'recorded' ? { record_path: this.#recordFolder } : {}),
    };
    const flags = storeFlags({ path: this.#store.path, ranks, backend }, settings);
    return RestartableServer.start([...serverArgs, ...flags], signal);
  }

  #scene() {
    const { prng, signal } = this.#options;
    return {
      store: this.#store,
      prng,
      signal,
      server: this.#server,
      whenGenerated: (part: number) => this.#whenGenerated(part),
      memoryInvalidated: () => {
        this.#seenAtLoss = [...this.#seen];
      },
    };
  }

  #complete(request: CompletionRequest, index: number): Promise<Completion> {
    return complete(request, {
      origin: this.#server.origin,
      signal: this.#options.signal,
      onTokens: (count) => {
        this.#seen[index] = count;
        this.#wake(this.#seen.reduce((total, tokens) => total + tokens, 0));
      },
    });
  }

  #whenGenerated(part: number): Promise<void> {
    const all = this.#options.requests.reduce((total, { maxTokens }) => total + maxTokens, 0);
    const tokens = Math.max(1, Math.floor(all * part));
    if (tokens <= this.#generated) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push({ tokens, resolve }));
  }

  #wake(tokens: number): void {
    this.#generated = tokens;
    const ready = this.#waiting.filter((waiting) => waiting.tokens <= tokens);
    this.#waiting = this.#waiting.filter((waiting) => waiting.tokens > tokens);
    for (const { resolve } of ready) resolve();
  }

  /** Sends requests until the fault is over: without requests, the circuit breaker does not probe the store. */
  async #trafficUntil(over: Promise<void> | undefined): Promise<void> {
    if (over === undefined) return;
    let isOver = false;
    const ended = over.finally(() => {
      isOver = true;
    });
    while (this.#options.fault.hasTraffic === true && !isOver) {
      await this.#probe();
      await Promise.race([ended, sleep(trafficEveryMs)]);
    }
    await ended;
  }

  async #probe(): Promise<Completion | undefined> {
    const probe = this.#options.probes[this.#probesSent++];
    if (probe === undefined) return undefined;
    return complete(probe, { origin: this.#server.origin, signal: this.#options.signal });
  }

  async #secondsUntilLoaded(): Promise<number | undefined> {
    const { fault, signal } = this.#options;
    const started = performance.now();
    let seconds = 0;
    // The store of a full disk began empty, so its probes must store what they load.
    const probe = fault.diskPart === undefined ? () => this.#probe() : () => this.#probeTwice();
    for (let probed = await probe(); probed !== undefined; probed = await probe()) {
      const { externalTokens, failedLoads } = probed.usage;
      if (externalTokens > 0 && failedLoads === 0) return seconds;
      await sleep(probeEveryMs, undefined, { signal });
      seconds = Math.round((performance.now() - started) / 100) / 10;
    }
    return undefined;
  }

  /** Sends one probe twice. Between the two, its KV leaves the pool and host memory. */
  async #probeTwice(): Promise<Completion | undefined> {
    if ((await this.#probe()) === undefined) return undefined;
    await sleep(saveMs, undefined, { signal: this.#options.signal });
    const headers = { 'content-type': 'application/json' };
    const origin = await this.#server.origin();
    for (const path of ['reset_prefix_cache', 'tiers/host/clear'])
      await fetch(`${origin}/${path}`, { method: 'POST', headers });
    this.#probesSent--;
    return this.#probe();
  }

  async #minimum(damaged: readonly StoredBlock[], done: readonly (Completion | undefined)[]): Promise<number> {
    const { fault, filled, requests } = this.#options;
    const base = filled.neededTokens(requests, await this.#available(damaged));
    if (fault.loss !== 'memory') return base;
    return requests.reduce((total, _, i) => total + this.#repeated(i, done[i]), base);
  }

  /** The blocks of the prompts that the server can load: from the bench's damage, or from the records of the connector. */
  async #available(damaged: readonly StoredBlock[]): Promise<Set<BlockKey>> {
    const { fault, filled } = this.#options;
    if (fault.loss === 'everything') return new Set();
    if (fault.loss === 'recorded') return readArrived(this.#recordFolder, filled.ranksOf);
    return this.#undamaged(fault.loss === 'damaged' ? damaged : []);
  }

  /** The blocks of the prompts without the damaged ones. */
  #undamaged(damaged: readonly StoredBlock[]): Set<BlockKey> {
    const { requests, filled } = this.#options;
    const blocks = new Set(requests.flatMap(({ prompt }) => filled.keysOf(prompt).flat()));
    for (const { key } of damaged) blocks.delete(key);
    return blocks;
  }

  get #recordFolder(): string {
    return `${this.#options.folder}-record`;
  }

  /** The largest number of tokens that the request recomputes after the death of a rank. */
  #repeated(index: number, completion: Completion | undefined): number {
    const { requests, groups } = this.#options;
    const { prompt, maxTokens } = requests[index]!;
    const seen = this.#seenAtLoss?.[index];
    if (completion === undefined || seen === undefined || seen === maxTokens) return 0;
    return repeatedAfterLoss(prompt.length, seen, longestBlock(groups));
  }
}

/**
 * Tokens that a request computes again after its rank loses its memory, if all its full blocks are stored: the tokens of
 * the last block. A bound, because the engine may have generated a few tokens that the client has not received.
 */
function repeatedAfterLoss(promptLength: number, tokensSeen: number, blockSize: number): number {
  // The newest token has no KV yet.
  const candidates = [0, 1, 2].map((ahead) => Math.max(0, promptLength + tokensSeen + ahead - 1) % blockSize);
  return Math.max(...candidates);
}

const sum = (done: readonly (Completion | undefined)[], of: (completion: Completion) => number): number =>
  done.reduce((total, completion) => total + (completion === undefined ? 0 : of(completion)), 0);

const p99 = (times: readonly number[]): number => quantile(Float64Array.from(times).sort(), 0.99);
