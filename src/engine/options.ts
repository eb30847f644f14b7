import { availableParallelism } from 'node:os';
import type { JsonObject } from '../base/json.ts';
import type { KvTransferConfig } from '../connector/connector.ts';
import type { EngineEvent } from './contract.ts';

/**
 * What a user decides about an engine: the CLI's flags in camelCase, the library's constructor options, and the
 * argument of `createEngine`. Everything but the model has a default, and all defaults are in `resolveEngineOptions`.
 */
export interface EngineOptions {
  /** Path of a GGUF file. */
  readonly model: string;
  /** Name in responses and in `/v1/models`; default: the file's name without its extension. */
  readonly servedModelName?: string;
  /** Longest prompt plus output in tokens; default: the model's own context length. */
  readonly maxModelLen?: number;
  /** Requests that run at once at most. */
  readonly maxNumSeqs?: number;
  /** Tokens computed in one step at most: how finely long prompts are cut so that others keep streaming. */
  readonly maxNumBatchedTokens?: number;
  /**
   * Milliseconds that a step may take while streams wait for a token: prompts beside them are cut into smaller chunks.
   * `auto`: relative to the duration of a step without prompts. 0: no bound.
   */
  readonly targetInterTokenLatency?: number | 'auto';
  /** Tokens of one KV block. */
  readonly blockSize?: number;
  /** Bytes of the KV pool; default: `defaultKvCacheMemory`. */
  readonly kvCacheMemory?: number;
  /** Element type of K and V. `q8_0`: half the memory, and other text than `f16` now and then. */
  readonly kvCacheDtype?: KvCacheDtype;
  /** Threads that compute. */
  readonly threads?: number;
  /** `exact`: the same bits whatever else is in the batch. `fast`: ggml's quickest kernels. */
  readonly numerics?: Numerics;
  /** `native`: a C kernel compiled on this machine. `gather`: ggml's own. `auto`: the first where it can be had. */
  readonly attention?: AttentionKind;
  readonly device?: Device;
  readonly enablePrefixCaching?: boolean;
  readonly schedulingPolicy?: SchedulingPolicy;
  /** Requests that wait for admission at most; the next one is refused with `queueFull`. */
  readonly maxWaiting?: number;
  /** Text of a Jinja template that replaces the model's own. */
  readonly chatTemplate?: string;
  /** Where the seeds of requests without one come from; default: chance. */
  readonly seed?: number;
  /** Keeps KV outside the engine: see `KvTransferConfig`; also as vLLM writes it, in snake_case. */
  readonly kvTransferConfig?: KvTransferConfig | JsonObject;
  /** Over how many ranks the model's layers are split. */
  readonly pipelineParallelSize?: number;
  /** `uni`: one rank in this process. `mp`: each rank in a process of its own. Default: `mp` for several ranks. */
  readonly distributedExecutorBackend?: ExecutorBackend;
  /**
   * Seconds after which a worker process that does not answer is killed and replaced; 0: never. A step that computes without
   * end gets six times as long, and more if steps are known to be slow.
   */
  readonly workerTimeout?: number;
  /** Told what whoever runs the engine should know. */
  readonly onEvent?: (event: EngineEvent) => void;
  /** Called while the weights are read, in bytes; the last call has `loadedBytes === totalBytes`. */
  readonly onProgress?: LoadProgress;
  /** Called while the model's file is hashed: for KV connectors, once for each file. It may go on at the same time. */
  readonly onDigestProgress?: LoadProgress;
}

export type KvCacheDtype = 'f16' | 'q8_0';
export type Numerics = 'exact' | 'fast';
export type AttentionKind = 'auto' | 'native' | 'gather';
export type Device = 'auto' | 'cpu' | 'gpu';
export type SchedulingPolicy = 'fcfs' | 'priority';
export type ExecutorBackend = 'uni' | 'mp';
export type LoadProgress = (loadedBytes: number, totalBytes: number) => void;

type DecidedLater =
  | 'servedModelName'
  | 'maxModelLen'
  | 'kvCacheMemory'
  | 'chatTemplate'
  | 'seed'
  | 'kvTransferConfig'
  | 'distributedExecutorBackend'
  | 'onEvent'
  | 'onProgress'
  | 'onDigestProgress';

/** Every default filled in but for those that need the model's file or are absent by nature. */
export type ResolvedEngineOptions = Required<Omit<EngineOptions, DecidedLater>> & Pick<EngineOptions, DecidedLater>;

export const engineDefaults = {
  maxNumSeqs: 64,
  maxNumBatchedTokens: 512,
  targetInterTokenLatency: 'auto',
  blockSize: 16,
  kvCacheDtype: 'f16',
  numerics: 'exact',
  attention: 'auto',
  device: 'auto',
  enablePrefixCaching: true,
  schedulingPolicy: 'fcfs',
  maxWaiting: 1024,
  pipelineParallelSize: 1,
  workerTimeout: 10,
} as const satisfies Partial<EngineOptions>;

/** An option that is present but undefined counts as absent, as users of a library expect. */
export function resolveEngineOptions(options: EngineOptions): ResolvedEngineOptions {
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  return Object.freeze({ ...engineDefaults, threads: availableParallelism(), ...given, model: options.model });
}

const GIB = 1024 ** 3;

/**
 * Bytes of the KV pool when the user said nothing: half of what the weights leave of the free memory, so that a
 * desktop stays usable, and at most 4 GiB, because an unasked-for pool larger than that surprises more than it helps.
 * `modelBytes` are still to be read when `freeBytes` is measured.
 */
export function defaultKvCacheMemory(modelBytes: number, freeBytes = process.availableMemory()): number {
  return Math.min(4 * GIB, Math.max(0, Math.floor((freeBytes - modelBytes) / 2)));
}
