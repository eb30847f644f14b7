import type { Prng } from '../src/base/prng.ts';
import type { WorkerConnector } from '../src/connector/connector.ts';
import type { BlockId, RequestId } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import type { Runner } from '../src/runner/contract.ts';
import type { ExecutedStep, ScheduledStep } from '../src/scheduler/contract.ts';
import { PipelineExecutor } from '../src/worker/executor-pipeline.ts';
import { outputAfterDeath } from '../src/worker/output-after-death.ts';
import type { Rank, RankOutput, UpstreamOutput } from '../src/worker/rank.ts';
import { InlineRank } from '../src/worker/rank-inline.ts';
import { FakeRunner, type ReferenceKv, type WrongRead } from './fake-runner.ts';
import type { PoolMemory } from './minimal-repair.ts';

export interface RanksOptions {
  readonly rankCount: number;
  readonly spec: KvCacheSpec;
  readonly vocabSize: number;
  readonly referenceOf: (id: RequestId) => ReferenceKv | undefined;
  /** Opens the worker side of the connector. Calls `flushed` when a step may overwrite blocks. Undefined: there is no connector. */
  readonly openWorker: ((rank: number, runner: FakeRunner, flushed: () => void) => WorkerConnector) | undefined;
}

/** When the process of a rank dies: before it gets the step, or when it has done all of the step and not reported it. */
export type Death = 'before' | 'after';

/**
 * The pipeline of the product over fake runners, one for each rank, each with its own memory and its own worker side of the connector.
 * All that joins ranks is the original: the executor, the ranks in a process, the calls of a worker's step, the output of a dead process.
 */
export class SimulatedRanks implements PoolMemory {
  readonly kvCacheSpec: KvCacheSpec;
  readonly #runners: readonly FakeRunner[];
  readonly #ranks: readonly MortalRank[];
  readonly #executor: PipelineExecutor;
  /** Blocks of which the step in flight destroys the content, after it has flushed saves. */
  #overwritten: readonly BlockId[] = [];
  /** Called on each rank after that. */
  #onFlushed: () => void = () => undefined;

  constructor({ rankCount, spec, vocabSize, referenceOf, openWorker }: RanksOptions) {
    this.#runners = Array.from({ length: rankCount }, (_, rank) => {
      const layers = spec.groups.map((group) => ({ ...group, layers: group.layers.map((layer) => layer + rank) }));
      return new FakeRunner({ ...spec, groups: layers }, vocabSize, { rank, rankCount });
    });
    this.#ranks = this.#runners.map((runner, rank) => {
      const flushed = (): void => this.#flushed(runner);
      return new MortalRank(runner, referenceOf, () => openWorker?.(rank, runner, flushed));
    });
    this.#executor = new PipelineExecutor(this.#ranks);
    this.kvCacheSpec = this.#executor.kvCacheSpec;
    this.#hasWorkers = openWorker !== undefined;
  }

  readonly #hasWorkers: boolean;

  /**
   * `overwritten`: blocks whose content is lost in the step, after saves were flushed. `flushed` is called on each rank after that. The
   * process of `dying` dies, if there is one.
   */
  async execute(
    step: ScheduledStep,
    overwritten: readonly BlockId[],
    flushed: () => void = () => undefined,
  ): Promise<ExecutedStep> {
    this.#overwritten = overwritten;
    this.#onFlushed = flushed;
    for (const runner of this.#runners) {
      runner.forgetWrongReads();
      if (!this.#hasWorkers) this.#flushed(runner);
    }
    return this.#executor.execute(step);
  }

  /** The process of a random rank dies in the next step. */
  dies(prng: Prng): void {
    prng.pick(this.#ranks).death = prng.pick(['before', 'after'] as const);
  }

  wrongReadOf(id: RequestId): WrongRead | undefined {
    let first: WrongRead | undefined;
    for (const runner of this.#runners) {
      const read = runner.wrongReadOf(id);
      if (read !== undefined && (first === undefined || read.token < first.token)) first = read;
    }
    return first;
  }

  matchesReference(block: number, group: number, position: number, reference: ReferenceKv): boolean {
    for (const runner of this.#runners) if (!runner.matchesReference(block, group, position, reference)) return false;
    return true;
  }

  overwrite(block: number): void {
    for (const runner of this.#runners) runner.overwrite(block);
  }

  overwriteAt(block: number, group: number, position: number): void {
    for (const runner of this.#runners) runner.overwriteAt(block, group, position);
  }

  #flushed(runner: FakeRunner): void {
    for (const block of this.#overwritten) runner.overwrite(block);
    this.#onFlushed();
  }
}

/** A rank whose process may die and is replaced by another one with empty memory, as `ProcessRank`. */
class MortalRank implements Rank {
  readonly kvCacheSpec: KvCacheSpec;
  readonly identity: Rank['identity'];
  readonly #runner: FakeRunner;
  readonly #open: () => InlineRank;
  #inner: InlineRank;
  death: Death | undefined;

  constructor(
    runner: FakeRunner,
    referenceOf: RanksOptions['referenceOf'],
    openWorker: () => WorkerConnector | undefined,
  ) {
    const { kvCacheSpec, stage } = runner;
    this.#runner = runner;
    this.kvCacheSpec = kvCacheSpec;
    this.identity = {
      fingerprint: kvCacheSpec.fingerprint,
      modelName: 'simulated',
      dtype: 'f16',
      rank: stage.rank,
      worldSize: stage.rankCount,
      blockBytes: kvCacheSpec.blockBytes,
      groups: kvCacheSpec.groups,
    };
    this.#open = () => new InlineRank(runnerOf(runner, referenceOf), this.identity, openWorker());
    this.#inner = this.#open();
  }

  async execute(step: ScheduledStep, upstream: Promise<UpstreamOutput> | undefined): Promise<RankOutput> {
    const { death } = this;
    if (death === undefined) return this.#inner.execute(step, upstream);
    this.death = undefined;
    if (death === 'after') await this.#inner.execute(step, upstream);
    this.#runner.loseAll();
    this.#runner.forgetWrongReads();
    this.#inner = this.#open();
    return outputAfterDeath(step, this.kvCacheSpec);
  }

  async loadAdapter(): Promise<void> {}

  async unloadAdapter(): Promise<void> {}

  async close(): Promise<void> {}
}

/** A runner of the product's contract. It has all adapters. */
function runnerOf(runner: FakeRunner, referenceOf: RanksOptions['referenceOf']): Runner {
  const { kvCacheSpec, vocabSize, stage } = runner;
  return {
    kvCacheSpec,
    vocabSize,
    stage: { firstLayer: stage.rank, endLayer: stage.rank + 1, layerCount: stage.rankCount },
    blockMemory: undefined,
    adapters: { has: () => true, load: async () => undefined, unload: async () => undefined },
    execute: async (plan, hidden) => runner.execute(plan, [], referenceOf, hidden),
    close: async () => undefined,
  };
}
