import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { entryPoint } from '../../src/base/package-files.ts';
import { Prng } from '../../src/base/prng.ts';
import { ServerProcess } from '../../src/cli/proof/server-process.ts';
import { Clients } from './clients.ts';
import { type Growth, growthOf, type Sample } from './growth.ts';
import { sendOther } from './other-requests.ts';
import { metricsOf, Probes, releaseHungReads, settled } from './quiet-point.ts';
import { RankKiller } from './rank-killer.ts';
import { type SoakRequest, send, soakRequests } from './requests.ts';

export interface SoakOptions {
  readonly model: string;
  readonly vocabSize: number;
  readonly minutes: number;
  /** The run ends earlier, after so many requests. */
  readonly requests?: number | undefined;
  /** How often the requests are paused for samples. */
  readonly samples: number;
  readonly ranks: number;
  readonly clients: number;
  readonly seed: number;
  /** The least number of requests before growth is measured. */
  readonly startUp: number;
  /** False: memory is measured as it is, with garbage and with the free pages of V8 and `malloc`. */
  readonly collect: boolean;
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
  /** Requests of other kinds, of which only the status is checked. */
  readonly others: number;
  readonly kills: number;
  readonly lostBlocks: number;
  /** Counters of the server's metrics at the end. */
  readonly counters: Readonly<Record<string, number>>;
  /** By process: the server, and rank 0 if it is a process of its own. Empty if nearly all requests are start-up. */
  readonly growth: Readonly<Record<string, readonly Growth[]>>;
  /** From which the growth was computed. */
  readonly samples: Readonly<Record<string, readonly Sample[]>>;
  /** What is wrong: the first wrong and lost requests, leaks, and what the server left behind. */
  readonly problems: readonly string[];
}

const requestCount = 96;
/** Rank 0 is killed only in this part of the time. */
const firstPart = 0.25;
const problemsMax = 20;
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
  const environment = {
    NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} --import=${entryPoint('bench/soak/probe').href}`,
    KVASIR_SOAK_PROBE: samples,
    ...(options.collect ? {} : { KVASIR_SOAK_COLLECT: 'no' }),
  };
  const server = await ServerProcess.start(serverArgs(options), never, { environment });
  return new Soak(options, { requests, expected, samples, server }).run(stop);
}

const tierFolder = (folder: string): string => join(folder, 'tier');

const serverArgs = ({ serverArgs: args, ranks, folder, model }: SoakOptions): string[] => [
  ...args,
  '--pipeline-parallel-size',
  String(ranks),
  '--distributed-executor-backend',
  'mp',
  '--enable-fault-injection',
  // The memory of a step grows with its tokens. Prompts reach this limit soon; the default only if many requests are computed again.
  '--max-num-batched-tokens',
  '64',
  '--response-store-size',
  '256KiB',
  '--kv-transfer-config',
  JSON.stringify({
    kv_connector: 'OffloadingConnector',
    kv_role: 'kv_both',
    kv_connector_extra_config: {
      spec_name: 'TieringOffloadingSpec',
      cpu_bytes_to_use: 4 << 20,
      secondary_tiers: [{ type: 'fs', root_dir: tierFolder(folder), max_bytes: 64 << 20 }],
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
  /** The folder of the samples. */
  readonly samples: string;
  readonly server: ServerProcess;
}

class Soak {
  readonly #options: SoakOptions;
  readonly #parts: SoakParts;
  readonly #prng: Prng;
  readonly #killer: RankKiller;
  readonly #probes: Probes;
  /** Up to which part of the run, in samples, they were taken. */
  #sampled = 0;
  /** Of rank 0: those of its last process, `#rank0`. */
  readonly #samples = { server: [] as Sample[], rank0: [] as Sample[] };
  #rank0: number | undefined;
  readonly #problems: string[] = [];
  readonly #counts = { requests: 0, equal: 0, wrong: 0, lost: 0, aborted: 0, refused: 0, cut: 0, others: 0 };
  readonly #clients: Clients;
  #lostBlocks = 0;
  #startMs = 0;
  #isOver: boolean = false;

  constructor(options: SoakOptions, parts: SoakParts) {
    this.#options = options;
    this.#parts = parts;
    this.#prng = new Prng(options.seed);
    this.#killer = new RankKiller(parts.server, this.#prng.fork());
    this.#probes = new Probes(parts.samples);
    this.#clients = new Clients(options.clients);
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
    const disturbing = this.#disturb(over.signal, stop);
    await Promise.all(Array.from({ length: clients }, () => this.#client(this.#prng.fork(), stop)));
    clearTimeout(end);
    onStop();
    await disturbing;
    const { seconds } = this.#at();
    const counters = stop.aborted ? await metricsOf(this.#parts.server.origin) : await this.#settled(stop);
    await this.#parts.server.stop();
    const { startUp } = this.#options;
    const growth = {
      server: growthOf(this.#samples.server, startUp),
      rank0: growthOf(this.#samples.rank0, startUp),
    };
    for (const [name, measured] of Object.entries(growth))
      for (const { measure, perMillion, error, isLeak } of measured)
        if (isLeak) this.#problems.push(`${measure} of ${name} grew by ${perMillion} ± ${error} per million requests`);
    if (this.#killer.otherEnds > 0)
      this.#problems.push(`${this.#killer.otherEnds} worker processes ended that were not killed`);
    for (const warning of new Set(this.#probes.warnings())) this.#problems.push(`warning of Node: ${warning}`);
    return {
      seconds: Math.round(seconds),
      isInterrupted: stop.aborted,
      ...this.#counts,
      kills: this.#killer.kills,
      lostBlocks: this.#lostBlocks,
      counters,
      growth,
      samples: this.#samples,
      problems: this.#problems,
    };
  }

  /** Sends requests one after the other. Each may be aborted after some tokens. */
  async #client(prng: Prng, stop: AbortSignal): Promise<void> {
    while (!this.#isOver && this.#endedPart() < 1) {
      while (this.#isSampleDue && !this.#clients.arePaused && !this.#isOver) await sleep(20);
      await this.#clients.whileOpen(() => (prng.chance(0.2) ? this.#other(prng) : this.#compared(prng, stop)));
    }
    this.#clients.leave();
  }

  async #other(prng: Prng): Promise<void> {
    const { kind, problem } = await sendOther(this.#parts.server.origin, prng, ++this.#counts.others);
    if (kind === 'refused') await sleep(500);
    else if (problem !== undefined && !this.#isOver) this.#problem(problem);
  }

  async #compared(prng: Prng, stop: AbortSignal): Promise<void> {
    const { requests, expected, server } = this.#parts;
    const index = prng.between(0, requests.length - 1);
    const request = requests[index]!;
    const abortAfter = prng.chance(0.15) ? prng.between(0, request.max_tokens - 1) : Infinity;
    const outcome = await send(server.origin, request, abortAfter);
    if (outcome.kind === 'refused') {
      this.#counts.refused++;
      await sleep(500);
      return;
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

  /** Kills ranks, loses blocks, takes samples, and reports the progress, until the time is over. */
  async #disturb(over: AbortSignal, stop: AbortSignal): Promise<void> {
    const { samples, onProgress } = this.#options;
    let reported = 0;
    while (!over.aborted) {
      await sleep(250, undefined, { signal: over }).catch(() => undefined);
      await this.#killer.update();
      const part = this.#endedPart();
      // One after the other, so that two ranks are not replaced at the same time in a short run.
      const ranks = part < firstPart ? [0] : [1];
      if (!over.aborted && part > 0.1) await this.#killer.tick(ranks, Date.now() - this.#startMs);
      if (!over.aborted && this.#prng.chance(0.03)) await this.#loseBlocks();
      if (over.aborted || !this.#isSampleDue) continue;
      await this.#clients.paused(() => this.#sample(stop));
      this.#sampled = Math.floor(this.#endedPart() * samples);
      const seconds = this.#at().seconds;
      if (seconds - reported < 30 && this.#sampled < samples) continue;
      reported = seconds;
      onProgress(this.#progress());
    }
  }

  /** Requests wait for it, so that a fast machine takes as many samples as a slow one. */
  get #isSampleDue(): boolean {
    return Math.floor(this.#endedPart() * this.#options.samples) > this.#sampled;
  }

  /** How much of the run has ended: 1 at its end. */
  #endedPart(): number {
    const { minutes, requests = Infinity } = this.#options;
    return Math.max((Date.now() - this.#startMs) / (minutes * 60_000), this.#at().requests / requests);
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

  /** Of a server without requests. */
  async #sample(stop: AbortSignal): Promise<void> {
    releaseHungReads([this.#parts.server.processId, ...this.#killer.processIds]);
    await this.#settled(stop);
    await this.#killer.update();
    const rank = this.#killer.processIdOf(0);
    const at = this.#at();
    const server = await this.#probes.sample(this.#parts.server.processId, at);
    if (server !== undefined) this.#samples.server.push(server);
    else if (!stop.aborted) this.#problem(`the server gave no sample after ${at.seconds} s`);
    const ofRank = rank === undefined ? undefined : await this.#probes.sample(rank, at);
    if (rank !== this.#rank0) this.#samples.rank0 = [];
    this.#rank0 = rank;
    if (ofRank !== undefined) this.#samples.rank0.push(ofRank);
  }

  #progress(): string {
    const { requests, wrong, lost, aborted, others } = this.#counts;
    const last = this.#samples.server.at(-1);
    const mebibytes = (bytes: number | undefined): string => ((bytes ?? Number.NaN) / (1 << 20)).toFixed(2);
    const { heap, native, resident, busy, files, sockets, threads, resources } = last ?? {};
    const memory = `heap ${mebibytes(heap)} native ${mebibytes(native)} resident ${mebibytes(resident)} busy ${mebibytes(busy)} MiB, ${files} files, ${sockets} sockets, ${threads} threads, ${resources} resources`;
    return `${Math.round(this.#at().seconds)} s: ${requests} requests, ${wrong} wrong, ${lost} lost, ${aborted} aborted, ${others} others, ${this.#killer.kills} kills; ${memory}`;
  }

  #at(): Pick<Sample, 'seconds' | 'requests'> {
    const { requests, others } = this.#counts;
    return { seconds: Math.round((Date.now() - this.#startMs) / 100) / 10, requests: requests + others };
  }

  /** Without requests, nothing may run or wait, no block may be referenced, and no transfer may be open. */
  async #settled(stop: AbortSignal): Promise<Readonly<Record<string, number>>> {
    const { counters, problems } = await settled(this.#parts.server.origin, stop);
    for (const problem of problems) this.#problem(problem);
    return counters;
  }

  /** Of a request or of a sample: there may be many. */
  #problem(text: string): void {
    if (this.#problems.length < problemsMax) this.#problems.push(text);
  }
}
