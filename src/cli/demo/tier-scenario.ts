import type { BlockKey } from '../../connector/block-key.ts';
import type { EngineOptions } from '../../engine/options.ts';
import { readGguf } from '../../ggml/gguf.ts';
import { readModelConfig } from '../../ggml/model-config.ts';
import { wholeModel } from '../../runner/contract.ts';
import { kvLayout } from '../../runner/kv-groups.ts';
import { blockBytes, kvTypes } from '../../runner/kv-memory.ts';
import { neededTokens, type ReferenceGroup } from '../proof/needed-tokens.ts';
import { keysInGroups, storedKeys } from '../proof/stored-blocks.ts';
import type { StageFacts } from './report.ts';
import type { StageAnswer, StageCompletion, StageOrder } from './stage-run.ts';
import { limits, type PromptBlocks, prompts, samplings } from './stages.ts';

/** What the stages with tiers need of the stages before. */
export interface TierScenarioOptions {
  readonly engine: Pick<EngineOptions, 'model' | 'threads' | 'kvCacheMemory' | 'device'>;
  readonly blockSize: number;
  readonly groups: readonly ReferenceGroup[];
  readonly blocks: readonly PromptBlocks[];
  /** The texts of the prefill stage. */
  readonly reference: { readonly greedy: readonly StageCompletion[]; readonly seeded: readonly StageCompletion[] };
  newFolder(what: string): Promise<string>;
  runProcess(name: string, order: StageOrder): Promise<StageAnswer>;
}

const hostMemory = 'host:1GiB';
/** With several KV groups, how many blocks of output tokens each request of the stage with preemptions gets. */
const outputBlocks = 8;
/** If blocks have more tokens, the stage with preemptions would need very long outputs. */
export const preemptedBlockSizeMax = 32;

/** The stages that keep KV in the tiers of `OffloadingConnector`. */
export class TierScenario {
  readonly #options: TierScenarioOptions;

  constructor(options: TierScenarioOptions) {
    this.#options = options;
  }

  /**
   * All prompts run at once with both samplings, and share no KV. The pool has too few blocks for their output tokens, so
   * requests are preempted. Their KV was stored in host memory before it was overwritten, and they load it when they continue.
   *
   * With several KV groups, a pool with room for the prompts has spare blocks too: windows and states release blocks. So the
   * outputs are longer than in the prefill stage, and a first process without preemptions generates the reference.
   */
  async preempted(name: string): Promise<StageFacts> {
    const started = performance.now();
    const { blocks, groups } = this.#options;
    const isLonger = groups.length > 1;
    const long = { maxTokens: outputBlocks * groups[0]!.blockSize };
    const order = {
      store: { tiers: [hostMemory] },
      samplings: [samplings.greedy, samplings.seeded].map((params) => (isLonger ? { ...params, ...long } : params)),
      isSeparate: true,
    };
    const { greedy, seeded } = this.#options.reference;
    const reference = isLonger
      ? (await this.#run(`${name}, large pool`, order)).completions.flat()
      : [...greedy, ...seeded];
    const answer = await this.#run(name, {
      ...order,
      // All prompts are computed in few steps, so that all requests generate at the same time.
      engine: {
        kvCacheMemory: await this.#tinyPool(),
        maxNumBatchedTokens: isLonger ? 1024 : 4096,
        targetInterTokenLatency: 0,
      },
    });
    const completions = answer.completions.flat();
    const requests = [...blocks, ...blocks].map((prompt, i) => ({
      ...prompt,
      outputTokens: completions[i]!.tokens.length,
      available: new Set<BlockKey>(),
    }));
    const repairMinimum = completions.reduce(
      (sum, completion, i) => sum + this.#afterPreemptions(answer.promptTokens[i % blocks.length]!, completion),
      0,
    );
    return {
      ...this.#facts(name, answer, started),
      completions,
      reference,
      mustPreempt: true,
      minimum: repairMinimum + requests.reduce((sum, request) => sum + neededTokens([request], groups), 0),
      repairMinimum,
    };
  }

  /** The smallest number of tokens that the request computes again after its preemptions, if it loads all its full blocks. */
  #afterPreemptions(prompt: readonly number[], { tokens, preemptedAfter }: StageCompletion): number {
    const { groups } = this.#options;
    return preemptedAfter.reduce((sum, count) => {
      if (count === 0) return sum;
      const before = [...prompt, ...tokens.slice(0, count)];
      // The KV of the last token was not computed before the preemption.
      const keys = keysInGroups(before.slice(0, -1), groups, 'the request');
      const request = { tokenCount: before.length, keys, outputTokens: 1, available: new Set(keys.flat()) };
      return sum + neededTokens([request], groups) - 1;
    }, 0);
  }

  /** A process computes the prompts and ends. The next one has an empty host memory, and finds the KV on the disk. */
  async restarted(name: string): Promise<StageFacts> {
    const started = performance.now();
    const { blocks, reference, groups } = this.#options;
    const disk = await this.#options.newFolder('disk');
    const order = {
      store: { tiers: [hostMemory, `disk:${disk}`] },
      samplings: [samplings.greedy],
      isSequential: groups.length > 1,
    };
    await this.#run(`${name}, first process`, order);
    const keys = blocks.flatMap((prompt) => prompt.keys.flat());
    const available = await storedKeys(disk, keys, 1);
    const answer = await this.#run(name, order);
    const completions = answer.completions[0]!;
    const requests = blocks.map((prompt, i) => ({
      ...prompt,
      outputTokens: completions[i]!.tokens.length,
      available,
    }));
    return {
      ...this.#facts(name, answer, started),
      completions,
      reference: reference.greedy,
      minimum: neededTokens(requests, groups),
    };
  }

  #facts(name: string, answer: StageAnswer, started: number) {
    return {
      name,
      answer,
      groups: this.#options.groups,
      ranks: 1,
      ranksOf: () => [0],
      failedKeys: new Set<BlockKey>(),
      repairMinimum: 0,
      stored: new Map<string, number>(),
      computed: new Map<string, number>(),
      seconds: (performance.now() - started) / 1000,
    };
  }

  #run(
    name: string,
    {
      engine: change,
      ...order
    }: Pick<StageOrder, 'store' | 'samplings' | 'isSeparate' | 'isSequential'> & {
      readonly engine?: Partial<EngineOptions>;
    },
  ): Promise<StageAnswer> {
    const { engine, blockSize } = this.#options;
    return this.#options.runProcess(name, {
      ...order,
      connector: 'offloading',
      engine: { ...engine, ...limits, blockSize, ...change },
      prompts,
    });
  }

  /** Bytes of a pool for all prompts, in which there is no block left for most of their output tokens. */
  async #tinyPool(): Promise<number> {
    const { engine, blockSize, blocks, groups } = this.#options;
    const config = readModelConfig(await readGguf(engine.model));
    const counts = blocks.flatMap(({ tokenCount }) => groups.map((group) => blocksAfter(tokenCount, group)));
    const total = 2 * counts.reduce((sum, count) => sum + count, 0);
    const count = (kind: ReferenceGroup['kind']): number => groups.filter((group) => group.kind === kind).length;
    // For each request, half of the blocks of its output tokens; for the last request, the states of an admission; block 0.
    const spare = groups.length === 1 ? 1 : (count('full') * outputBlocks) / 2;
    const poolBlocks = total + 2 * blocks.length * spare + 2 * count('state') + 1;
    return poolBlocks * blockBytes(kvLayout(config, wholeModel(config.layerCount), { blockSize, kvType: kvTypes.f16 }));
  }
}

/** The blocks of a group that a request has when its prompt is computed. */
function blocksAfter(tokenCount: number, { kind, blockSize, window = Infinity }: ReferenceGroup): number {
  if (kind === 'state') return 1;
  return Math.min(Math.ceil(tokenCount / blockSize), Math.ceil((window - 1) / blockSize) + 1);
}
