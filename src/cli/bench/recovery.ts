import { cp, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { JsonObject } from '../../base/json.ts';
import { Prng } from '../../base/prng.ts';
import type { SamplingOptions } from '../../core/sampling.ts';
import type { AsyncEngine } from '../../engine/contract.ts';
import type { EngineOptions } from '../../engine/options.ts';
import { interrupted } from './errors.ts';
import { RandomTokens } from './random-tokens.ts';
import { rounded } from './subject.ts';

export interface RecoveryOptions {
  readonly engine: EngineOptions;
  readonly blockSize: number;
  readonly seed: number;
  /** Requests that arrive at once, and how many different beginnings they have. */
  readonly requests: number;
  readonly prefixes: number;
  readonly prefixLength: number;
  readonly promptLength: number;
  readonly generateLength: number;
  /** How probable it is that a load meets a fault, where the fault is a matter of chance. */
  readonly probability: number;
  readonly repetitions: number;
  /** For all stores of the bench. */
  readonly folder: string;
  openEngine(options: EngineOptions): Promise<AsyncEngine>;
  /** Starts a process that computes the order and saves its KV, and kills it (-9) while it writes. */
  killWriter(order: WriterOrder, prng: Prng): Promise<void>;
  onProgress(text: string): void;
}

export interface RecoveryRow {
  readonly name: string;
  /** Requests whose text, tokens and logprobs are those of a run without stores, of all. */
  readonly textsEqual: number;
  readonly requests: number;
  /** Requests that did not come to their end. */
  readonly requestsLost: number;
  readonly loadedTokens: number;
  /** Tokens of blocks that were promised and did not come: what must be computed again, and no more. */
  readonly failedTokens: number;
  readonly recomputedTokens: number;
  /** What was recomputed beyond that. */
  readonly overMinimum: number;
  /** Milliseconds from arrival, over all requests and repetitions. */
  readonly firstTokenMs: { readonly p50: number; readonly p99: number };
}

/** What a writer's process is told. Plain data. */
export interface WriterOrder {
  readonly engine: EngineOptions;
  readonly requests: readonly WorkloadRequest[];
}

export interface WorkloadRequest {
  readonly prompt: readonly number[];
  readonly params: SamplingOptions;
}

interface Scenario {
  readonly name: string;
  /** Absent: nothing is stored. `full`: everything that could be; `empty`: nothing yet; `killed`: what a killed writer left. */
  readonly store?: 'full' | 'empty' | 'killed';
  readonly rule?: JsonObject;
}

/** Faults one after the other. `probability`: of those that strike by chance. */
const scenarios = (probability: number): readonly Scenario[] => [
  { name: 'no store' },
  { name: 'no fault', store: 'full' },
  { name: `missing, p = ${probability}`, store: 'full', rule: { fault: 'missing', probability } },
  { name: `bit flip, p = ${probability}`, store: 'full', rule: { fault: 'bitFlip', probability } },
  {
    name: `latency spike of 200 ms, p = ${probability}`,
    store: 'full',
    rule: { fault: 'slow', probability, delay_ms: 200 },
  },
  { name: 'hang, two blocks', store: 'full', rule: { fault: 'hung', limit: 2 } },
  { name: 'store down for 20 loads', store: 'full', rule: { fault: 'error', limit: 20 } },
  { name: 'disk full (injected)', store: 'empty', rule: { fault: 'full', on: 'store' } },
  { name: 'kill -9 of a writer', store: 'killed' },
];

interface Outcome {
  /** Text, tokens and logprobs, bit for bit. */
  readonly answer: string;
  readonly isLost: boolean;
  readonly firstTokenMs: number;
}

interface Run {
  readonly outcomes: readonly Outcome[];
  readonly loadedTokens: number;
  readonly failedTokens: number;
  readonly recomputedTokens: number;
}

/**
 * One workload against one fault after the other, in each repetition, so that a machine that slows down slows all of
 * them. Each run is an engine of its own on a store that an engine before it has filled.
 */
export async function measureRecovery(options: RecoveryOptions, signal: AbortSignal): Promise<RecoveryRow[]> {
  const bench = new RecoveryBench(options, signal);
  const runs = new Map<string, Run[]>();
  const list = scenarios(options.probability);
  await bench.fillStore();
  const reference = (await bench.run({ name: 'reference' })).outcomes;
  for (let repetition = 0; repetition < options.repetitions; repetition++) {
    for (const scenario of list) {
      options.onProgress(`${scenario.name}: repetition ${repetition + 1} of ${options.repetitions}`);
      const run = await bench.run(scenario);
      runs.set(scenario.name, [...(runs.get(scenario.name) ?? []), run]);
    }
  }
  return list.map(({ name }) => rowOf(name, runs.get(name) ?? [], reference));
}

function rowOf(name: string, runs: readonly Run[], reference: readonly Outcome[]): RecoveryRow {
  const outcomes = runs.flatMap((run) => run.outcomes.map((outcome, i) => ({ outcome, expected: reference[i]! })));
  const sum = (of: (run: Run) => number): number => runs.reduce((total, run) => total + of(run), 0);
  const firsts = outcomes.map(({ outcome }) => outcome.firstTokenMs).filter((ms) => !Number.isNaN(ms));
  const failedTokens = sum((run) => run.failedTokens);
  const recomputedTokens = sum((run) => run.recomputedTokens);
  return {
    name,
    textsEqual: outcomes.filter(({ outcome, expected }) => outcome.answer === expected.answer).length,
    requests: outcomes.length,
    requestsLost: outcomes.filter(({ outcome }) => outcome.isLost).length,
    loadedTokens: sum((run) => run.loadedTokens),
    failedTokens,
    recomputedTokens,
    overMinimum: recomputedTokens - failedTokens,
    firstTokenMs: { p50: rounded(percentile(firsts, 0.5)), p99: rounded(percentile(firsts, 0.99)) },
  };
}

/** The smallest value that so large a part of all does not exceed. */
function percentile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(sorted.length * part) - 1)] ?? Number.NaN;
}

class RecoveryBench {
  readonly #options: RecoveryOptions;
  readonly #signal: AbortSignal;
  readonly #prng: Prng;
  readonly #store: string;
  #workload: readonly WorkloadRequest[] = [];
  #serial = 0;

  constructor(options: RecoveryOptions, signal: AbortSignal) {
    this.#options = options;
    this.#signal = signal;
    this.#prng = new Prng(options.seed);
    this.#store = join(options.folder, 'store');
  }

  /** Draws the workload for the model's vocabulary, computes it, and leaves its KV in the store. */
  async fillStore(): Promise<void> {
    this.#options.onProgress('filling the store');
    const engine = await this.#options.openEngine(this.#engineOptions(this.#store));
    try {
      this.#workload = workloadOf(this.#options, engine.model.vocabSize);
      await this.#complete(engine);
    } finally {
      await engine.close();
    }
  }

  async run(scenario: Scenario): Promise<Run> {
    const store = await this.#storeOf(scenario);
    const engine = await this.#options.openEngine(this.#engineOptions(store, scenario.rule));
    try {
      const outcomes = await this.#complete(engine);
      const { externalTokens, recomputedTokens, transfers } = engine.stats();
      const failedTokens = transfers.failedLoads * this.#options.blockSize;
      return { outcomes, loadedTokens: externalTokens - failedTokens, failedTokens, recomputedTokens };
    } finally {
      await engine.close();
      if (store !== undefined && store !== this.#store) await rm(store, { recursive: true, force: true });
    }
  }

  async #storeOf({ store, rule }: Scenario): Promise<string | undefined> {
    if (store === undefined) return undefined;
    // Only what spoils stored bytes needs a copy of its own.
    if (store === 'full' && rule?.fault !== 'bitFlip') return this.#store;
    const path = join(this.#options.folder, `store-${++this.#serial}`);
    if (store === 'full') await cp(this.#store, path, { recursive: true });
    else await mkdir(path);
    if (store === 'killed') {
      await this.#options.killWriter({ engine: this.#engineOptions(path), requests: this.#workload }, this.#prng);
    }
    return path;
  }

  #engineOptions(store: string | undefined, rule?: JsonObject): EngineOptions {
    if (store === undefined) return this.#options.engine;
    const faults =
      rule === undefined ? {} : { fault_injection: { seed: this.#prng.between(0, 2 ** 31), rules: [rule] } };
    return {
      ...this.#options.engine,
      kvTransferConfig: {
        kv_connector: 'SharedStorageConnector',
        kv_role: 'kv_both',
        kv_connector_extra_config: { shared_storage_path: store, save_buffer_bytes: 1024 ** 3, ...faults },
      },
    };
  }

  #complete(engine: AsyncEngine): Promise<Outcome[]> {
    return Promise.all(this.#workload.map((request) => completeOne(engine, request, this.#signal)));
  }
}

function workloadOf(options: RecoveryOptions, vocabSize: number): WorkloadRequest[] {
  const random = new RandomTokens(options.seed, vocabSize);
  const prefixes = Array.from({ length: options.prefixes }, () => [...random.take(options.prefixLength)]);
  return Array.from({ length: options.requests }, (_, i) => ({
    prompt: [...prefixes[i % prefixes.length]!, ...random.take(options.promptLength)],
    params: {
      maxTokens: options.generateLength,
      ignoreEos: true,
      logprobs: 0,
      // Greedy and seeded sampling by turns, so that each prefix has both.
      ...(Math.floor(i / prefixes.length) % 2 === 0
        ? { temperature: 0 }
        : { temperature: 0.8, seed: options.seed + i }),
    },
  }));
}

async function completeOne(engine: AsyncEngine, request: WorkloadRequest, signal: AbortSignal): Promise<Outcome> {
  const started = performance.now();
  let firstTokenMs = Number.NaN;
  let text = '';
  let reason: string | undefined;
  const tokens: number[] = [];
  const logprobs: number[] = [];
  for await (const delta of engine.generate(request, { signal })) {
    if (delta.tokenIds.length > 0 && tokens.length === 0) firstTokenMs = performance.now() - started;
    text += delta.text;
    tokens.push(...delta.tokenIds);
    for (const { logprob } of delta.logprobs ?? []) logprobs.push(logprob);
    reason = delta.finish?.reason ?? reason;
  }
  if (signal.aborted) throw interrupted();
  const isLost = reason !== 'length' && reason !== 'stop';
  return { answer: JSON.stringify([text, tokens, logprobs]), isLost, firstTokenMs };
}
