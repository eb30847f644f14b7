import { type Command, InvalidArgumentError, Option } from 'commander';
import { parseBytes } from '../base/bytes.ts';
import { memoryLimit } from '../base/memory-limit.ts';
import type { KvTransferConfig } from '../connector/connector.ts';
import { type PoolingChoice, poolingChoices } from '../core/request.ts';
import type { EngineEvent } from '../engine/contract.ts';
import { type KvEventsConfig, parseKvEventsConfig } from '../engine/kv-events/config.ts';
import { type EngineOptions, type ExecutorBackend, engineDefaults, type GpuLayers } from '../engine/options.ts';
import {
  parseSpeculativeConfig,
  type SpeculationOptions,
  speculativeTokensMax,
} from '../scheduler/speculation/options.ts';
import type { TextSink } from './context.ts';
import { inHelpAll, showFirst } from './help-all.ts';

/** Parsers for values of flags, one per kind; an error names the allowed values. */
export function integerFrom(min: number, max = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^[+-]?\d+$/.test(text.trim()) && value >= min && value <= max) return value;
    const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
    throw new InvalidArgumentError(`It must be a whole number ${range}.`);
  };
}

function shareFlag(text: string): number {
  const value = Number(text);
  if (text.trim() !== '' && value >= 0 && value <= 1) return value;
  throw new InvalidArgumentError('It must be a number from 0 to 1.');
}

/** A number of tokens: 4096, or as in vLLM 4k for 4,000, 4K for 4,096, 1.5m and 1M. */
export function tokensFlag(text: string): number {
  const [, digits = '', unit = ''] = /^([\d.]+)([kKmM]?)$/.exec(text.trim()) ?? [];
  const isBinary = unit === 'K' || unit === 'M';
  const factor = { '': 1, k: 1e3, m: 1e6, K: 2 ** 10, M: 2 ** 20 }[unit]!;
  const isWritten = isBinary || unit === '' ? /^\d+$/ : /^\d+(\.\d+)?$/;
  const value = Math.round(Number(digits) * factor);
  if (isWritten.test(digits) && value >= 1 && Number.isSafeInteger(value)) return value;
  throw new InvalidArgumentError(
    'It must be a number of tokens of at least 1, such as 4096, 4k (4,000) or 4K (4,096).',
  );
}

/** A list in JSON, or values between commas. */
export function listFlag(text: string): string[] {
  const list = text.trim().startsWith('[') ? jsonList(text) : text.split(',').map((value) => value.trim());
  if (list !== undefined && list.length > 0 && list.every((value) => typeof value === 'string' && value !== ''))
    return list as string[];
  throw new InvalidArgumentError('It must be values between commas, or a list of texts in JSON.');
}

function jsonList(text: string): unknown[] | undefined {
  try {
    return JSON.parse(text) as unknown[];
  } catch {
    return undefined;
  }
}

/** An option that may be repeated; its values in order. */
export const repeated = (value: string, before: readonly string[] | undefined): string[] => [...(before ?? []), value];

/** The cores of a list like `0-3,8`, each once. */
export function cpusFlag(text: string): number[] {
  const cores = new Set<number>();
  for (const part of text.split(',')) {
    const range = /^ *(\d{1,4})(?:-(\d{1,4}))? *$/.exec(part);
    const first = Number(range?.[1]);
    const last = Number(range?.[2] ?? range?.[1]);
    if (range === null || last < first) throw new InvalidArgumentError('It must be a list of cores, like 0-3,8.');
    for (let core = first; core <= last; core++) cores.add(core);
  }
  return [...cores];
}

export function numberFlag(text: string): number {
  const value = Number(text);
  if (text.trim() !== '' && Number.isFinite(value)) return value;
  throw new InvalidArgumentError('It must be a number.');
}

function secondsFlag(text: string): number {
  const value = numberFlag(text);
  if (value >= 0) return value;
  throw new InvalidArgumentError('It must be 0 or more.');
}

/** A smaller number of bytes without a unit is nearly always meant in GiB or MiB. */
const plainBytesMin = 1024;

/** `2GiB`, `512 MiB`, `1.5g`, `4000000`, `100B`. */
export function bytesFlag(text: string): number {
  const bytes = parseBytes(text);
  const isPlain = /^[\s\d.]*$/.test(text);
  if (bytes !== undefined && isPlain && bytes < plainBytesMin) {
    const given = text.trim();
    throw new InvalidArgumentError(
      `It is a number of bytes, so ${given} is less than 1 KiB. Write the unit, like ${given}GiB or ${given}MiB; ${given}B if you mean bytes.`,
    );
  }
  if (bytes !== undefined) return bytes;
  throw new InvalidArgumentError('It must be a number of bytes, like 2GiB, 512MiB or 1000000.');
}

export function gibibytesFlag(text: string): number {
  const value = numberFlag(text);
  const limit = memoryLimit();
  if (value * 1024 ** 3 >= limit.bytes) {
    throw new InvalidArgumentError(`It is a number of GiB, but ${limit.text}. Give a smaller size, like 8 or 0.5.`);
  }
  // A tiny size is rounded to 0 bytes.
  if (Math.round(value * 1024 ** 3) > 0) return value;
  throw new InvalidArgumentError('It must be a number of GiB above 0, like 8 or 0.5.');
}

/** A request has a token of the prompt and one of the output. */
export function modelLenFlag(text: string): number {
  const value = tokensFlag(text);
  if (value >= 2) return value;
  throw new InvalidArgumentError('It must be at least 2: one token of the prompt and one of the output.');
}

/** A duration in milliseconds, or `auto`. */
export function latencyFlag(text: string): number | 'auto' {
  if (text === 'auto') return text;
  const value = Number(text);
  if (text.trim() !== '' && Number.isFinite(value) && value >= 0) return value;
  throw new InvalidArgumentError('It must be "auto", or a number of milliseconds; 0: no limit.');
}

export function speculativeConfigFlag(text: string): SpeculationOptions {
  try {
    return parseSpeculativeConfig(text);
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
}

function kvEventsConfigFlag(text: string): KvEventsConfig {
  try {
    return parseKvEventsConfig(text);
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
}

/** A number of layers, `all` or `auto`. */
export function gpuLayersFlag(text: string): GpuLayers {
  if (text === 'all' || text === 'auto') return text;
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw new InvalidArgumentError('It must be a whole number of at least 0, "all" or "auto".');
}

export function oneOf(flags: string, description: string, choices: readonly string[], fallback: string): Option {
  return new Option(flags, description).choices(choices).default(fallback);
}

/** The engine's flags as commander returns them. */
export interface EngineFlags {
  readonly maxModelLen?: number;
  readonly maxNumSeqs: number;
  readonly maxNumBatchedTokens: number;
  readonly targetInterTokenLatency: number | 'auto';
  readonly blockSize: number;
  readonly stateCheckpointTokens?: number;
  readonly kvCacheMemory?: number;
  readonly skipMemoryCheck?: boolean;
  readonly mmap?: boolean;
  readonly kvCacheDtype: 'f16' | 'q8_0';
  readonly threads?: number;
  readonly cpus?: readonly number[];
  readonly numerics?: 'exact' | 'fast';
  readonly attention: 'auto' | 'native' | 'gather';
  readonly device: 'auto' | 'cpu' | 'gpu';
  readonly gpuLayers: GpuLayers;
  readonly enablePrefixCaching: boolean;
  readonly schedulingPolicy: 'fcfs' | 'priority';
  readonly maxWaiting: number;
  readonly kvPinShare: number;
  readonly chatTemplate?: string;
  readonly pooling?: PoolingChoice;
  readonly seed?: number;
  /** Read before the command's action, from JSON and dotted flags: see `kv-transfer-flags.ts`. */
  readonly kvTransferConfig?: KvTransferConfig;
  /** Read from JSON, or before the command's action from its short forms: see `speculation-flags.ts`. */
  readonly speculativeConfig?: SpeculationOptions;
  readonly kvEventsConfig?: KvEventsConfig;
  readonly pipelineParallelSize: number;
  readonly distributedExecutorBackend?: ExecutorBackend;
  readonly workerTimeout: number;
}

/** Adds the flags of every command that runs an engine, with vLLM's names. `isFirst`: whether `--help` shows one of the command's own flags. */
export function addEngineFlags(command: Command, isFirst: (option: Option) => boolean = () => true): Command {
  const defaults = engineDefaults;
  const count = integerFrom(1);
  showFirst(command, (option) =>
    option.helpGroupHeading === 'Engine:' ? firstEngineFlags.has(option.long ?? '') : isFirst(option),
  );
  return command
    .optionsGroup('Engine:')
    .option(
      '--max-model-len <tokens>',
      "longest prompt plus output, like 4096 or 4K (default: the model's context length)",
      modelLenFlag,
    )
    .option('--max-num-seqs <n>', 'largest number of running requests', count, defaults.maxNumSeqs)
    .option('--max-num-batched-tokens <n>', 'largest number of tokens in a step', count, defaults.maxNumBatchedTokens)
    .option(
      '--target-inter-token-latency <ms>',
      'time limit of a step while streams wait, by smaller chunks of prompts; auto: a few times the time of a step without prompts; 0: no limit',
      latencyFlag,
      defaults.targetInterTokenLatency,
    )
    .option('--block-size <tokens>', 'tokens of one KV block', count, defaults.blockSize)
    .option(
      '--state-checkpoint-tokens <tokens>',
      'for models with recurrent states: tokens between two checkpoints, rounded up to whole blocks (default: what needs little memory, at most about 512)',
      count,
    )
    .option(
      '--kv-cache-memory <bytes>',
      'size of the KV pool, like 2GiB (default: half of the free memory, at most 4GiB or what all requests can fill)',
      bytesFlag,
    )
    .option('--skip-memory-check', 'load a model even if it needs more memory than is free')
    .option(
      '--mmap',
      'read weights from the model file when they are used: a quick start and slower steps (default: if copies do not fit into memory)',
    )
    .option('--no-mmap', 'copy weights into memory at the start')
    .addOption(
      oneOf(
        '--kv-cache-dtype <type>',
        'type of K and V; q8_0 needs half the memory, but its text sometimes differs from that of f16',
        ['f16', 'q8_0'],
        defaults.kvCacheDtype,
      ),
    )
    .option('--threads <n>', 'threads that compute (default: all cores, or those of --cpus)', count)
    .option('--cpus <list>', 'cores to which the compute threads are pinned, like 0-3,8 (Linux)', cpusFlag)
    .addOption(
      new Option(
        '--numerics <how>',
        'exact: the same bits in any batch; fast: the fastest kernels (default: exact on a CPU, fast on a GPU)',
      ).choices(['exact', 'fast']),
    )
    .addOption(
      oneOf(
        '--attention <kernel>',
        "native: a compiled C kernel; gather: ggml's attention; auto: native if available, else gather",
        ['auto', 'native', 'gather'],
        defaults.attention,
      ),
    )
    .addOption(oneOf('--device <device>', 'where to compute', ['auto', 'cpu', 'gpu'], defaults.device))
    .option(
      '--gpu-layers <n|all|auto>',
      'how many of the last layers compute on the GPU, with the output; auto: as many as fit into its free memory',
      gpuLayersFlag,
      defaults.gpuLayers,
    )
    .option('--enable-prefix-caching', 'reuse the KV of common prefixes', defaults.enablePrefixCaching)
    .option('--no-enable-prefix-caching', 'compute every prompt from its first token')
    .addOption(
      oneOf('--scheduling-policy <policy>', 'order of requests', ['fcfs', 'priority'], defaults.schedulingPolicy),
    )
    .option(
      '--kv-pin-share <share>',
      'part of the KV pool that pinned prefixes may have, 0 to 1',
      shareFlag,
      defaults.kvPinShare,
    )
    .option('--max-waiting <n>', 'largest number of waiting requests', integerFrom(0), defaults.maxWaiting)
    .option(
      '--chat-template <file|name>',
      "Jinja template that replaces the model's template, or the name of one of the model's templates",
    )
    .addOption(
      new Option(
        '--pooling <how>',
        'how tokens become an embedding, or rank for a reranker (default: what the model file says)',
      ).choices(poolingChoices),
    )
    .option('--pipeline-parallel-size <n>', "ranks that share the model's layers", count, defaults.pipelineParallelSize)
    .addOption(
      new Option(
        '--distributed-executor-backend <kind>',
        'uni: all ranks in this process; mp: each rank in its own process (default: mp for several ranks)',
      ).choices(['uni', 'mp']),
    )
    .option(
      '--worker-timeout <seconds>',
      'time after which a worker process that does not answer is replaced; 0: never',
      secondsFlag,
      defaults.workerTimeout,
    )
    .option(
      '--kv-transfer-config <json>',
      'connector for KV outside the engine, as in vLLM; --kv-transfer-config.<field> <value> sets one field',
    )
    .option(
      '--kv-offloading-size <GiB>',
      'host memory for KV that leaves the pool; short for --kv-tier host:<size>',
      gibibytesFlag,
    )
    .addOption(oneOf('--kv-offloading-backend <backend>', 'implementation of offloading', ['native'], 'native'))
    .option(
      '--kv-tier <tier>',
      'keep KV that leaves the pool in this tier: host:8GiB, disk:/path:100GiB, redis://host:6379 or s3://bucket/prefix; repeat it for tiers below',
      repeated,
    )
    .addOption(
      new Option(
        '--kv-load-policy <policy>',
        'which blocks are loaded from tiers; auto: those that are faster to load than to compute; always: all that a request needs (default: "auto")',
      ).choices(['auto', 'always']),
    )
    .option(
      '--kv-transfer-key-file <file>',
      'keys that authenticate blocks on disks, in Redis and in S3; blocks without them are computed again',
    )
    .option(
      '--kv-transfer-encrypt',
      'encrypt these blocks with the keys of --kv-transfer-key-file; blocks that are not encrypted are computed again',
    )
    .option(
      '--speculative-config <json>',
      'speculation, as in vLLM, which changes no token: drafts from the text so far, like \'{"method":"ngram","num_speculative_tokens":8}\', also from earlier outputs, like \'{"method":"suffix"}\', from the model\'s layer for multi-token prediction, like \'{"method":"mtp","num_speculative_tokens":2}\', or from a small model, like \'{"model":"small.gguf","num_speculative_tokens":5}\'',
      speculativeConfigFlag,
    )
    .addOption(
      new Option('--spec-method <method>', 'short for "method" in --speculative-config').choices([
        'ngram',
        'suffix',
        'mtp',
        'draft_model',
      ]),
    )
    .option('--spec-model <model>', 'short for "model" in --speculative-config: the draft model')
    .option(
      '--spec-tokens <n>',
      'short for "num_speculative_tokens" in --speculative-config',
      integerFrom(1, speculativeTokensMax),
    )
    .option(
      '--kv-events-config <json>',
      'events of the KV cache over ZeroMQ, as in vLLM, for routers that follow the cache; like \'{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557"}\'',
      kvEventsConfigFlag,
    )
    .optionsGroup('Options:')
    .addHelpText('after', inHelpAll(KV_TRANSFER_HELP));
}

/** Those that a newcomer needs. */
const firstEngineFlags = new Set(
  ['max-model-len', 'max-num-seqs', 'kv-cache-memory', 'kv-cache-dtype', 'threads', 'device', 'gpu-layers', 'numerics']
    .concat(['chat-template', 'kv-offloading-size', 'kv-tier', 'spec-method', 'spec-model'])
    .map((name) => `--${name}`),
);

const KV_TRANSFER_HELP = `
KV outside the engine, in two forms (dotted fields override the JSON):
  --kv-transfer-config '{"kv_connector":"SharedStorageConnector","kv_role":"kv_both","kv_connector_extra_config":{"shared_storage_path":"/var/kv"}}'
  --kv-transfer-config.kv_connector SharedStorageConnector --kv-transfer-config.kv_role kv_both --kv-transfer-config.kv_connector_extra_config.shared_storage_path /var/kv`;

/** Writes an engine's events to stderr, for commands without a log. */
export function eventsTo(stderr: TextSink): (event: EngineEvent) => void {
  return ({ level, message }) => void stderr.write(`${level === 'warn' ? 'warning' : 'error'}: ${message}\n`);
}

/** Turns flags into options. The flag `chatTemplate` is a path and the option is a text, so the caller reads the file. */
export function engineOptionsOf(
  model: string,
  flags: EngineFlags,
  more: Pick<
    EngineOptions,
    | 'servedModelName'
    | 'chatTemplate'
    | 'onProgress'
    | 'onDigestProgress'
    | 'onEvent'
    | 'seed'
    | 'loraModules'
    | 'maxLoras'
    | 'maxLoraRank'
  >,
): EngineOptions {
  const { maxNumSeqs, maxNumBatchedTokens, blockSize, numerics, attention, device } = flags;
  return {
    model,
    maxNumSeqs,
    maxNumBatchedTokens,
    targetInterTokenLatency: flags.targetInterTokenLatency,
    blockSize,
    kvCacheDtype: flags.kvCacheDtype,
    skipMemoryCheck: flags.skipMemoryCheck === true,
    ...(flags.mmap === undefined ? {} : { mmap: flags.mmap }),
    attention,
    device,
    gpuLayers: flags.gpuLayers,
    ...(numerics === undefined ? {} : { numerics }),
    enablePrefixCaching: flags.enablePrefixCaching,
    schedulingPolicy: flags.schedulingPolicy,
    maxWaiting: flags.maxWaiting,
    kvPinShare: flags.kvPinShare,
    ...(flags.maxModelLen === undefined ? {} : { maxModelLen: flags.maxModelLen }),
    ...(flags.stateCheckpointTokens === undefined ? {} : { stateCheckpointTokens: flags.stateCheckpointTokens }),
    ...(flags.kvCacheMemory === undefined ? {} : { kvCacheMemory: flags.kvCacheMemory }),
    ...(flags.pooling === undefined ? {} : { pooling: flags.pooling }),
    ...(flags.threads === undefined ? {} : { threads: flags.threads }),
    ...(flags.cpus === undefined ? {} : { cpus: flags.cpus }),
    pipelineParallelSize: flags.pipelineParallelSize,
    ...(flags.distributedExecutorBackend === undefined
      ? {}
      : { distributedExecutorBackend: flags.distributedExecutorBackend }),
    workerTimeout: flags.workerTimeout,
    ...(flags.speculativeConfig === undefined ? {} : { speculativeConfig: flags.speculativeConfig }),
    ...(flags.kvEventsConfig === undefined ? {} : { kvEventsConfig: flags.kvEventsConfig }),
    ...(flags.kvTransferConfig === undefined ? {} : { kvTransferConfig: flags.kvTransferConfig }),
    ...more,
  };
}
