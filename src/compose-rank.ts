/** Creates one rank of the pipeline, in the engine's process or in a worker process (`worker-main.ts`). */
import { byEntries } from './base/by-name.ts';
import { systemClock } from './base/clock.ts';
import { poolBytes, predicts, roomFor } from './compose-placement.ts';
import type {
  KvConnector,
  KvIdentity,
  KvIdentityGroup,
  KvTransferConfig,
  WorkerConnector,
} from './connector/connector.ts';
import { createConnector } from './connector/registry.ts';
import { systemTimers } from './connector/system-timers.ts';
import { StagedWorker } from './connector/transfer/staged-worker.ts';
import type { DeviceBlocks } from './core/block-memory.ts';
import { type BlockId, tokenCount } from './core/ids.ts';
import type { KvCacheSpec, KvGroupSpec } from './core/kv-spec.ts';
import type { ResolvedEngineOptions } from './engine/options.ts';
import { loadNative } from './ggml/ffi.ts';
import { type GgufFile, readGguf } from './ggml/gguf.ts';
import { type ModelConfig, readModelConfig } from './ggml/model-config.ts';
import { digestModel, isDigestOf, type ModelDigest } from './ggml/model-digest.ts';
import { openCrc32 } from './native/crc32.ts';
import type { PipelineStage } from './runner/contract.ts';
import { kvTypes } from './runner/kv-memory.ts';
import type { GgmlRunnerOptions } from './runner/runner-options.ts';
import type { LocalRank } from './worker/rank.ts';
import { InlineRank } from './worker/rank-inline.ts';
import type { WorkerHooks } from './worker/worker-serve.ts';

/** The arguments for opening a rank: plain data, which can be sent to a worker process. */
export interface RankSetup {
  readonly options: RankOptions;
  readonly modelName: string;
  readonly rank: number;
  readonly worldSize: number;
  readonly stage: PipelineStage;
  /** Of a model that is divided among devices (`placementIdentity`). */
  readonly placement?: string;
  /** Absent for a single rank, which measures the memory that the weights leave. */
  readonly blockCount?: number;
  readonly transfer?: KvTransferConfig;
  /** The digest of the model file, for a rank in another process; ignored if the file has changed. */
  readonly digest?: ModelDigest;
}

const rankOptionNames = [
  'model',
  'device',
  'threads',
  'cpus',
  'numerics',
  'attention',
  'mmap',
  'blockSize',
  'stateCheckpointTokens',
  'kvCacheDtype',
  'kvCacheMemory',
  'maxModelLen',
  'maxNumSeqs',
  'maxNumBatchedTokens',
  'speculativeConfig',
] as const satisfies readonly (keyof ResolvedEngineOptions)[];
/** The part of an engine's options that concerns its ranks. */
export type RankOptions = Pick<ResolvedEngineOptions, (typeof rankOptionNames)[number]>;

export const rankOptionsOf = (options: ResolvedEngineOptions): RankOptions =>
  byEntries(rankOptionNames.map((name) => [name, options[name]])) as unknown as RankOptions;

/** The objects that a process creates once for all of its ranks. */
export interface RankContext extends WorkerHooks {
  readonly file: GgufFile;
  readonly model: ModelConfig;
  readonly connector?: KvConnector;
  /** The digest of the model file; present if there is a connector. */
  readonly digest?: Promise<ModelDigest>;
}

/** Reads the files that the setup names and opens the rank, in a worker process. */
export async function openRankAlone(setup: RankSetup, hooks: WorkerHooks): Promise<LocalRank> {
  const connector = setup.transfer === undefined ? {} : { connector: await createConnector(setup.transfer) };
  const file = await readGguf(setup.options.model);
  const digest = setup.transfer === undefined ? {} : { digest: digestAgain(file, setup.digest, hooks) };
  return openRank(setup, {
    ...hooks,
    ...connector,
    ...digest,
    file,
    model: readModelConfig(file, setup.options.maxModelLen),
  });
}

/** The model file may have changed when a replacement of a dead worker starts. */
function digestAgain(file: GgufFile, known: ModelDigest | undefined, { event }: WorkerHooks): Promise<ModelDigest> {
  if (known !== undefined && isDigestOf(known, file)) return Promise.resolve(known);
  const digest = digestModel(file, { event });
  // The rank awaits it after reading the weights; until then a rejection must not be unhandled.
  digest.catch(() => undefined);
  return digest;
}

/** @throws KvasirError for missing native libraries, too little memory, or a connector on a device that it cannot reach. */
export async function openRank(setup: RankSetup, context: RankContext): Promise<LocalRank> {
  // An engine whose ranks are other processes needs none of the runner's modules.
  const { GgmlRunner } = await import('./runner/ggml-runner.ts');
  const runner = await GgmlRunner.open(runnerOptions(setup, context));
  try {
    const identity = identityOf(runner.kvCacheSpec, setup);
    let side: WorkerConnector | undefined;
    if (context.connector !== undefined) {
      const crc32 = await openCrc32(loadNative(), { event: context.event });
      side = await context.connector.openWorker({
        clock: systemClock,
        timers: systemTimers,
        wake: context.wake,
        ...(context.event === undefined ? {} : { event: context.event }),
        identity,
        ...(crc32 === undefined ? {} : { crc32 }),
      });
      if (runner.blockMemory === undefined) side = new StagedWorker(side, runner.deviceBlocks);
      else side.registerKvCaches(runner.blockMemory);
    }
    return Object.assign(new InlineRank(runner, identity, side), {
      attentionDescription: runner.attentionDescription,
      processId: process.pid,
      timings: () => runner.timings,
      overwrite: side === undefined ? overwriteIn(runner.deviceBlocks) : undefined,
    });
  } catch (error) {
    await runner.close();
    throw error;
  }
}

/** Finite in every type of KV: a masked token with this KV changes no other token. */
const OVERWRITTEN = 0x3b;

function overwriteIn(memory: DeviceBlocks): (blocks: readonly BlockId[]) => void {
  const bytes = new Uint8Array(memory.blockBytes).fill(OVERWRITTEN);
  return (blocks) => {
    for (const block of blocks) memory.write(block, bytes);
  };
}

function runnerOptions(setup: RankSetup, { file, model, onProgress, event, digest }: RankContext): GgmlRunnerOptions {
  const { options, stage, placement, blockCount, modelName } = setup;
  return {
    file,
    modelName,
    config: model,
    stage,
    placement,
    device: options.device,
    threads: options.threads,
    cpus: options.cpus,
    numerics: options.numerics,
    rowsMax: options.maxNumBatchedTokens,
    sequencesMax: options.maxNumSeqs,
    tokensMax: options.maxModelLen,
    attention: options.attention,
    mmap: options.mmap,
    blockSize: tokenCount(options.blockSize),
    stateCheckpointTokens: options.stateCheckpointTokens,
    kvType: kvTypes[options.kvCacheDtype],
    kvCacheBytes: (bytes, gpu) =>
      blockCount === undefined ? poolBytes(options, model, bytes, roomFor(0, gpu)) : blockCount * bytes,
    onProgress,
    onEvent: event,
    digest,
    timers: systemTimers,
    predicts: predicts(options, model),
  };
}

function identityOf(spec: KvCacheSpec, { modelName, rank, worldSize, options }: RankSetup): KvIdentity {
  const { fingerprint, blockBytes: bytes, groups } = spec;
  return {
    fingerprint,
    modelName,
    dtype: options.kvCacheDtype,
    rank,
    worldSize,
    blockBytes: bytes,
    groups: groups.map(identityGroup),
  };
}

const identityGroup = (group: KvGroupSpec): KvIdentityGroup => {
  const { blockSize, layers } = group;
  if (group.kind === 'full') return { blockSize, layers };
  return { blockSize, layers, readsBack: group.kind === 'window' ? group.window - 1 : 1 };
};
