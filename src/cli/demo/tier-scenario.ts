import type { BlockKey } from '../../connector/block-key.ts';
import type { EngineOptions } from '../../engine/options.ts';
import { readGguf } from '../../ggml/gguf.ts';
import { readModelConfig } from '../../ggml/model-config.ts';
import { wholeModel } from '../../runner/contract.ts';
import { kvLayout } from '../../runner/kv-groups.ts';
import { blockBytes, kvTypes } from '../../runner/kv-memory.ts';
import { neededTokens, type ReferenceGroup } from '../proof/needed-tokens.ts';
import { storedKeys } from '../proof/stored-blocks.ts';
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

/** The stages that keep KV in the tiers of `OffloadingConnector`. */
export class TierScenario {
  readonly #options: TierScenarioOptions;

  constructor(options: TierScenarioOptions) {
    this.#options = options;
  }

  /**
   * All prompts run at once with both samplings, and share no KV. The pool has room for about half of them, so requests are
   * preempted. Their KV was stored in host memory before it was overwritten, and they load it when they continue.
   */
  async preempted(name: string): Promise<StageFacts> {
    const started = performance.now();
    const { blocks, reference, groups } = this.#options;
    const answer = await this.#run(name, {
      store: { tiers: [hostMemory] },
      samplings: [samplings.greedy, samplings.seeded],
      isSeparate: true,
      // All prompts are computed in few steps, so that all requests generate at the same time.
      engine: { kvCacheMemory: await this.#tinyPool(), maxNumBatchedTokens: 4096, targetInterTokenLatency: 0 },
    });
    const completions = answer.completions.flat();
    const requests = [...blocks, ...blocks].map((prompt, i) => ({
      ...prompt,
      outputTokens: completions[i]!.tokens.length,
      available: new Set<BlockKey>(),
    }));
    return {
      ...this.#facts(name, answer, started),
      completions,
      reference: [...reference.greedy, ...reference.seeded],
      mustPreempt: true,
      minimum: requests.reduce((sum, request) => sum + neededTokens([request], groups), 0),
    };
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
    const { engine, blockSize, blocks } = this.#options;
    const config = readModelConfig(await readGguf(engine.model));
    const counts = blocks.map(({ tokenCount }) => Math.ceil(tokenCount / blockSize));
    const total = 2 * counts.reduce((sum, count) => sum + count, 0);
    // One block more for each request, and block 0, which the pool never uses.
    const poolBlocks = total + 2 * blocks.length + 1;
    return poolBlocks * blockBytes(kvLayout(config, wholeModel(config.layerCount), { blockSize, kvType: kvTypes.f16 }));
  }
}
