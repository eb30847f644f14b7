import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { type BlockId, blockIndex, blockIndexOf, requestId, tokenCount } from '../../src/core/ids.ts';
import type { AdapterRef, Pooling, RequestStats } from '../../src/core/request.ts';
import type { SamplingOptions } from '../../src/core/sampling.ts';
import { parseSamplingParams } from '../../src/core/sampling-parse.ts';
import {
  blockAt,
  hasMoreLayers,
  type StepPlan,
  type StepResult,
  spansOfTokens,
  type TokenLogprobs,
} from '../../src/core/step.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { findAdapter } from '../../src/ggml/lora-adapter.ts';
import { type ModelConfig, readModelConfig } from '../../src/ggml/model-config.ts';
import { type HiddenStates, type PipelineStage, stageOfModel } from '../../src/runner/contract.ts';
import { GgmlRunner } from '../../src/runner/ggml-runner.ts';
import { usedBytes } from '../../src/runner/kv-groups.ts';
import type { GgmlRunnerOptions } from '../../src/runner/runner-options.ts';
import type { SchedulerOptions } from '../../src/scheduler/contract.ts';
import type { SliceChoice } from '../../src/scheduler/layered-prefill.ts';
import { Scheduler } from '../../src/scheduler/scheduler.ts';
import type { Speculator } from '../../src/scheduler/speculation/speculator.ts';

export interface DriveRequest {
  readonly id: string;
  readonly prompt: ArrayLike<number>;
  readonly params?: SamplingOptions;
  readonly cacheSalt?: string;
  readonly pooling?: Pooling;
  readonly adapter?: AdapterRef | undefined;
}

/** The results of one request, which must have the same bits in every run. */
export interface RequestTrace {
  readonly tokens: number[];
  /** CRC32 of the row of logits that each token was sampled from. */
  readonly logits: number[];
  /**
   * CRC32 of the KV of each full block, by index + 10^6 * KV group; a block that is computed twice must have the same bits.
   */
  readonly blocks: Map<number, number>;
  /** Of the tokens after the first, if the request asks for them. */
  readonly promptLogprobs: TokenLogprobs[];
  /** Of each output token, if the request asks for them. */
  readonly logprobs: TokenLogprobs[];
  /** CRC32 of the hidden state of each prompt position that the pooling of the request needs. */
  readonly hidden: number[];
  stats: RequestStats | undefined;
}

export interface DriveOptions extends Partial<SchedulerOptions> {
  /** Blocks of the pool; default: all that the runner has. */
  readonly blocks?: number;
  readonly arrive?: (index: number) => number;
  readonly speculator?: Speculator | undefined;
  /** The duration of a step; default: 1 ms. */
  readonly msOf?: (plan: StepPlan) => number;
  /** Of chunks by layers; default: that of the pace. */
  readonly sliceChoice?: SliceChoice;
}

export type RunnerOverrides = Partial<Omit<GgmlRunnerOptions, 'file' | 'config'>>;

/** As many stages as a number says, or those that begin with layer 0 and with these layers. */
export type Stages = number | readonly number[];

export function stagesOf(config: ModelConfig, stages: Stages): readonly PipelineStage[] {
  const { layerCount } = config;
  if (typeof stages === 'number')
    return Array.from({ length: stages }, (_, rank) => stageOfModel(config, rank, stages));
  const starts = [0, ...stages];
  return starts.map((firstLayer, rank) => ({ firstLayer, endLayer: starts[rank + 1] ?? layerCount, layerCount }));
}

/** A model as a pipeline, with equally many blocks in each stage. */
export async function openStages(path: string, stages: Stages, overrides: RunnerOverrides = {}): Promise<GgmlRunner[]> {
  const config = readModelConfig(await readGguf(path));
  const opened: GgmlRunner[] = [];
  for (const stage of stagesOf(config, stages)) {
    const kvCacheBytes = (blockBytes: number): number => 256 * blockBytes;
    opened.push(await openRunner(path, { kvCacheBytes, ...overrides, stage }));
  }
  return opened;
}

export async function openRunner(path: string, overrides: RunnerOverrides = {}): Promise<GgmlRunner> {
  const file = await readGguf(path);
  return GgmlRunner.open({
    file,
    config: readModelConfig(file),
    device: 'cpu',
    // ggml's threads spin while they wait: with other processes on the same cores, more than one thread makes tests slow.
    threads: 1,
    numerics: 'exact',
    blockSize: tokenCount(16),
    kvCacheBytes: () => 32 << 20,
    ...overrides,
  });
}

/**
 * Runs requests to their end through the real scheduler and the real runner, or a pipeline of runners, and records the bits of all
 * results. `arrive` returns the step before which each request arrives; default: all arrive at once.
 */
export class Drive {
  readonly stages: readonly GgmlRunner[];
  readonly #traces = new Map<string, RequestTrace>();
  /** Steps of the last run, and the largest number of sequences in a step. */
  steps = 0;
  largestBatch = 0;
  /** Steps of the last run that computed some layers of a chunk. */
  slices = 0;
  /** The largest number of blocks that requests of the last run had at one time. */
  mostReferenced = 0;

  readonly #config: ModelConfig;

  readonly #path: string;

  private constructor(path: string, stages: readonly GgmlRunner[], config: ModelConfig) {
    this.#path = path;
    this.stages = stages;
    this.#config = config;
  }

  static async open(path: string, overrides: RunnerOverrides & { readonly stageCount?: Stages } = {}): Promise<Drive> {
    const { stageCount, ...options } = overrides;
    const drives: Drive[] = [];
    const traced: RunnerOverrides = {
      ...options,
      onLogits: (request, logits) => {
        drives[0]?.trace(request.requestId).logits.push(crcOf(logits));
        options.onLogits?.(request, logits);
      },
    };
    const stages =
      stageCount === undefined ? [await openRunner(path, traced)] : await openStages(path, stageCount, traced);
    const drive = new Drive(path, stages, readModelConfig(await readGguf(path)));
    drives.push(drive);
    return drive;
  }

  /** The first stage, which is the whole model if there is only one. */
  get runner(): GgmlRunner {
    return this.stages[0]!;
  }

  async run(requests: readonly DriveRequest[], options: DriveOptions = {}): Promise<Map<string, RequestTrace>> {
    const { blocks, arrive = () => 0, speculator, msOf = () => 1, sliceChoice, ...scheduling } = options;
    const spec = this.runner.kvCacheSpec;
    const scheduler = new Scheduler(
      blocks === undefined ? spec : { ...spec, blockCount: blocks as typeof spec.blockCount },
      {
        maxNumBatchedTokens: 512,
        maxNumSeqs: 64,
        maxModelLen: 4096,
        enablePrefixCaching: true,
        policy: 'fcfs',
        ...scheduling,
      },
      (bytes) => createHash('sha256').update(bytes).digest(),
      { speculator, sliceChoice },
    );
    this.#traces.clear();
    this.steps = 0;
    this.largestBatch = 0;
    this.mostReferenced = 0;
    const pending = requests.map((request, index) => ({ request, at: arrive(index) }));
    let nowMs = 0;
    this.slices = 0;
    while (pending.length > 0 || scheduler.hasWork()) {
      for (const item of pending
        .splice(0)
        .filter((item) => item.at > this.steps || !this.#add(scheduler, item.request))) {
        pending.push(item);
      }
      // The time of a speculator and of the pace.
      const plan = scheduler.plan(nowMs);
      this.steps++;
      nowMs += plan === undefined ? 1 : msOf(plan);
      if (plan === undefined) continue;
      if (plan.sequences.at(-1)?.layers !== undefined) this.slices++;
      this.mostReferenced = Math.max(this.mostReferenced, scheduler.stats().blocks.referenced);
      const result = await this.#execute(plan);
      this.#recordBlocks(plan);
      this.largestBatch = Math.max(this.largestBatch, plan.sequences.length);
      for (const update of scheduler.apply(plan, result, nowMs)) {
        const trace = this.trace(update.requestId);
        trace.tokens.push(...update.newTokens.map(({ token }) => token));
        trace.logprobs.push(...update.newTokens.flatMap(({ logprobs }) => logprobs ?? []));
        trace.promptLogprobs.push(...(update.prompt?.logprobs ?? []));
        if (update.prompt?.hidden !== undefined) trace.hidden.push(...this.#crcsOf(update.prompt.hidden));
        trace.stats = update.stats;
      }
      scheduler.checkInvariants();
    }
    return new Map(this.#traces);
  }

  trace(id: string): RequestTrace {
    let trace = this.#traces.get(id);
    if (trace === undefined) {
      trace = {
        tokens: [],
        logits: [],
        blocks: new Map(),
        promptLogprobs: [],
        logprobs: [],
        hidden: [],
        stats: undefined,
      };
      this.#traces.set(id, trace);
    }
    return trace;
  }

  async close(): Promise<void> {
    for (const stage of this.stages) await stage.close();
  }

  async #execute(plan: StepPlan): Promise<StepResult> {
    let hidden: HiddenStates | undefined;
    for (const stage of this.stages) {
      const result = await stage.execute(plan, hidden);
      if (stage === this.stages.at(-1)) return result;
      hidden = result.hidden;
    }
    throw new Error('the drive has no stages');
  }

  #crcsOf(hidden: Float32Array): number[] {
    const { embeddingLength: width } = this.#config;
    return Array.from({ length: hidden.length / width }, (_, row) =>
      crcOf(hidden.subarray(row * width, (row + 1) * width)),
    );
  }

  /** Loads a LoRA adapter on all stages, for requests of later runs. */
  async load(path: string, name = 'adapter'): Promise<AdapterRef> {
    const source = await findAdapter(path, { file: await readGguf(this.#path), config: this.#config });
    for (const stage of this.stages) await stage.adapters.load(source);
    return { name, digest: source.digest };
  }

  #add(scheduler: Scheduler, { id, prompt, params, cacheSalt, pooling, adapter }: DriveRequest): true {
    scheduler.add({
      id: requestId(id),
      promptTokens: Int32Array.from(prompt),
      params: parseSamplingParams({ temperature: 0, seed: 7n, maxTokens: 16, ignoreEos: true, ...params }, {
        vocabSize: this.runner.vocabSize,
        maxTokensDefault: 16,
        seedDefault: 0n,
      } as never),
      eosTokenIds: [],
      priority: 0,
      ...(cacheSalt === undefined ? {} : { cacheSalt }),
      ...(pooling === undefined ? {} : { pooling }),
      ...(adapter === undefined ? {} : { adapter }),
    });
    return true;
  }

  #recordBlocks(plan: StepPlan): void {
    for (const sequence of plan.sequences) {
      const { requestId: id, tokens, blockTables } = sequence;
      if (hasMoreLayers(sequence, this.runner.kvCacheSpec)) continue;
      // Before `apply`: which drafts are accepted is not known yet.
      const spans = spansOfTokens(sequence, tokens.length);
      for (const [group, table] of blockTables.entries()) {
        const { blockSize } = this.runner.kvCacheSpec.groups[group]!;
        for (const { start, end } of spans) {
          for (let index = blockIndexOf(start, blockSize); (index + 1) * blockSize <= end; index++)
            this.#recordBlock(id, group, index, this.#crcOfBlock(group, blockAt(table, blockIndex(index))));
        }
      }
    }
  }

  #recordBlock(id: string, group: number, index: number, crc: number): void {
    const { blocks } = this.trace(id);
    const place = index + group * 1e6;
    if ((blocks.get(place) ?? crc) !== crc)
      throw new Error(`${id}: block ${index} of group ${group} was computed again with other bits`);
    blocks.set(place, crc);
  }

  /** Each stage has its layers of a group at the beginning of the block, in order. */
  #crcOfBlock(group: number, block: BlockId): number {
    return this.stages.reduce((sum, { memory, kvCacheSpec }) => {
      const used = usedBytes(kvCacheSpec.groups[group]!, memory.layout, this.#config);
      const bytes = memory.isHost ? memory.bytesOf(block) : new Uint8Array(memory.blockBytes);
      if (!memory.isHost) memory.read(block, bytes);
      return crc32(bytes.subarray(0, used), sum);
    }, 0);
  }
}

const crcOf = (row: Float32Array): number => crc32(new Uint8Array(row.buffer, row.byteOffset, row.byteLength));

/** Tokens of a repeatable pseudo-random prompt. */
export function promptOf(length: number, seed: number, vocab = 256): Int32Array {
  let state = (seed * 2654435761 + 12345) >>> 0;
  return Int32Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) % vocab;
  });
}
