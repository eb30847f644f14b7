import { defineError } from '../base/errors.ts';
import type { BlockMemory } from '../core/block-memory.ts';
import type { RequestId } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { DraftRequest, StepPlan, StepResult } from '../core/step.ts';
import type { AdapterSource } from '../ggml/lora-adapter.ts';
import type { ModelConfig } from '../ggml/model-config.ts';

/**
 * Computes steps. Owns the weights of some of the model's layers (of all layers, unless it is one pipeline rank) and
 * the pool of their KV. Knows nothing of queues, prompts or text.
 *
 * `execute` is called with one plan at a time, in order, after the promise of the last call is settled. The event loop
 * stays free while the graph computes, because ggml is called on another thread. Within a layer all KV of the step is
 * written before any KV is read, so sequences of one step may read each other's blocks.
 * If `execute` rejects, the runner cannot be used any more; an error of one request is a failure in the result.
 */
export interface Runner {
  /** The KV of this rank's layers. */
  readonly kvCacheSpec: KvCacheSpec;
  /** Length of a logits row. */
  readonly vocabSize: number;
  readonly stage: PipelineStage;
  /** The pool, for transfers; undefined if it is not in this process's memory (on a GPU). */
  readonly blockMemory: BlockMemory | undefined;
  /** Absent in runners that compute no LoRA adapters. */
  readonly adapters?: RunnerAdapters;
  /** `hidden`: the result of the previous stage for the same plan; undefined for the first stage. */
  execute(plan: StepPlan, hidden?: HiddenStates): Promise<StageResult>;
  /**
   * Only of the last stage, with a prediction layer: up to `count` tokens after each text; fewer or none where the layer has not read the end
   * of the text. Called between steps. A rejection is as one of `execute`.
   */
  draft?(requests: readonly DraftRequest[], count: number): Promise<readonly Int32Array[]>;
  /** Requests of `StepPlan.released`. Called before the next step, also if the stage computes nothing in it. */
  release?(requests: readonly RequestId[]): void;
  /** Frees native memory. Waits for a running step; idempotent. */
  close(): Promise<void>;
}

/**
 * The LoRA adapters that a runner has. A plan may have only these. They can be loaded and unloaded while a step runs that does
 * not use them.
 */
export interface RunnerAdapters {
  has(digest: string): boolean;
  /** Does nothing if it is loaded. Throws `adapterUnusable`, `outOfNativeMemory`, and errors of reading the file. */
  load(source: AdapterSource): Promise<void>;
  /** No later plan has it. */
  unload(digest: string): Promise<void>;
}

/** The layers that a stage computes: [firstLayer, endLayer) of `layerCount`. */
export interface PipelineStage {
  readonly firstLayer: number;
  readonly endLayer: number;
  readonly layerCount: number;
}

/** F32 `[embedding, rows]`: the residual stream between two layers, rows in the plan's order, without padding. */
export type HiddenStates = Float32Array;

/** Only the last stage samples; the other stages return hidden states. */
export interface StageResult extends StepResult {
  readonly hidden?: HiddenStates;
}

export const pipelineTooLong = defineError(
  'KVASIR_PIPELINE_TOO_LONG',
  'The layers of this model can be divided among {layers} stages at most, and the pipeline has {stages}. Use --pipeline-parallel-size {layers} or less.',
  400,
);

/** The only stage of a model without a pipeline. */
export const wholeModel = (layerCount: number): PipelineStage => ({ firstLayer: 0, endLayer: layerCount, layerCount });

/**
 * Splits layers evenly, and earlier stages get the remainder: 5 layers in 2 stages are 3 and 2.
 * @throws KvasirError `pipelineTooLong` if a stage would have no layer.
 */
export function pipelineStage(rank: number, worldSize: number, layerCount: number): PipelineStage {
  if (worldSize > layerCount) throw pipelineTooLong({ stages: worldSize, layers: layerCount });
  const small = Math.floor(layerCount / worldSize);
  const larger = layerCount % worldSize;
  const firstLayer = rank * small + Math.min(rank, larger);
  return { firstLayer, endLayer: firstLayer + small + (rank < larger ? 1 : 0), layerCount };
}

type DivisibleModel = Pick<ModelConfig, 'layerCount' | 'sharedKvFrom'>;

/**
 * The last layer with which a stage can begin. The last layers of some models read the KV of layers just before them, so the last
 * stage has all of these layers, and at least the two whose KV they read.
 */
export const lastStageStart = ({ layerCount, sharedKvFrom }: DivisibleModel): number =>
  sharedKvFrom === undefined ? layerCount - 1 : sharedKvFrom - 2;

/** The stage of a model in a pipeline of about equal stages. */
export function stageOfModel(model: DivisibleModel, rank: number, worldSize: number): PipelineStage {
  const { layerCount } = model;
  const stage = pipelineStage(rank, worldSize, layerCount);
  if (worldSize === 1) return stage;
  const divisible = lastStageStart(model);
  const last = pipelineStage(worldSize - 1, worldSize, layerCount);
  if (last.firstLayer <= divisible) return stage;
  if (divisible < worldSize - 1) throw pipelineTooLong({ stages: worldSize, layers: divisible + 1 });
  if (rank === worldSize - 1) return { ...last, firstLayer: divisible };
  return { ...pipelineStage(rank, worldSize - 1, divisible), layerCount };
}

/** A model in two stages, of which the second begins with this layer. */
export const stagesFrom = (firstLayer: number, layerCount: number): readonly [PipelineStage, PipelineStage] => [
  { firstLayer: 0, endLayer: firstLayer, layerCount },
  { firstLayer, endLayer: layerCount, layerCount },
];

/** Whether the stage's input is tokens, not hidden states. */
export const isFirstStage = ({ firstLayer }: PipelineStage): boolean => firstLayer === 0;

/** Whether the stage's result is logits, not hidden states. */
export const isLastStage = ({ endLayer, layerCount }: PipelineStage): boolean => endLayer === layerCount;

/** The indices in the model of the stage's layers. */
export const layersOf = ({ firstLayer, endLayer }: PipelineStage): number[] =>
  Array.from({ length: endLayer - firstLayer }, (_, index) => firstLayer + index);

/** The time of all steps by phase, in milliseconds. */
export interface RunnerTimings {
  steps: number;
  /** Laying out the batch, building and allocating the graph, writing inputs. */
  prepareMs: number;
  /** ggml computing, from the call to its return. */
  computeMs: number;
  sampleMs: number;
}
