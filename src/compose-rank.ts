/** Creates one rank of the pipeline, in the engine's process or in a worker process (`worker-main.ts`). */
import { systemClock } from './base/clock.ts';
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
import { defaultKvCacheMemory, type ResolvedEngineOptions } from './engine/options.ts';
import { loadNative } from './ggml/ffi.ts';
import { type GgufFile, readGguf, weightBytesOf } from './ggml/gguf.ts';
import { type ModelConfig, readModelConfig } from './ggml/model-config.ts';
import { digestModel, isDigestOf, type ModelDigest } from './ggml/model-digest.ts';
import { createGroup } from './kv/create-group.ts';
import { openCrc32 } from './native/crc32.ts';
import { stageOfModel, wholeModel } from './runner/contract.ts';
import { type BlockOptions, groupSpecs, kvLayout, predictionLayout } from './runner/kv-groups.ts';
import { blockBytes, kvTypes } from './runner/kv-memory.ts';
import type { GgmlRunnerOptions } from './runner/runner-options.ts';
import { readSpeculativeConfig } from './scheduler/speculation/options.ts';
import type { LocalRank } from './worker/rank.ts';
import { InlineRank } from './worker/rank-inline.ts';
import type { WorkerHooks } from './worker/worker-serve.ts';

/** The arguments for opening a rank: plain data, which can be sent to a worker process. */
export interface RankSetup {
  readonly options: RankOptions;
  readonly modelName: string;
  readonly rank: number;
  readonly worldSize: number;
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
  Object.fromEntries(rankOptionNames.map((name) => [name, options[name]])) as unknown as RankOptions;

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
  const { options, rank, worldSize, blockCount, modelName } = setup;
  return {
    file,
    modelName,
    config: model,
    stage: stageOfModel(model, rank, worldSize),
    device: options.device,
    threads: options.threads,
    cpus: options.cpus,
    numerics: options.numerics,
    rowsMax: options.maxNumBatchedTokens,
    attention: options.attention,
    blockSize: tokenCount(options.blockSize),
    stateCheckpointTokens: options.stateCheckpointTokens,
    kvType: kvTypes[options.kvCacheDtype],
    kvCacheBytes: (bytes) => (blockCount === undefined ? poolBytes(options, model, bytes, 0) : blockCount * bytes),
    onProgress,
    onEvent: event,
    digest,
    timers: systemTimers,
    predicts: predicts(options, model),
  };
}

/** Whether the last rank has a prediction layer. Drafts of models with states cannot be verified, so none are made. */
const predicts = ({ speculativeConfig }: RankOptions, { states }: ModelConfig): boolean =>
  speculativeConfig !== undefined && states === undefined && readSpeculativeConfig(speculativeConfig).method === 'mtp';

/**
 * The number of blocks on each rank, if there are several ranks or a replaced worker must get the same number. A block
 * has a part on every rank, so the memory for KV is divided by the bytes of all parts. It is known before any rank is
 * opened.
 */
export function blockCountOf(options: RankOptions, file: GgufFile, model: ModelConfig, worldSize: number): number {
  const blocks = blockOptionsOf(options);
  let bytes = 0;
  for (let rank = 0; rank < worldSize; rank++) {
    const layout = kvLayout(model, stageOfModel(model, rank, worldSize), blocks);
    bytes += blockBytes(layout);
    if (rank === worldSize - 1 && predicts(options, model)) bytes += blockBytes(predictionLayout(layout));
  }
  return Math.max(
    2,
    Math.floor(poolBytes(options, model, bytes, weightBytesOf(file, predicts(options, model))) / bytes),
  );
}

/**
 * The default: half of the memory that the weights leave, but not more than all running requests can fill. `unreadBytes`
 * of weights are not in memory yet.
 */
function poolBytes(options: RankOptions, model: ModelConfig, bytesPerBlock: number, unreadBytes: number): number {
  if (model.isEncoder === true) {
    // The texts of one step, each of which may leave a part of a block unused.
    return (1 + Math.ceil(options.maxNumBatchedTokens / options.blockSize) + options.maxNumSeqs) * bytesPerBlock;
  }
  if (options.kvCacheMemory !== undefined) return options.kvCacheMemory;
  const longest = options.maxModelLen ?? model.contextLength;
  const groups = groupSpecs(model, wholeModel(model.layerCount), blockOptionsOf(options));
  // A window or state group also has the blocks of the tokens that one step computes.
  const blocksPerRequest = groups.reduce((sum, group) => {
    const most = Math.ceil(longest / group.blockSize);
    const atOnce = createGroup(group).blocksMax(longest) + Math.ceil(options.maxNumBatchedTokens / group.blockSize);
    return sum + Math.min(most, atOnce);
  }, 0);
  return Math.min(defaultKvCacheMemory(unreadBytes), (1 + options.maxNumSeqs * blocksPerRequest) * bytesPerBlock);
}

const blockOptionsOf = ({ blockSize, kvCacheDtype, stateCheckpointTokens }: RankOptions): BlockOptions => ({
  blockSize,
  kvType: kvTypes[kvCacheDtype],
  checkpointTokens: stateCheckpointTokens,
});

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
