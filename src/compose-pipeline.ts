/** Opens all ranks of an engine, in this process or in worker processes. */
import { fileURLToPath } from 'node:url';
import { systemClock } from './base/clock.ts';
import { entryPoint } from './base/package-files.ts';
import { checkMemory, mappingNote } from './compose-memory.ts';
import {
  blockCountOf,
  describePlacement,
  type Placement,
  placeLayers,
  placementIdentity,
} from './compose-placement.ts';
import { openRank, type RankSetup, rankOptionsOf } from './compose-rank.ts';
import type { KvConnector, KvTransferConfig } from './connector/connector.ts';
import { hostTierBytes } from './connector/offloading/host-bytes.ts';
import type { EngineEvent } from './engine/contract.ts';
import type { LoadProgress, ResolvedEngineOptions } from './engine/options.ts';
import { findGpu } from './ggml/device.ts';
import type { GgufFile } from './ggml/gguf.ts';
import type { ModelConfig } from './ggml/model-config.ts';
import type { ModelDigest } from './ggml/model-digest.ts';
import type { OpenedRank } from './worker/rank.ts';
import type { WorkerDeath } from './worker/rank-process.ts';
import { type RestartPolicy, restartDefaults } from './worker/restart-budget.ts';

export interface PipelineContext {
  readonly file: GgufFile;
  readonly model: ModelConfig;
  readonly modelName: string;
  readonly transfer?: KvTransferConfig;
  readonly connector?: KvConnector;
  /** The digest of the model file; present if there is a connector. */
  readonly digest?: Promise<ModelDigest>;
  readonly restarts?: RestartPolicy;
  /** Weights of a draft model, which is opened later. */
  readonly draftBytes: number;
  wake(): void;
}

/** The ranks of an engine. */
export interface OpenedRanks {
  readonly ranks: readonly OpenedRank[];
  /** `describePlacement` */
  readonly placement: string | undefined;
}

/** Opens all ranks in parallel. If one fails, the others are closed. */
export async function openRanks(options: ResolvedEngineOptions, context: PipelineContext): Promise<OpenedRanks> {
  const isApart = (options.distributedExecutorBackend ?? (options.pipelineParallelSize > 1 ? 'mp' : 'uni')) === 'mp';
  const placed = placeLayers(options, context, findGpu);
  const mmap = checkMemory(options, { ...context, hostTierBytes: hostTierBytes(context.transfer) }, placed);
  const note = mappingNote(options, mmap);
  if (note !== undefined) options.onEvent?.({ level: 'warn', message: note, fields: {} });
  const worldSize = placed.stages.length;
  const progress = new SummedProgress(worldSize, options.onProgress);
  // The file is hashed here, before worker processes start; otherwise each of them would hash it.
  const digest = isApart ? await context.digest : undefined;
  const setups = setupsOf({ ...options, mmap }, context, placed, isApart).map((setup) => ({
    ...setup,
    ...(digest && { digest }),
  }));
  const event = onceEach((message) => options.onEvent?.({ level: 'warn', message, fields: {} }));
  const settled = await Promise.allSettled(
    setups.map((setup) => {
      const onProgress: LoadProgress = (loaded, total) => progress.report(setup.rank, loaded, total);
      if (!isApart) return openRank(setup, { ...context, onProgress, event });
      const name = `rank ${setup.rank} of ${worldSize}`;
      return openProcess(setup, { name, onProgress, event }, context, options);
    }),
  );
  const ranks = settled.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
  const failed = settled.find((outcome) => outcome.status === 'rejected');
  if (failed === undefined) return { ranks, placement: describePlacement(placed) };
  await Promise.all(ranks.map((rank) => rank.close({ timeoutMs: 0 })));
  throw failed.reason;
}

function setupsOf(
  options: ResolvedEngineOptions,
  context: PipelineContext,
  placed: Placement,
  isApart: boolean,
): RankSetup[] {
  const { modelName, transfer } = context;
  const { stages } = placed;
  const rankOptions = rankOptionsOf(options);
  const placement = placementIdentity(placed);
  const isFixed = isApart || stages.length > 1;
  const common = {
    modelName,
    worldSize: stages.length,
    ...(placement === undefined ? {} : { placement }),
    ...(isFixed ? { blockCount: blockCountOf(rankOptions, context, placed) } : {}),
    ...(transfer === undefined ? {} : { transfer }),
  };
  return stages.map(({ stage, device }, rank) => ({ ...common, rank, stage, options: { ...rankOptions, device } }));
}

interface ProcessHooks {
  /** The rank's name in messages. */
  readonly name: string;
  readonly onProgress: LoadProgress;
  readonly event: (message: string) => void;
}

async function openProcess(
  setup: RankSetup,
  { name, onProgress, event }: ProcessHooks,
  context: PipelineContext,
  { onEvent, workerTimeout }: ResolvedEngineOptions,
): Promise<OpenedRank> {
  const { ProcessRank } = await import('./worker/rank-process.ts');
  return ProcessRank.open({
    name,
    entry: fileURLToPath(entryPoint('src/worker-main')),
    setup,
    timeoutMs: workerTimeout > 0 ? workerTimeout * 1000 : Infinity,
    clock: systemClock,
    restarts: context.restarts ?? restartDefaults,
    onProgress,
    onEvent: event,
    onWake: () => context.wake(),
    onDeath: (death) => onEvent?.(eventOf(death)),
  });
}

const toldMax = 1000;

/** Forwards each message once: all ranks of a machine, and their replacements, send the same messages. Forgets the oldest messages. */
function onceEach(tell: (message: string) => void): (message: string) => void {
  const told = new Set<string>();
  return (message) => {
    if (told.has(message)) return;
    told.add(message);
    const [oldest] = told;
    if (told.size > toldMax && oldest !== undefined) told.delete(oldest);
    tell(message);
  };
}

const eventOf = ({ rank, processId, reason, message, isGivenUp }: WorkerDeath): EngineEvent => ({
  level: isGivenUp ? 'error' : 'warn',
  message,
  fields: { rank, processId, reason },
});

/** Sums the loaded bytes of all ranks; reports only after every rank has reported its total. */
class SummedProgress {
  readonly #loaded: (number | undefined)[];
  readonly #totals: number[];
  readonly #onProgress: LoadProgress | undefined;

  constructor(ranks: number, onProgress: LoadProgress | undefined) {
    this.#loaded = new Array<undefined>(ranks).fill(undefined);
    this.#totals = new Array<number>(ranks).fill(0);
    this.#onProgress = onProgress;
  }

  report(rank: number, loaded: number, total: number): void {
    this.#loaded[rank] = loaded;
    this.#totals[rank] = total;
    let sum = 0;
    for (const bytes of this.#loaded) {
      if (bytes === undefined) return;
      sum += bytes;
    }
    this.#onProgress?.(
      sum,
      this.#totals.reduce((all, bytes) => all + bytes, 0),
    );
  }
}
