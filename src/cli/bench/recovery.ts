import { cp, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Prng } from '../../base/prng.ts';
import type { BlockKey } from '../../connector/block-key.ts';
import type { AsyncEngine } from '../../engine/contract.ts';
import type { EngineOptions } from '../../engine/options.ts';
import { neededTokens, type ReferenceRequest } from '../proof/needed-tokens.ts';
import { keysOf, readFingerprint, storedKeys } from '../proof/stored-blocks.ts';
import type { PlannedFaults, RecoveryScenario } from './recovery-scenarios.ts';
import { readArrived, witnessModule } from './recovery-witness.ts';
import {
  completeAll,
  type Outcome,
  type WorkloadRequest,
  type WorkloadShape,
  workloadOf,
} from './recovery-workload.ts';
import { rounded } from './subject.ts';

export interface RecoveryOptions extends WorkloadShape {
  readonly engine: EngineOptions;
  readonly blockSize: number;
  readonly scenarios: readonly RecoveryScenario[];
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
  /** Tokens of blocks that were promised and did not come. */
  readonly failedTokens: number;
  /** Tokens computed beyond those that had to be if nothing had been lost, as the engine says. */
  readonly recomputedTokens: number;
  /** All tokens that were computed, and what the reference says had to be. */
  readonly computedTokens: number;
  readonly minimumTokens: number;
  readonly overMinimum: number;
  /** Milliseconds from arrival, over all requests and repetitions. */
  readonly firstTokenMs: { readonly p50: number; readonly p99: number };
}

/** What a writer's process is told. Plain data. */
export interface WriterOrder {
  readonly engine: EngineOptions;
  readonly requests: readonly WorkloadRequest[];
}

interface Run {
  readonly outcomes: readonly Outcome[];
  readonly loadedTokens: number;
  readonly failedTokens: number;
  readonly recomputedTokens: number;
  readonly computedTokens: number;
  readonly minimumTokens: number;
}

/** Whether a row shows what the bench is there to show. */
export const isRowGood = (row: RecoveryRow): boolean =>
  row.textsEqual === row.requests && row.requestsLost === 0 && row.overMinimum === 0;

/**
 * One workload against one fault after the other, in each repetition, so that a machine that slows down slows all of
 * them. Each run is an engine of its own on a store that an engine before it has filled.
 */
export async function measureRecovery(options: RecoveryOptions, signal: AbortSignal): Promise<RecoveryRow[]> {
  const bench = new RecoveryBench(options, signal);
  const runs = new Map<string, Run[]>();
  await bench.fillStore();
  const reference = (await bench.run({ name: 'reference' })).outcomes;
  for (let repetition = 0; repetition < options.repetitions; repetition++) {
    for (const scenario of options.scenarios) {
      options.onProgress(`${scenario.name}: repetition ${repetition + 1} of ${options.repetitions}`);
      const run = await bench.run(scenario);
      runs.set(scenario.name, [...(runs.get(scenario.name) ?? []), run]);
    }
  }
  return options.scenarios.map(({ name }) => rowOf(name, runs.get(name) ?? [], reference));
}

function rowOf(name: string, runs: readonly Run[], reference: readonly Outcome[]): RecoveryRow {
  const outcomes = runs.flatMap((run) => run.outcomes.map((outcome, i) => ({ outcome, expected: reference[i]! })));
  const sum = (of: (run: Run) => number): number => runs.reduce((total, run) => total + of(run), 0);
  const firsts = outcomes.map(({ outcome }) => outcome.firstTokenMs).filter((ms) => !Number.isNaN(ms));
  const computedTokens = sum((run) => run.computedTokens);
  const minimumTokens = sum((run) => run.minimumTokens);
  return {
    name,
    textsEqual: outcomes.filter(({ outcome, expected }) => outcome.answer === expected.answer).length,
    requests: outcomes.length,
    requestsLost: outcomes.filter(({ outcome }) => outcome.isLost).length,
    loadedTokens: sum((run) => run.loadedTokens),
    failedTokens: sum((run) => run.failedTokens),
    recomputedTokens: sum((run) => run.recomputedTokens),
    computedTokens,
    minimumTokens,
    overMinimum: computedTokens - minimumTokens,
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
  readonly #ranks: number;
  #workload: readonly WorkloadRequest[] = [];
  /** Names of the full blocks of each prompt. */
  #keys: readonly (readonly BlockKey[])[] = [];
  #serial = 0;

  constructor(options: RecoveryOptions, signal: AbortSignal) {
    this.#options = options;
    this.#signal = signal;
    this.#prng = new Prng(options.seed);
    this.#store = join(options.folder, 'store');
    this.#ranks = options.engine.pipelineParallelSize ?? 1;
  }

  /** Draws the workload for the model's vocabulary, computes it, and leaves its KV in the store. */
  async fillStore(): Promise<void> {
    this.#options.onProgress('filling the store');
    const engine = await this.#options.openEngine(this.#engineOptions(this.#store, await this.#newFolder('witness')));
    try {
      this.#workload = workloadOf(this.#options, engine.model.vocabSize);
      await completeAll(engine, this.#workload, this.#signal);
    } finally {
      await engine.close();
    }
    const fingerprint = await readFingerprint(this.#store);
    this.#keys = this.#workload.map(({ prompt }) => keysOf(prompt, this.#options.blockSize, fingerprint));
  }

  async run(scenario: RecoveryScenario): Promise<Run> {
    const store = await this.#storeOf(scenario);
    const witness = await this.#newFolder('witness');
    const stored = store === undefined ? new Set<BlockKey>() : await storedKeys(store, this.#keys.flat(), this.#ranks);
    const faults = scenario.faults?.(this.#prng, [...stored]) ?? noFaults;
    const engine = await this.#options.openEngine(this.#engineOptions(store, witness, faults));
    try {
      const outcomes = await completeAll(engine, this.#workload, this.#signal);
      const { externalTokens, recomputedTokens, computedTokens, transfers } = engine.stats();
      const failedTokens = transfers.failedLoads * this.#options.blockSize;
      const available = await this.#availableOf(stored, faults, witness);
      return {
        outcomes,
        loadedTokens: externalTokens - failedTokens,
        failedTokens,
        recomputedTokens,
        computedTokens,
        minimumTokens: neededTokens(this.#referenceRequests(outcomes), available, this.#options.blockSize),
      };
    } finally {
      await engine.close();
      if (store !== undefined && store !== this.#store) await rm(store, { recursive: true, force: true });
    }
  }

  /** What a perfect engine could have loaded. */
  async #availableOf(
    stored: ReadonlySet<BlockKey>,
    { lost }: PlannedFaults,
    witness: string,
  ): Promise<ReadonlySet<string>> {
    if (lost === undefined) return readArrived(witness, this.#ranks);
    return new Set([...stored].filter((key) => !lost.has(key)));
  }

  #referenceRequests(outcomes: readonly Outcome[]): ReferenceRequest[] {
    return this.#workload.map(({ prompt }, i) => ({
      tokenCount: prompt.length,
      keys: this.#keys[i] ?? [],
      outputTokens: outcomes[i]!.outputTokens,
    }));
  }

  async #storeOf({ store, spoilsStore }: RecoveryScenario): Promise<string | undefined> {
    if (store === undefined) return undefined;
    if (store === 'full' && spoilsStore !== true) return this.#store;
    const path = await this.#newFolder('store');
    if (store === 'full') await cp(this.#store, path, { recursive: true });
    if (store === 'killed') {
      const engine = this.#engineOptions(path, await this.#newFolder('witness'));
      await this.#options.killWriter({ engine, requests: this.#workload }, this.#prng);
    }
    return path;
  }

  #engineOptions(store: string | undefined, witness: string, faults: PlannedFaults = noFaults): EngineOptions {
    if (store === undefined) return this.#options.engine;
    const { rules } = faults;
    return {
      ...this.#options.engine,
      kvTransferConfig: {
        kv_connector: 'WitnessedStorageConnector',
        kv_connector_module_path: witnessModule,
        kv_role: 'kv_both',
        kv_connector_extra_config: {
          shared_storage_path: store,
          witness_path: witness,
          save_buffer_bytes: 1024 ** 3,
          // A busy machine must not turn a slow look-up into a miss.
          lookup_timeout_seconds: 20,
          ...(rules.length === 0
            ? {}
            : { fault_injection: { seed: this.#prng.between(0, 2 ** 31), rules: [...rules] } }),
        },
      },
    };
  }

  async #newFolder(what: string): Promise<string> {
    const path = join(this.#options.folder, `${what}-${++this.#serial}`);
    await mkdir(path);
    return path;
  }
}

const noFaults: PlannedFaults = { rules: [], lost: new Set() };
