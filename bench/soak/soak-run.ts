import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Prng } from '../../src/base/prng.ts';
import { ServerProcess } from '../recovery/server-process.ts';
import { type Growth, growthOf, readSamples } from './growth.ts';
import { RankKiller } from './rank-killer.ts';
import { type SoakRequest, send, soakRequests } from './requests.ts';

export interface SoakOptions {
  readonly model: string;
  readonly vocabSize: number;
  readonly minutes: number;
  readonly ranks: number;
  readonly clients: number;
  readonly seed: number;
  /** For stores and samples; empty. */
  readonly folder: string;
  readonly serverArgs: readonly string[];
  onProgress(line: string): void;
}

export interface SoakReport {
  /** Of the time with requests. */
  readonly seconds: number;
  readonly isInterrupted: boolean;
  readonly requests: number;
  readonly equal: number;
  readonly wrong: number;
  readonly lost: number;
  readonly aborted: number;
  readonly refused: number;
  /** Requests that an interruption ended. */
  readonly cut: number;
  readonly kills: number;
  readonly lostBlocks: number;
  /** Counters of the server's metrics at the end. */
  readonly counters: Readonly<Record<string, number>>;
  /** By process: the server, and rank 0 if it is a process of its own. Of the time after the first quarter. */
  readonly growth: Readonly<Record<string, readonly Growth[]>>;
  /** What is wrong: the first wrong and lost requests, leaks, and what the server left behind. */
  readonly problems: readonly string[];
}

const requestCount = 96;
/** The first part of the time is warm-up. */
const warmUpPart = 0.25;
const problemsMax = 20;
/** Aborted requests, transfers and replaced processes end within this time. */
const settleMs = 60_000;
const never = new AbortController().signal;

/** Rules that let a part of the calls of each tier fail. A hung call ends at its deadline. */
const faults = {
  seed: 1,
  rules: [
    ...['missing', 'bitFlip', 'truncated', 'wrongModel', 'partial', 'error', 'duplicate'].map((fault) => ({
      fault,
      on: 'load',
      probability: 0.001,
    })),
    { fault: 'slow', on: 'load', probability: 0.005, delay_ms: 50 },
    { fault: 'late', on: 'load', probability: 0.0002, delay_ms: 2000 },
    { fault: 'hung', on: 'load', probability: 0.0002 },
    { fault: 'missing', on: 'store', probability: 0.01 },
    { fault: 'bitFlip', on: 'store', probability: 0.01 },
    { fault: 'error', on: 'store', probability: 0.01 },
    { fault: 'full', on: 'store', probability: 0.01 },
    { fault: 'slow', on: 'store', probability: 0.05, delay_ms: 50 },
    { fault: 'error', on: 'has', probability: 0.002 },
    { fault: 'slow', on: 'has', probability: 0.002, delay_ms: 50 },
  ],
};

/** Answers of a server without tiers and with one rank, in this order. */
async function expectedAnswers(
  options: SoakOptions,
  requests: readonly SoakRequest[],
  stop: AbortSignal,
): Promise<string[]> {
  const server = await ServerProcess.start([...options.serverArgs, options.model], stop);
  try {
    const answers: string[] = [];
    for (const request of requests) {
      stop.throwIfAborted();
      const outcome = await send(server.origin, request);
      if (outcome.kind !== 'answer')
        throw new Error(`the server without tiers gave no answer: ${JSON.stringify(outcome)}`);
      answers.push(outcome.answer);
    }
    return answers;
  } finally {
    await server.kill();
  }
}

/** Runs until the time is over, or until `stop` is aborted: then the report has what was measured. */
export async function runSoak(options: SoakOptions, stop: AbortSignal): Promise<SoakReport> {
  const requests = soakRequests(options.seed, options.vocabSize, requestCount);
  options.onProgress(`answers of ${requests.length} requests without tiers`);
  const expected = await expectedAnswers(options, requests, stop);
  const samples = join(options.folder, 'samples');
  mkdirSync(samples);
  const everyMs = Math.round(Math.min(10_000, Math.max(500, (options.minutes * 60_000) / 400)));
  const server = await ServerProcess.start(serverArgs(options), never, {
    NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} --import=${new URL('probe.js', import.meta.url).href}`,
    KVASIR_SOAK_PROBE: samples,
    KVASIR_SOAK_EVERY_MS: String(everyMs),
  });
  return new Soak(options, { requests, expected, samples, server }).run(stop);
}

const serverArgs = ({ serverArgs: args, ranks, folder, model }: SoakOptions): string[] => [
  ...args,
  '--pipeline-parallel-size',
  String(ranks),
  '--distributed-executor-backend',
  'mp',
  '--enable-fault-injection',
  '--kv-transfer-config',
  JSON.stringify({
    kv_connector: 'OffloadingConnector',
    kv_role: 'kv_both',
    kv_connector_extra_config: {
      spec_name: 'TieringOffloadingSpec',
      cpu_bytes_to_use: 4 << 20,
      secondary_tiers: [{ type: 'fs', root_dir: join(folder, 'tier') }],
      kv_load_policy: 'always',
      busy_write_share: 0.5,
      fault_injection: faults,
    },
  }),
  model,
];

interface SoakParts {
  readonly requests: readonly SoakRequest[];
  readonly expected: readonly string[];
  readonly samples: string;
  readonly server: ServerProcess;
}

class Soak {
  readonly #options: SoakOptions;
  readonly #parts: SoakParts;
  readonly #prng: Prng;
  readonly #killer: RankKiller;
  readonly #problems: string[] = [];
  readonly #counts = { requests: 0, equal: 0, wrong: 0, lost: 0, aborted: 0, refused: 0, cut: 0 };
  #lostBlocks = 0;
  #startMs = 0;
  #isOver: boolean = false;

  constructor(options: SoakOptions, parts: SoakParts) {
    this.#options = options;
    this.#parts = parts;
    this.#prng = new Prng(options.seed);
    this.#killer = new RankKiller(parts.server, this.#prng.fork());
  }

  async run(stop: AbortSignal): Promise<SoakReport> {
    const { clients, minutes } = this.#options;
    await this.#killer.start();
    this.#options.onProgress(`${clients} clients for ${minutes} minutes`);
    this.#startMs = Date.now();
    const over = new AbortController();
    const onStop = (): void => {
      this.#isOver = true;
      over.abort();
    };
    const end = setTimeout(onStop, minutes * 60_000);
    stop.addEventListener('abort', onStop, { once: true });
    if (stop.aborted) onStop();
    const disturbing = this.#disturb(over.signal);
    await Promise.all(Array.from({ length: clients }, () => this.#client(this.#prng.fork(), stop)));
    clearTimeout(end);
    onStop();
    await disturbing;
    const seconds = (Date.now() - this.#startMs) / 1000;
    const growth = this.#growth();
    const counters = stop.aborted ? await this.#metrics() : await this.#settled();
    await this.#parts.server.stop();
    for (const [name, measured] of Object.entries(growth))
      for (const { measure, certain, bound, isLeak } of measured)
        if (isLeak) this.#problem(`${measure} of ${name} grew by at least ${certain} (bound: ${bound})`);
    return {
      seconds: Math.round(seconds),
      isInterrupted: stop.aborted,
      ...this.#counts,
      kills: this.#killer.kills,
      lostBlocks: this.#lostBlocks,
      counters,
      growth,
      problems: this.#problems,
    };
  }

  /** Sends requests one after the other. Each may be aborted after some tokens. */
  async #client(prng: Prng, stop: AbortSignal): Promise<void> {
    const { requests, expected, server } = this.#parts;
    while (!this.#isOver) {
      const index = prng.between(0, requests.length - 1);
      const request = requests[index]!;
      const abortAfter = prng.chance(0.15) ? prng.between(0, request.max_tokens - 1) : Infinity;
      const outcome = await send(server.origin, request, abortAfter);
      if (outcome.kind === 'refused') {
        this.#counts.refused++;
        await sleep(500);
        continue;
      }
      this.#counts.requests++;
      if (outcome.kind === 'aborted') this.#counts.aborted++;
      else if (outcome.kind === 'lost') {
        // A terminal sends Ctrl-C to the server too.
        if (stop.aborted) this.#counts.cut++;
        else {
          this.#counts.lost++;
          this.#problem(`request ${index} was lost: ${outcome.reason}`);
        }
      } else if (outcome.answer === expected[index]) this.#counts.equal++;
      else {
        this.#counts.wrong++;
        this.#problem(
          `request ${index} has a wrong answer: ${outcome.answer.slice(0, 200)} instead of ${expected[index]!.slice(0, 200)}`,
        );
      }
    }
  }

  /** Kills ranks, loses blocks, and reports the progress, until the time is over. */
  async #disturb(over: AbortSignal): Promise<void> {
    const { minutes, onProgress } = this.#options;
    const wholeMs = minutes * 60_000;
    const reportEveryMs = Math.min(30_000, wholeMs / 4);
    let reportedMs = 0;
    while (!over.aborted) {
      await sleep(250, undefined, { signal: over }).catch(() => undefined);
      const elapsedMs = Date.now() - this.#startMs;
      await this.#killer.update();
      // One after the other, so that two ranks are not replaced at the same time in a short run.
      const ranks = elapsedMs < wholeMs * warmUpPart ? [0] : [1];
      if (!over.aborted && elapsedMs > wholeMs * 0.1) await this.#killer.tick(ranks, elapsedMs);
      if (!over.aborted && this.#prng.chance(0.03)) await this.#loseBlocks();
      if (elapsedMs - reportedMs < reportEveryMs) continue;
      reportedMs = elapsedMs;
      onProgress(this.#progress(elapsedMs));
    }
  }

  async #loseBlocks(): Promise<void> {
    const count = this.#prng.between(1, 8);
    const body = JSON.stringify({ count, seed: this.#prng.between(0, 1e6) });
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${this.#parts.server.origin}/cache/lose`, { method: 'POST', headers, body }).catch(
      () => undefined,
    );
    if (response?.ok === true) this.#lostBlocks += count;
    await response?.arrayBuffer();
  }

  #progress(elapsedMs: number): string {
    const { requests, wrong, lost, aborted } = this.#counts;
    const samples = this.#samplesOf(this.#parts.server.processId);
    const last = samples.at(-1);
    const mebibytes = (bytes: number | undefined): string => ((bytes ?? Number.NaN) / (1 << 20)).toFixed(1);
    const memory = `rss ${mebibytes(last?.rss)} heap ${mebibytes(last?.heap)} native ${mebibytes(last?.native)} MiB, ${last?.files} files`;
    return `${Math.round(elapsedMs / 1000)} s: ${requests} requests, ${wrong} wrong, ${lost} lost, ${aborted} aborted, ${this.#killer.kills} kills; ${memory}`;
  }

  #samplesOf(processId: number) {
    return readSamples(this.#parts.samples, processId);
  }

  #growth(): Record<string, Growth[]> {
    const fromMs = this.#startMs + (Date.now() - this.#startMs) * warmUpPart;
    const rank = this.#killer.processIdOf(0);
    const processes: [string, number][] = [['server', this.#parts.server.processId]];
    if (rank !== undefined) processes.push(['rank 0', rank]);
    return Object.fromEntries(
      processes.map(([name, id]) => [name, growthOf(this.#samplesOf(id).filter(({ ms }) => ms >= fromMs))]),
    );
  }

  /** The values of `/metrics` without buckets, by name and labels. */
  async #metrics(): Promise<Record<string, number>> {
    const response = await fetch(`${this.#parts.server.origin}/metrics`).catch(() => undefined);
    const text = (await response?.text()) ?? '';
    const wanted =
      /^(vllm:(num_|kv_cache|prompt_tokens_by|generation|request_success)|kvasir:(rec|lost|load_f|tier_(loaded|stored)_bytes|open))/;
    return Object.fromEntries(
      text
        .split('\n')
        .filter((line) => wanted.test(line) && !/_(bucket|sum|count)/.test(line))
        .map((line) => {
          const at = line.lastIndexOf(' ');
          const name = line
            .slice(0, at)
            .replace(/model_name="[^"]*",engine="[^"]*",?|,?engine="[^"]*"|model_name="[^"]*"/g, '');
          return [name.replace(/\{,?\}/, ''), Number(line.slice(at + 1))];
        }),
    );
  }

  /** After the last request, nothing may run or wait, and no block may be referenced. */
  async #settled(): Promise<Record<string, number>> {
    const names = ['vllm:num_requests_running', 'vllm:num_requests_waiting', 'vllm:kv_cache_usage_perc'];
    const deadlineMs = Date.now() + settleMs;
    for (;;) {
      const counters = await this.#metrics();
      const busy = names.filter((name) => counters[name] !== 0);
      if (busy.length === 0) return counters;
      if (Date.now() > deadlineMs) {
        for (const name of busy)
          this.#problem(`${name} is ${counters[name]} ${settleMs / 1000} s after the last request`);
        return counters;
      }
      await sleep(250);
    }
  }

  #problem(text: string): void {
    if (this.#problems.length < problemsMax) this.#problems.push(text);
  }
}
