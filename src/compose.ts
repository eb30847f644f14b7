/** The composition root: the one file that knows which concrete part stands behind each contract. */
import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { systemClock } from './base/clock.ts';
import type { JsonObject } from './base/json.ts';
import { uniform } from './base/philox.ts';
import { readKvTransferConfig } from './connector/config.ts';
import type {
  KvConnector,
  KvIdentity,
  KvTransferConfig,
  SchedulerConnector,
  WorkerConnector,
} from './connector/connector.ts';
import { connectorNeedsHostMemory } from './connector/errors.ts';
import { createConnector } from './connector/registry.ts';
import { systemTimers } from './connector/system-timers.ts';
import { tokenCount } from './core/ids.ts';
import type { KvCacheSpec } from './core/kv-spec.ts';
import type { ModelInfo } from './engine/contract.ts';
import { Engine, type RenderChat } from './engine/engine.ts';
import {
  defaultKvCacheMemory,
  type EngineOptions,
  type ResolvedEngineOptions,
  resolveEngineOptions,
} from './engine/options.ts';
import { type GgufFile, readGguf } from './ggml/gguf.ts';
import { type ModelConfig, readModelConfig } from './ggml/model-config.ts';
import { GgmlRunner, type GgmlRunnerOptions, type RunnerTimings } from './runner/ggml-runner.ts';
import type { SchedulerOptions } from './scheduler/contract.ts';
import { Scheduler } from './scheduler/scheduler.ts';
import { compileChatTemplate } from './tokenizer/chat-template.ts';
import type { Tokenizer } from './tokenizer/contract.ts';
import { openTokenizer } from './tokenizer/llama-tokenizer.ts';
import { PipelineExecutor } from './worker/executor-pipeline.ts';
import type { Rank } from './worker/rank.ts';
import { InlineRank } from './worker/rank-inline.ts';

/**
 * Reads a model and puts an engine together. The caller closes it.
 * @throws KvasirError for a model that cannot be read or is not supported, missing native libraries, too little memory.
 */
export async function createEngine(options: EngineOptions): Promise<Engine> {
  return (await openMeasuredEngine(options)).engine;
}

/** The same, and how much of its time the runner spent computing; for benches. */
export async function openMeasuredEngine(
  options: EngineOptions,
): Promise<{ readonly engine: Engine; timings(): RunnerTimings }> {
  const resolved = resolveEngineOptions(options);
  const transfer = await openTransfer(resolved);
  const file = await readGguf(resolved.model);
  const config = readModelConfig(file);
  const tokenizer = await openTokenizer(file);
  // Connectors ring before there is an engine: look-ups may begin when a half is opened.
  let ring = (): void => undefined;
  const rankContext: RankContext = {
    ...transfer,
    file,
    model: config,
    modelName: modelName(resolved),
    wake: () => ring(),
  };
  let rank: OpenRank | undefined;
  let connector: SchedulerConnector | undefined;
  try {
    const renderChat = chatRenderer(resolved, tokenizer);
    rank = await openRank(resolved, rankContext);
    const ranks: readonly Rank[] = [rank];
    connector = await transfer.connector?.openScheduler({
      clock: systemClock,
      timers: systemTimers,
      wake: () => ring(),
      identities: ranks.map(({ identity }) => identity),
    });
    const executor = new PipelineExecutor(ranks, (id) => scheduler.isOpenTransfer(id));
    const model = {
      ...describeModel(resolved, config, executor.kvCacheSpec, renderChat !== undefined),
      attention: rank.attentionDescription,
    };
    const scheduling: SchedulerOptions = {
      maxNumBatchedTokens: resolved.maxNumBatchedTokens,
      maxNumSeqs: resolved.maxNumSeqs,
      maxModelLen: model.maxModelLen,
      enablePrefixCaching: resolved.enablePrefixCaching,
      policy: resolved.schedulingPolicy,
      ...(transfer.config === undefined ? {} : { kvLoadFailurePolicy: transfer.config.kvLoadFailurePolicy }),
    };
    const scheduler: Scheduler = new Scheduler(executor.kvCacheSpec, scheduling, sha256, connector);
    const { timings } = rank;
    const engine = new Engine(
      {
        scheduler,
        executor,
        tokenizer,
        model,
        ...(connector === undefined ? {} : { connector }),
        ...(renderChat === undefined ? {} : { renderChat }),
      },
      {
        scheduler: scheduling,
        maxWaiting: resolved.maxWaiting,
        ...(resolved.seed === undefined ? {} : { drawSeed: seedSequence(resolved.seed) }),
        ...(resolved.onNotice === undefined ? {} : { onNotice: resolved.onNotice }),
      },
    );
    ring = () => engine.ringTransfers();
    return { engine, timings: () => timings };
  } catch (error) {
    await connector?.close();
    await rank?.close({ timeoutMs: 0 });
    tokenizer.close();
    throw error;
  }
}

interface Transfer {
  readonly config?: KvTransferConfig;
  readonly connector?: KvConnector;
}

/** Before the model is read: a wrong configuration is to be told now, and not after minutes of loading. */
async function openTransfer({ kvTransferConfig }: ResolvedEngineOptions): Promise<Transfer> {
  if (kvTransferConfig === undefined) return {};
  const config = readKvTransferConfig(kvTransferConfig as JsonObject);
  return { config, connector: await createConnector(config) };
}

interface RankContext extends Transfer {
  readonly file: GgufFile;
  readonly model: ModelConfig;
  readonly modelName: string;
  wake(): void;
}

/** A rank in this process, and what is known of it for people. */
type OpenRank = InlineRank & { readonly attentionDescription: string; readonly timings: RunnerTimings };

async function openRank(options: ResolvedEngineOptions, context: RankContext): Promise<OpenRank> {
  const runner = await GgmlRunner.open(runnerOptions(options, context.file, context.model));
  try {
    const identity = identityOf(runner.kvCacheSpec, context.modelName, 0, 1);
    let half: WorkerConnector | undefined;
    if (context.connector !== undefined) {
      if (runner.kvPages === undefined) throw connectorNeedsHostMemory({ device: runner.deviceDescription });
      const { wake } = context;
      half = await context.connector.openWorker({ clock: systemClock, timers: systemTimers, wake, identity });
      half.registerKvCaches(runner.kvPages);
    }
    const rank = new InlineRank(runner, identity, half);
    return Object.assign(rank, { attentionDescription: runner.attentionDescription, timings: runner.timings });
  } catch (error) {
    await runner.close();
    throw error;
  }
}

function identityOf(spec: KvCacheSpec, name: string, rank: number, worldSize: number): KvIdentity {
  const { fingerprint, pageBytes, groups } = spec;
  return {
    fingerprint,
    modelName: name,
    dtype: 'f16',
    rank,
    worldSize,
    pageBytes,
    groups: groups.map(({ blockSize, layers }) => ({ blockSize, layers })),
  };
}

/** Everything a runner of this model needs; benches and tests open runners without an engine. */
export function runnerOptions(options: ResolvedEngineOptions, file: GgufFile, config: ModelConfig): GgmlRunnerOptions {
  return {
    file,
    config,
    device: options.device,
    threads: options.threads,
    numerics: options.numerics,
    attention: options.attention,
    blockSize: tokenCount(options.blockSize),
    kvCacheBytes: (pageBytes) => options.kvCacheMemory ?? defaultPoolBytes(options, config, pageBytes),
    onProgress: options.onProgress,
  };
}

/** Half of the memory that is free, the weights being in it already, and no more than all seats can fill. */
function defaultPoolBytes(options: ResolvedEngineOptions, config: ModelConfig, pageBytes: number): number {
  const blocksPerRequest = Math.ceil((options.maxModelLen ?? config.contextLength) / options.blockSize);
  return Math.min(defaultKvCacheMemory(0), (1 + options.maxNumSeqs * blocksPerRequest) * pageBytes);
}

const modelName = (options: ResolvedEngineOptions): string =>
  options.servedModelName ?? basename(options.model).replace(/\.gguf$/i, '');

/** Without a word from the user, a request may be as long as the model allows and the pool holds. */
function describeModel(
  options: ResolvedEngineOptions,
  config: ModelConfig,
  spec: KvCacheSpec,
  hasChatTemplate: boolean,
): ModelInfo {
  const poolTokens = (spec.pageCount - 1) * options.blockSize;
  return {
    name: modelName(options),
    path: options.model,
    architecture: config.architecture,
    vocabSize: config.vocabSize,
    maxModelLen: options.maxModelLen ?? Math.min(config.contextLength, poolTokens),
    hasChatTemplate,
  };
}

function chatRenderer(options: ResolvedEngineOptions, tokenizer: Tokenizer): RenderChat | undefined {
  const source = options.chatTemplate ?? tokenizer.chatTemplate;
  if (source === undefined) return undefined;
  const textOf = (id: number | undefined): string =>
    id === undefined ? '' : Buffer.from(tokenizer.tokenBytes(id, { special: true })).toString();
  const template = compileChatTemplate(source, {
    bosToken: textOf(tokenizer.bosTokenId),
    eosToken: textOf(tokenizer.eosTokenIds[0]),
  });
  return (messages, renderOptions) => template.render(messages, renderOptions);
}

const sha256 = (bytes: Uint8Array): Uint8Array => createHash('sha256').update(bytes).digest();

/** The seeds of requests that bring none, when the user wants a run to repeat: the n-th request gets the n-th. */
function seedSequence(seed: number): () => bigint {
  let drawn = 0;
  return () => BigInt(Math.floor(uniform(BigInt(seed), drawn++) * 2 ** 53));
}
