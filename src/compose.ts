/** The composition root: the one file that knows which concrete part stands behind each contract. */
import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { uniform } from './base/philox.ts';
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
import { inlineExecutor } from './worker/executor-inline.ts';

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
  const file = await readGguf(resolved.model);
  const config = readModelConfig(file);
  const tokenizer = await openTokenizer(file);
  let runner: GgmlRunner | undefined;
  try {
    const renderChat = chatRenderer(resolved, tokenizer);
    runner = await GgmlRunner.open(runnerOptions(resolved, file, config));
    const model = {
      ...describeModel(resolved, config, runner.kvCacheSpec, renderChat !== undefined),
      attention: runner.attentionDescription,
    };
    const scheduling: SchedulerOptions = {
      maxNumBatchedTokens: resolved.maxNumBatchedTokens,
      maxNumSeqs: resolved.maxNumSeqs,
      maxModelLen: model.maxModelLen,
      enablePrefixCaching: resolved.enablePrefixCaching,
      policy: resolved.schedulingPolicy,
    };
    const { timings } = runner;
    const engine = new Engine(
      {
        scheduler: new Scheduler(runner.kvCacheSpec, scheduling, sha256),
        executor: inlineExecutor(runner),
        tokenizer,
        model,
        ...(renderChat === undefined ? {} : { renderChat }),
      },
      {
        scheduler: scheduling,
        maxWaiting: resolved.maxWaiting,
        ...(resolved.seed === undefined ? {} : { drawSeed: seedSequence(resolved.seed) }),
      },
    );
    return { engine, timings: () => timings };
  } catch (error) {
    await runner?.close();
    tokenizer.close();
    throw error;
  }
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

/** Without a word from the user, a request may be as long as the model allows and the pool holds. */
function describeModel(
  options: ResolvedEngineOptions,
  config: ModelConfig,
  spec: KvCacheSpec,
  hasChatTemplate: boolean,
): ModelInfo {
  const poolTokens = (spec.pageCount - 1) * options.blockSize;
  return {
    name: options.servedModelName ?? basename(options.model).replace(/\.gguf$/i, ''),
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
