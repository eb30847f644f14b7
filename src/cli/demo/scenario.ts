import { cp, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { BlockKey } from '../../connector/block-key.ts';
import type { EngineOptions } from '../../engine/options.ts';
import { longestBlock, neededTokens, type ReferenceGroup } from '../proof/needed-tokens.ts';
import {
  keysInGroups,
  type RanksOfBlock,
  readFingerprint,
  readRanksOfBlocks,
  readStoredCrcs,
  type StoredCrcs,
  storedKeys,
} from '../proof/stored-blocks.ts';
import { promptTooShort } from './errors.ts';
import type { StageFacts } from './report.ts';
import type { StageAnswer, StageCompletion, StageOrder } from './stage-run.ts';
import {
  blocksMin,
  type DecodeStage,
  faultPlans,
  limits,
  loadableOf,
  type PromptBlocks,
  prompts,
  type SamplingName,
  samplings,
  type TierStage,
} from './stages.ts';
import { TierScenario } from './tier-scenario.ts';

export interface ScenarioOptions {
  /** The parent folder of all directories. */
  readonly folder: string;
  readonly engine: Pick<EngineOptions, 'model' | 'threads' | 'kvCacheMemory' | 'device'>;
  readonly blockSize: number;
  /** The model's KV groups. With more than one, prompts run one after the other. */
  readonly groups: readonly ReferenceGroup[];
  /** Runs an order in its own process. */
  runProcess(name: string, order: StageOrder): Promise<StageAnswer>;
  /**
   * For the test of the demo. The seeded stage samples with another seed than its reference, like an engine that lost
   * the state of its random numbers.
   */
  readonly plantDifference?: boolean;
}

/** The result of a prefill stage: its store, and the texts that it generated without loads. */
interface Prefilled {
  readonly store: string;
  readonly crcs: StoredCrcs;
  readonly ranksOf: RanksOfBlock;
  readonly blocks: readonly PromptBlocks[];
  readonly completions: Readonly<Record<SamplingName, StageAnswer['completions'][number]>>;
}

/** Seconds. Only blocks that the stage lets fail may fail, so a busy machine must not miss a deadline. */
const loadTimeout = 30;
/** A hung load fails at its deadline, so the first deadline is short. It is longer if other loads missed it too. */
const hungTimeouts = [2, 10, 30];

/** Whether more loads failed than intended, and the texts are right. */
const isDisturbed = (
  found: readonly StageCompletion[],
  wanted: readonly StageCompletion[],
  intended: number,
): boolean =>
  found.reduce((sum, { failedBlocks }) => sum + failedBlocks, 0) > intended &&
  found.every(({ text }, i) => text === wanted[i]?.text);

const samplingNames = ['greedy', 'seeded'] as const satisfies readonly SamplingName[];

export class Scenario {
  readonly #options: ScenarioOptions;
  readonly #prefilled = new Map<number, Prefilled>();
  #serial = 0;

  constructor(options: ScenarioOptions) {
    this.#options = options;
  }

  /** Computes all prompts on `ranks` ranks and stores their KV, which later stages load. */
  async prefill(name: string, ranks: 1 | 2): Promise<StageFacts> {
    const started = performance.now();
    const store = await this.#newFolder('store');
    const params = samplingNames.map((sampling) => samplings[sampling]);
    const answer = await this.#run(name, ranks, { load_path: store, save_path: store }, params);
    const fingerprint = await readFingerprint(store);
    const { groups } = this.#options;
    const blockSize = longestBlock(groups);
    const blocks = answer.promptTokens.map((tokens, i) => {
      const count = Math.floor(tokens.length / blockSize);
      if (count < blocksMin) throw promptTooShort({ prompt: i + 1, blocks: count, blockSize, blocksMin });
      return { tokenCount: tokens.length, keys: keysInGroups(tokens, groups, fingerprint) };
    });
    const completions = { greedy: answer.completions[0]!, seeded: answer.completions[1]! };
    const crcs = await readStoredCrcs(store);
    const ranksOf = await readRanksOfBlocks(store, ranks);
    this.#prefilled.set(ranks, { store, crcs, ranksOf, blocks, completions });
    return {
      name,
      answer,
      completions: completions.greedy,
      // The reference of every stage is the text of one rank.
      reference: this.#prefilled.get(1)!.completions.greedy,
      groups,
      ranks,
      ranksOf,
      failedKeys: new Set(),
      // The store of this stage is empty at its start.
      ...this.#minimum(blocks, completions.greedy, new Set(), new Set()),
      stored: crcs,
      computed: crcs,
      seconds: (performance.now() - started) / 1000,
    };
  }

  async decode(stage: DecodeStage): Promise<StageFacts> {
    const started = performance.now();
    const { store, crcs, ranksOf, blocks, completions } = this.#prefilled.get(stage.ranks)!;
    const { fault, name, ranks, mode } = stage;
    const { groups } = this.#options;
    const loadable = blocks.map((prompt) => loadableOf(prompt, groups));
    const chosen = onRanksWithKv(fault?.choose(loadable, groups) ?? [], ranks, ranksOf);
    const failedKeys = new Set<BlockKey>(chosen.flat());
    // A fault that changes stored bytes gets a copy of the store.
    const load_path = fault?.kind === 'bitFlip' ? await this.#newFolder('corrupt') : store;
    if (load_path !== store) await cp(store, load_path, { recursive: true });
    const stored = await storedKeys(
      load_path,
      blocks.flatMap(({ keys }) => keys.flat()),
      ranks,
    );
    const isPlanted = this.#options.plantDifference === true && stage.sampling === 'seeded';
    const sampling = samplings[stage.sampling];
    const reference = completions[stage.sampling];
    const attempt = async (load_timeout_seconds: number) => {
      const save_path = await this.#newFolder('computed');
      const faults = fault === undefined ? {} : { faults: faultPlans(fault.kind, chosen) };
      const answer = await this.#run(
        name,
        ranks,
        { load_path, save_path, load_timeout_seconds, async_load: mode === 'async', ...faults },
        [isPlanted ? { ...sampling, seed: 43 } : sampling],
      );
      return { answer, save_path };
    };
    const [first, ...longer] = fault?.kind === 'hung' ? hungTimeouts : [loadTimeout];
    let { answer, save_path } = await attempt(first!);
    for (const timeout of longer)
      if (isDisturbed(answer.completions[0]!, reference, failedKeys.size))
        ({ answer, save_path } = await attempt(timeout));
    return {
      name,
      answer,
      completions: answer.completions[0]!,
      reference,
      groups,
      ranks,
      ranksOf,
      failedKeys,
      ...this.#minimum(blocks, answer.completions[0]!, stored, failedKeys),
      stored: crcs,
      computed: await readStoredCrcs(save_path),
      seconds: (performance.now() - started) / 1000,
    };
  }

  /** A stage with the tiers of `OffloadingConnector`. */
  keepInTiers({ name, kind }: TierStage): Promise<StageFacts> {
    const { engine, blockSize, groups, runProcess } = this.#options;
    const { blocks, completions: reference } = this.#prefilled.get(1)!;
    const newFolder = (what: string): Promise<string> => this.#newFolder(what);
    const scenario = new TierScenario({ engine, blockSize, groups, blocks, reference, newFolder, runProcess });
    return kind === 'preempted' ? scenario.preempted(name) : scenario.restarted(name);
  }

  #run(name: string, ranks: 1 | 2, store: StageOrder['store'], params: StageOrder['samplings']): Promise<StageAnswer> {
    const { engine, blockSize, groups } = this.#options;
    return this.#options.runProcess(name, {
      engine: {
        ...engine,
        ...limits,
        blockSize,
        pipelineParallelSize: ranks,
        distributedExecutorBackend: ranks === 1 ? 'uni' : 'mp',
      },
      connector: 'twoDirectories',
      store,
      prompts,
      samplings: params,
      isSequential: groups.length > 1,
    });
  }

  /** The reference's minimum of computed tokens, and the part of it that the failed loads cause. */
  #minimum(
    blocks: readonly PromptBlocks[],
    completions: readonly StageCompletion[],
    stored: ReadonlySet<BlockKey>,
    failedKeys: ReadonlySet<BlockKey>,
  ): Pick<StageFacts, 'minimum' | 'repairMinimum'> {
    const minimumWith = (available: ReadonlySet<BlockKey>): number => {
      const outputTokens = (i: number): number => completions[i]!.tokens.length;
      const requests = blocks.map((prompt, i) => ({ ...prompt, outputTokens: outputTokens(i), available }));
      return neededTokens(requests, this.#options.groups);
    };
    const minimum = minimumWith(new Set([...stored].filter((key) => !failedKeys.has(key))));
    return { minimum, repairMinimum: minimum - minimumWith(stored) };
  }

  async #newFolder(what: string): Promise<string> {
    const path = join(this.#options.folder, `${++this.#serial}-${what}`);
    await mkdir(path);
    return path;
  }
}

/** The blocks that fail, by rank. A block that its rank has no KV in fails on the first rank that has. */
function onRanksWithKv(
  chosen: readonly (readonly BlockKey[])[],
  ranks: number,
  ranksOf: RanksOfBlock,
): readonly (readonly BlockKey[])[] {
  const rankOf = (key: BlockKey, rank: number): number => (ranksOf(key).includes(rank) ? rank : ranksOf(key)[0]!);
  const placed = chosen.flatMap((keys, rank) => keys.map((key) => ({ key, rank: rankOf(key, rank) })));
  return Array.from({ length: ranks }, (_, rank) =>
    placed.filter((failing) => failing.rank === rank).map(({ key }) => key),
  );
}
