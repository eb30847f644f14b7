import { assert } from '../base/assert.ts';
import type { Timers } from '../base/timers.ts';
import type { TokenCount } from '../core/ids.ts';
import type { DeviceChoice, GpuMemory } from '../ggml/device.ts';
import type { GgufFile } from '../ggml/gguf.ts';
import type { ModelConfig } from '../ggml/model-config.ts';
import type { ModelDigest } from '../ggml/model-digest.ts';
import { F16 } from '../ggml/types.ts';
import type { AttentionOption } from './attention/attention-choice.ts';
import { type PipelineStage, wholeModel } from './contract.ts';
import type { BlockOptions } from './kv-groups.ts';
import type { KvType } from './kv-memory.ts';
import type { LogitsObserver } from './sampling/batch-sampler.ts';

export interface GgmlRunnerOptions {
  readonly file: GgufFile;
  readonly config: ModelConfig;
  /** The layers that this runner computes; default: all. */
  readonly stage?: PipelineStage;
  /** Which layers are on which device, if the model is divided among devices: the same text for all stages. */
  readonly placement?: string | undefined;
  readonly device: DeviceChoice;
  readonly threads: number;
  /** The cores of the compute threads (Linux only); default: all that the process may use. */
  readonly cpus?: readonly number[] | undefined;
  /** `exact`: a token's KV and logits have the same bits in any batch. Default: `defaultNumerics`. */
  readonly numerics?: 'exact' | 'fast' | undefined;
  /** The largest batch of a step, for the probe of exact numerics and for the memory of steps on a GPU; default 512. */
  readonly rowsMax?: number;
  /** The most sequences of a step, for the memory of steps on a GPU; default 64. */
  readonly sequencesMax?: number;
  /** The longest sequence, for the memory of steps on a GPU; default: the model's context. */
  readonly tokensMax?: number | undefined;
  readonly blockSize: TokenCount;
  /** Tokens between two checkpoints of states, if the model has states; default: `BlockOptions.checkpointTokens`. */
  readonly stateCheckpointTokens?: number | undefined;
  /** Of K and V in the pool; default F16. */
  readonly kvType?: KvType;
  /**
   * Bytes of the pool, rounded down to whole blocks. Called after the weights are in memory, with the bytes of a block
   * in this stage, and on a GPU with its memory, if that is known. All stages of a model must have equally many blocks.
   */
  readonly kvCacheBytes: (blockBytes: number, gpu?: GpuMemory) => number;
  /** The implementation of attention; default `auto`. */
  readonly attention?: AttentionOption;
  /** Whether weights are mapped (`canMapWeights`); default: copied. */
  readonly mmap?: boolean | undefined;
  /** ggml's repacked CPU weights; default: on. Tests compare with plain weights. */
  readonly repack?: boolean;
  /** Kvasir's kernels for matmuls and for layers with states; default: on. */
  readonly matmulKernels?: boolean;
  /** Called if this machine could have a kernel but works without; at most once per sentence. */
  readonly onEvent?: ((message: string) => void) | undefined;
  /**
   * Of the whole file; awaited after the weights are in memory. Undefined if KV does not leave this machine: then the
   * fingerprint is valid only here.
   */
  readonly digest?: Promise<ModelDigest> | undefined;
  readonly onProgress?: ((loadedBytes: number, totalBytes: number) => void) | undefined;
  /** On a CPU, the pool's memory is mapped before its first use while the machine is idle. Without timers it is not. */
  readonly timers?: Timers | undefined;
  /** Whether the last stage drafts with the prediction layer, which `checkPrediction` has checked; default: no. */
  readonly predicts?: boolean;
  /** For errors. */
  readonly modelName?: string | undefined;
  /** For tests and benches. */
  readonly onLogits?: LogitsObserver;
  /** For tests: called with the logits of each draft of the prediction layer. */
  readonly onDraftLogits?: (logits: Float32Array) => void;
}

/** On a GPU, exact numerics cost more than elsewhere: prompts are computed row by row. */
export const defaultNumerics = { cpu: 'exact', gpu: 'fast' } as const;

export const blockOptionsOf = ({
  blockSize,
  kvType = F16,
  stateCheckpointTokens,
}: GgmlRunnerOptions): BlockOptions => ({
  blockSize,
  kvType,
  checkpointTokens: stateCheckpointTokens,
});

export function stageOf({ stage, config }: GgmlRunnerOptions): PipelineStage {
  if (stage === undefined) return wholeModel(config.layerCount);
  assert(stage.layerCount === config.layerCount, 'a stage of a model with equally many layers');
  assert(stage.firstLayer >= 0 && stage.firstLayer < stage.endLayer, 'a stage has a layer');
  assert(stage.endLayer <= stage.layerCount, 'a stage lies within the model');
  return stage;
}
