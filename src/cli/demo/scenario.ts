import { cp, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { JsonObject } from '../../base/json.ts';
import type { BlockKey } from '../../connector/block-key.ts';
import { readGguf } from '../../ggml/gguf.ts';
import { openTokenizer } from '../../tokenizer/llama-tokenizer.ts';
import { type Completion, type CompletionRequest, completeAll } from '../proof/completion.ts';
import { FilledStore, storeFlags } from '../proof/filled-store.ts';
import { readModelGroups } from '../proof/model-groups.ts';
import { longestBlock, type ReferenceGroup } from '../proof/needed-tokens.ts';
import { type ServerProcess, withServer } from '../proof/server-process.ts';
import { BlockStore, type RanksOfBlock } from '../proof/stored-blocks.ts';
import { promptTooShort } from './errors.ts';
import type { StageFacts } from './report.ts';
import {
  blocksMin,
  type DecodeStage,
  faultPlans,
  maxTokens,
  promptTexts,
  type SamplingName,
  samplings,
  type TierStage,
} from './stages.ts';
import { TierScenario } from './tier-scenario.ts';

export interface ScenarioOptions {
  /** The parent folder of all directories. */
  readonly folder: string;
  readonly model: string;
  readonly blockSize: number;
  /** Starts a server with the model and further flags. */
  start(flags: readonly string[]): Promise<ServerProcess>;
  readonly signal: AbortSignal;
  /**
   * For the test of the demo. The seeded stage samples with another seed than its reference, like an engine that lost
   * the state of its random numbers.
   */
  readonly plantDifference?: boolean;
}

/** What the model makes of the prompts. */
export interface ModelFacts {
  /** With more than one KV group, prompts run one after the other. */
  readonly groups: readonly ReferenceGroup[];
  readonly prompts: readonly (readonly number[])[];
}

/** Seconds. Only blocks that the stage lets fail may fail, so a busy machine must not miss a deadline. */
const longTimeout = 30;
/** A hung load fails at its deadline, so the first deadline is short. It is longer if other loads missed it too. */
const hungTimeouts = [2, 10, 30];

/** Whether more loads failed than intended, and the texts are right. */
const isDisturbed = (found: readonly Completion[], wanted: readonly Completion[], intended: number): boolean =>
  found.reduce((sum, { usage }) => sum + usage.failedLoads, 0) > intended &&
  found.every(({ text }, i) => text === wanted[i]?.text);

const samplingNames = ['greedy', 'seeded'] as const satisfies readonly SamplingName[];

export class Scenario {
  readonly groups: readonly ReferenceGroup[];
  readonly #options: ScenarioOptions & ModelFacts;
  /** By number of ranks. */
  readonly #prefilled = new Map<number, FilledStore>();
  #serial = 0;

  /** @throws KvasirError of the model's file, or `promptTooShort`. */
  static async open(options: ScenarioOptions): Promise<Scenario> {
    const { model, blockSize } = options;
    const groups = await readModelGroups(model, blockSize);
    const tokenizer = await openTokenizer(await readGguf(model));
    const prompts = promptTexts.map((text) => Array.from(tokenizer.encode(text)));
    tokenizer.close();
    const longest = longestBlock(groups);
    for (const [i, { length }] of prompts.entries()) {
      const blocks = Math.floor(length / longest);
      if (blocks < blocksMin) throw promptTooShort({ prompt: i + 1, blocks, blockSize: longest, blocksMin });
    }
    return new Scenario({ ...options, groups, prompts });
  }

  private constructor(options: ScenarioOptions & ModelFacts) {
    this.#options = options;
    this.groups = options.groups;
  }

  /** Computes all prompts on `ranks` ranks and stores their KV, which later stages load. */
  async prefill(name: string, ranks: 1 | 2): Promise<StageFacts> {
    const started = performance.now();
    const { groups, start, signal } = this.#options;
    const lists = samplingNames.map((sampling) => this.#requests(samplings[sampling]));
    const isSequential = groups.length > 1;
    const path = this.#newPath('store');
    const filled = await FilledStore.fill({ path, ranks, groups, lists, isSequential, start, signal });
    this.#prefilled.set(ranks, filled);
    const crcs = await filled.store.crcs();
    return {
      name,
      completions: filled.completions[0]!,
      // The reference of every stage is the text of one rank.
      reference: this.#expected(1, 'greedy'),
      groups,
      failing: new Map(),
      minimum: filled.neededTokens(lists[0]!, new Set()),
      repairMinimum: 0,
      stored: crcs,
      computed: crcs,
      seconds: (performance.now() - started) / 1000,
      events: [],
    };
  }

  async decode(stage: DecodeStage): Promise<StageFacts> {
    const started = performance.now();
    const { fault, name, ranks, mode } = stage;
    const { groups, prompts, plantDifference } = this.#options;
    const filled = this.#prefilled.get(ranks)!;
    const loadable = prompts.map((prompt) => filled.loadableKeysOf(prompt));
    const chosen = onRanksWithKv(fault?.choose(loadable, groups) ?? [], ranks, filled.ranksOf);
    const failing = new Map(chosen.flat().map((key) => [key, ranksWith(key, chosen)]));
    // A fault that changes stored bytes gets a copy of the store.
    const store = fault?.kind === 'bitFlip' ? new BlockStore(this.#newPath('corrupt')) : filled.store;
    if (store !== filled.store) await cp(filled.store.path, store.path, { recursive: true });
    const stored = await store.keys();
    const isPlanted = plantDifference === true && stage.sampling === 'seeded';
    const requests = this.#requests({ ...samplings[stage.sampling], ...(isPlanted ? { seed: 43 } : {}) });
    const reference = this.#expected(ranks, stage.sampling);
    const attempt = async (loadTimeout: number) => {
      const computed = new BlockStore(this.#newPath('computed'));
      await mkdir(computed.path);
      const settings = {
        save_path: computed.path,
        load_timeout_seconds: loadTimeout,
        lookup_timeout_seconds: longTimeout,
        save_timeout_seconds: 2 * longTimeout,
        async_load: mode === 'async',
        faults: fault === undefined ? [] : faultPlans(fault.kind, chosen),
      };
      return { ...(await this.#run(storeFlags({ path: store.path, ranks }, settings), requests)), computed };
    };
    const [first, ...longer] = fault?.kind === 'hung' ? hungTimeouts : [longTimeout];
    let run = await attempt(first!);
    for (const timeout of longer)
      if (isDisturbed(run.completions, reference, failing.size)) run = await attempt(timeout);
    const minimum = filled.neededTokens(requests, new Set([...stored].filter((key) => !failing.has(key))));
    return {
      name,
      completions: run.completions,
      reference,
      groups,
      failing,
      minimum,
      // The part of the minimum that the failed loads cause.
      repairMinimum: minimum - filled.neededTokens(requests, stored),
      stored: await filled.store.crcs(),
      computed: await run.computed.crcs(),
      seconds: (performance.now() - started) / 1000,
      events: run.events,
    };
  }

  /** A stage without faults, for the tiers themselves. */
  keepInTiers({ name, kind }: TierStage): Promise<StageFacts> {
    const scenario = new TierScenario({
      ...this.#options,
      filled: this.#prefilled.get(1)!,
      expected: { greedy: this.#expected(1, 'greedy'), seeded: this.#expected(1, 'seeded') },
      newPath: (what) => this.#newPath(what),
    });
    return kind === 'preempted' ? scenario.preempted(name) : scenario.restarted(name);
  }

  #requests(sampling: JsonObject): CompletionRequest[] {
    return this.#options.prompts.map((prompt) => ({ prompt, maxTokens, sampling }));
  }

  #expected(ranks: number, sampling: SamplingName): readonly Completion[] {
    return this.#prefilled.get(ranks)!.completions[samplingNames.indexOf(sampling)]!;
  }

  /** Saves end with the server. */
  #run(flags: readonly string[], requests: readonly CompletionRequest[]) {
    const { groups, start, signal } = this.#options;
    return withServer(start(flags), async ({ origin, warnings }) => ({
      completions: await completeAll(origin, requests, { signal, isSequential: groups.length > 1 }),
      events: warnings,
    }));
  }

  #newPath(what: string): string {
    return join(this.#options.folder, `${++this.#serial}-${what}`);
  }
}

const ranksWith = (key: BlockKey, byRank: readonly (readonly BlockKey[])[]): readonly number[] =>
  [...byRank.keys()].filter((rank) => byRank[rank]!.includes(key));

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
