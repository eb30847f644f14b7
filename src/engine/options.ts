import { availableParallelism } from 'node:os';
import { byEntries } from '../base/by-name.ts';
import type { JsonObject } from '../base/json.ts';
import type { KvTransferConfig } from '../connector/connector.ts';
import type { PoolingChoice } from '../core/request.ts';
import type { SpeculativeConfig } from '../scheduler/speculation/options.ts';
import type { LoraModule } from './adapters.ts';
import type { EngineEvent } from './contract.ts';
import { gpuLayersImpossible, gpuLayersInvalid, modelLenTooSmall } from './errors.ts';
import type { KvEventsConfig } from './kv-events/config.ts';
import { checkOptionTypes } from './read-options.ts';

/**
 * The options of an engine: the CLI's flags in camelCase, the library's constructor options, and the argument of
 * `createEngine`. Every option except the model has a default; `resolveEngineOptions` has all defaults.
 */
export interface EngineOptions {
  /**
   * Path of a GGUF file, or of the first part of a split one; or the name of a model on Hugging Face, like
   * `hf:Qwen/Qwen3-0.6B-GGUF:Q8_0`, which is downloaded once.
   */
  readonly model: string;
  /**
   * Name in responses and in `/v1/models`; default: the file's name without its extension. Of several names, requests may ask for
   * any, and responses have the first.
   */
  readonly servedModelName?: string | readonly string[];
  /** Longest prompt plus output in tokens; default: the model's own context length. */
  readonly maxModelLen?: number;
  /** The largest number of running requests. */
  readonly maxNumSeqs?: number;
  /** The token budget: the largest number of scheduled tokens in a step. Longer prompts are computed in chunks. */
  readonly maxNumBatchedTokens?: number;
  /**
   * Milliseconds that a step may take while streams wait for a token; prompts in the same step get smaller chunks.
   * `auto`: relative to the duration of a step without prompts. 0: no limit.
   */
  readonly targetInterTokenLatency?: number | 'auto';
  /** Tokens of one KV block; in models with large recurrent states, blocks have a multiple of it. */
  readonly blockSize?: number;
  /**
   * For models with recurrent states: tokens between two checkpoints, from which other requests and repairs continue.
   * Rounded up to whole blocks. Default: so many that checkpoints need little memory, at most about 512.
   */
  readonly stateCheckpointTokens?: number;
  /** Bytes of the KV pool; default: `defaultKvCacheMemory`. */
  readonly kvCacheMemory?: number;
  /** Loads a model even if it needs more memory than is free. The system may then end the process. Default: false. */
  readonly skipMemoryCheck?: boolean;
  /**
   * Weights stay in the model file, which the system reads and drops page by page, and processes share. The start is quick and steps are
   * slower, with the same bits. `false`: weights are copied. Default: mapped if copies do not fit into the free memory. Not on Windows.
   */
  readonly mmap?: boolean;
  /** Element type of K and V. `q8_0` needs half the memory; its text sometimes differs from that of `f16`. */
  readonly kvCacheDtype?: KvCacheDtype;
  /** Threads that compute; default: one for each core of `cpus`, else of the machine. */
  readonly threads?: number;
  /** Cores to which the compute threads are pinned, one after the other. Linux only. */
  readonly cpus?: readonly number[];
  /** `exact`: the bits do not depend on the batch. `fast`: ggml's fastest kernels. Default: `exact` on a CPU, `fast` on a GPU. */
  readonly numerics?: Numerics;
  /** `native`: a compiled C kernel. `gather`: ggml's attention. `auto`: `native` if it is available, else `gather`. */
  readonly attention?: AttentionKind;
  readonly device?: Device;
  /**
   * How many of the last layers compute on the GPU, with the output; the layers before them compute on the CPU. `auto`: as many as
   * its free memory has room for. Numbers from the model's number of layers on mean `all`.
   */
  readonly gpuLayers?: GpuLayers;
  readonly enablePrefixCaching?: boolean;
  /** The part of the pool's blocks, 0 to 1, that pinned prefixes may have: `engine.kv`. */
  readonly kvPinShare?: number;
  readonly schedulingPolicy?: SchedulingPolicy;
  /** The largest number of waiting requests; the next request is refused with `queueFull`. */
  readonly maxWaiting?: number;
  /** Text of a Jinja template that replaces the model's template, or the name of one of the model's templates. */
  readonly chatTemplate?: string;
  /** How the tokens of a prompt become one embedding, or `rank`: the file must be a reranker. Default: what the model file says. */
  readonly pooling?: PoolingChoice;
  /** LoRA adapters that are loaded with the model; requests name them in `lora`. More can be loaded later: `engine.adapters`. */
  readonly loraModules?: readonly LoraModule[];
  /** The largest number of LoRA adapters at one time. They are in memory. */
  readonly maxLoras?: number;
  /** The largest rank of a LoRA adapter. */
  readonly maxLoraRank?: number;
  /** Base seed for requests without a seed; default: random. */
  readonly seed?: number;
  /** The connector and its options: see `KvTransferConfig`. vLLM's snake_case names are accepted too. */
  readonly kvTransferConfig?: KvTransferConfig | JsonObject;
  /**
   * Speculation with drafts from the request's own text, `{ method: 'ngram', numSpeculativeTokens: 8 }`, also from earlier outputs,
   * `{ method: 'suffix' }`, or from a small model, `{ model: 'small.gguf', numSpeculativeTokens: 5 }`. vLLM's snake_case names are
   * accepted too. The text is the same as without. Default: off.
   */
  readonly speculativeConfig?: SpeculativeConfig | JsonObject;
  /**
   * Events of the KV cache over ZeroMQ: `{ enableKvCacheEvents: true }`. vLLM's snake_case names are accepted too. Needs the packages
   * zeromq and @msgpack/msgpack. Default: off.
   */
  readonly kvEventsConfig?: KvEventsConfig | JsonObject;
  /** The number of ranks that the model's layers are split over. */
  readonly pipelineParallelSize?: number;
  /** `uni`: one rank in this process. `mp`: each rank in its own process. Default: `mp` for several ranks. */
  readonly distributedExecutorBackend?: ExecutorBackend;
  /**
   * Seconds after which a worker process that does not answer is killed and replaced; 0: never. A worker that computes a
   * step gets six times as long, or more if its steps are slow.
   */
  readonly workerTimeout?: number;
  /** Called with messages for the program that runs the engine. */
  readonly onEvent?: (event: EngineEvent) => void;
  /** Called while the model is downloaded, in bytes. */
  readonly onDownloadProgress?: LoadProgress;
  /** Called while the weights are read, in bytes; the last call has `loadedBytes === totalBytes`. */
  readonly onProgress?: LoadProgress;
  /** Called while the model file is hashed for a KV connector, once per file. Weights may be read at the same time. */
  readonly onDigestProgress?: LoadProgress;
}

export type KvCacheDtype = 'f16' | 'q8_0';
export type Numerics = 'exact' | 'fast';
export type AttentionKind = 'auto' | 'native' | 'gather';
export type Device = 'auto' | 'cpu' | 'gpu';
export type GpuLayers = number | 'all' | 'auto';
export type SchedulingPolicy = 'fcfs' | 'priority';
export type ExecutorBackend = 'uni' | 'mp';
export type LoadProgress = (loadedBytes: number, totalBytes: number) => void;

type DecidedLater =
  | 'servedModelName'
  | 'maxModelLen'
  | 'cpus'
  | 'stateCheckpointTokens'
  | 'kvCacheMemory'
  | 'mmap'
  | 'numerics'
  | 'chatTemplate'
  | 'pooling'
  | 'loraModules'
  | 'seed'
  | 'kvTransferConfig'
  | 'speculativeConfig'
  | 'kvEventsConfig'
  | 'distributedExecutorBackend'
  | 'onEvent'
  | 'onDownloadProgress'
  | 'onProgress'
  | 'onDigestProgress';

/** All options with defaults, except those that need the model file or may be absent. */
export type ResolvedEngineOptions = Required<Omit<EngineOptions, DecidedLater>> & Pick<EngineOptions, DecidedLater>;

export const engineDefaults = {
  maxNumSeqs: 64,
  maxNumBatchedTokens: 512,
  targetInterTokenLatency: 'auto',
  blockSize: 16,
  skipMemoryCheck: false,
  kvCacheDtype: 'f16',
  attention: 'auto',
  device: 'auto',
  gpuLayers: 'auto',
  enablePrefixCaching: true,
  schedulingPolicy: 'fcfs',
  maxWaiting: 1024,
  kvPinShare: 0.5,
  maxLoras: 16,
  maxLoraRank: 256,
  pipelineParallelSize: 1,
  workerTimeout: 10,
} as const satisfies Partial<EngineOptions>;

/** An option with the value `undefined` or `null` counts as absent. @throws invalidParameter for values of a wrong type */
export function resolveEngineOptions(options: EngineOptions): ResolvedEngineOptions {
  checkOptionTypes(options);
  const maxModelLen = options.maxModelLen ?? undefined;
  if (maxModelLen !== undefined && !(Number.isSafeInteger(maxModelLen) && maxModelLen >= 2))
    throw modelLenTooSmall({ maxModelLen });
  const given = byEntries(Object.entries(options).filter(([, value]) => (value ?? undefined) !== undefined));
  const resolved = Object.freeze({
    ...engineDefaults,
    threads: options.cpus?.length ?? availableParallelism(),
    ...given,
    model: options.model,
  });
  checkGpuLayers(resolved);
  return resolved;
}

function checkGpuLayers({ gpuLayers: layers, device }: Pick<ResolvedEngineOptions, 'gpuLayers' | 'device'>): void {
  if (typeof layers === 'string' ? !['all', 'auto'].includes(layers) : !(Number.isSafeInteger(layers) && layers >= 0))
    throw gpuLayersInvalid({ found: typeof layers === 'string' ? JSON.stringify(layers) : String(layers) });
  if (device === 'cpu' && layers !== 'auto' && layers !== 0)
    throw gpuLayersImpossible({ layers, problem: '--device cpu has no GPU. Remove one of the two' });
  if (device === 'gpu' && layers === 0)
    throw gpuLayersImpossible({ layers, problem: '--device gpu needs a layer on the GPU. Remove one of the two' });
}

const GIB = 1024 ** 3;

/**
 * The default size of the KV pool in host memory, in bytes: half of the free memory that the weights leave, at most 4 GiB. So a desktop
 * stays usable. `freeBytes` is measured before the `modelBytes` of weights are read.
 */
export function defaultKvCacheMemory(modelBytes: number, freeBytes = process.availableMemory()): number {
  return Math.min(4 * GIB, Math.max(0, Math.floor((freeBytes - modelBytes) / 2)));
}

/** The same in the memory of a GPU: what is left there, at most 4 GiB. */
export const defaultGpuCacheMemory = (leftBytes: number): number => Math.min(4 * GIB, leftBytes);

/** What the weights leave of the memory of a GPU, without the reserve. */
export const leftOnGpu = (modelBytes: number, freeBytes: number, totalBytes: number): number =>
  Math.max(0, Math.floor(freeBytes - gpuReserve(totalBytes) - modelBytes));

/** Memory of a GPU for the buffers of a step and for other programs. */
export const gpuReserve = (totalBytes: number): number => Math.min(GIB, totalBytes / 8);
