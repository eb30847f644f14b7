import { defineError } from '../base/errors.ts';
import type { BlockMemory } from '../core/block-memory.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { StepPlan, StepResult } from '../core/step.ts';

/**
 * Computes steps: owns the weights of some of the model's layers (all of them, unless it is one rank of a pipeline) and
 * the pool of their KV; knows nothing of queues, prompts or text.
 *
 * `execute` is called with one plan at a time, in order; the next call comes after the former's promise is settled.
 * While it runs the event loop stays free (the graph computes on a native thread). Within a layer all KV of the step is
 * written before any of it is read, so sequences of one step may read each other's blocks in batch order.
 * A rejection means that the runner itself is broken; a request's fault never rejects.
 */
export interface Runner {
  /** Of this rank's layers. */
  readonly kvCacheSpec: KvCacheSpec;
  /** Length of a logits row. */
  readonly vocabSize: number;
  readonly stage: PipelineStage;
  /** The pool, for transfers; absent where it is not in this process's memory (a GPU's). */
  readonly blockMemory: BlockMemory | undefined;
  /** `hidden`: what the stage before has made of the same plan; absent for the first stage. */
  execute(plan: StepPlan, hidden?: HiddenStates): Promise<StageResult>;
  /** Frees native memory. Waits for a running step; idempotent. */
  close(): Promise<void>;
}

/** Which of the model's layers are computed: [firstLayer, endLayer) of `layerCount`. */
export interface PipelineStage {
  readonly firstLayer: number;
  readonly endLayer: number;
  readonly layerCount: number;
}

/** F32 `[embedding, rows]`: the residual stream between two layers, rows in the plan's order, without padding. */
export type HiddenStates = Float32Array;

/** Only the last stage samples; all others hand on hidden states. */
export interface StageResult extends StepResult {
  readonly hidden?: HiddenStates;
}

export const pipelineTooLong = defineError(
  'KVASIR_PIPELINE_TOO_LONG',
  'A pipeline of {stages} stages needs {stages} layers, and this model has {layers}. Use --pipeline-parallel-size {layers} or less.',
  400,
);

/** The stage that is a whole model. */
export const wholeModel = (layerCount: number): PipelineStage => ({ firstLayer: 0, endLayer: layerCount, layerCount });

/**
 * Layers dealt out evenly, earlier stages first: 5 layers over 2 stages are 3 and 2.
 * @throws KvasirError `pipelineTooLong` when a stage would have no layer.
 */
export function pipelineStage(rank: number, worldSize: number, layerCount: number): PipelineStage {
  if (worldSize > layerCount) throw pipelineTooLong({ stages: worldSize, layers: layerCount });
  const small = Math.floor(layerCount / worldSize);
  const larger = layerCount % worldSize;
  const firstLayer = rank * small + Math.min(rank, larger);
  return { firstLayer, endLayer: firstLayer + small + (rank < larger ? 1 : 0), layerCount };
}

/** Whether it begins with tokens, and not with hidden states. */
export const isFirstStage = ({ firstLayer }: PipelineStage): boolean => firstLayer === 0;

/** Whether it ends with logits, and not with hidden states. */
export const isLastStage = ({ endLayer, layerCount }: PipelineStage): boolean => endLayer === layerCount;

/** The model's numbers of the stage's layers. */
export const layersOf = ({ firstLayer, endLayer }: PipelineStage): number[] =>
  Array.from({ length: endLayer - firstLayer }, (_, index) => firstLayer + index);
