import { assert } from '../base/assert.ts';
import { KvasirError } from '../base/errors.ts';
import { blockCount, type TokenCount, tokenCount } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { SampledToken, SequenceFailure, SequencePlan, StepPlan, StepResult } from '../core/step.ts';
import { type ComputeDevice, type DeviceChoice, openDevice } from '../ggml/device.ts';
import type { TensorPtr } from '../ggml/ffi.ts';
import type { GgufFile } from '../ggml/gguf.ts';
import { GraphBuilder } from '../ggml/graph.ts';
import type { ModelConfig } from '../ggml/model-config.ts';
import { F16 } from '../ggml/types.ts';
import { buildDecoder, type DecoderGraph, logitsRowBytes } from './arch/decoder.ts';
import type { Attention } from './attention.ts';
import { type AttentionChoice, type AttentionOption, chooseAttention } from './attention-choice.ts';
import { type Batch, layOutBatch } from './batch.ts';
import { type KvPages, type PipelineStage, type Runner, wholeModel } from './contract.ts';
import { KvMemory, type KvType, pageBytes } from './kv-memory.ts';
import { modelFingerprint } from './model-fingerprint.ts';
import { openRowProduct } from './native/row-product.ts';
import { type ExactKernels, findExactRowRule } from './numerics.ts';
import { anyRows } from './row-rule.ts';
import { Sampler } from './sampler.ts';
import { loadWeights, type ModelWeights } from './weights.ts';

export interface GgmlRunnerOptions {
  readonly file: GgufFile;
  readonly config: ModelConfig;
  readonly device: DeviceChoice;
  readonly threads: number;
  /** `exact`: a token's KV and logits have the same bits whatever else is in the batch (CPU only). */
  readonly numerics: 'exact' | 'fast';
  readonly blockSize: TokenCount;
  /** Of K and V in the pool; default F16. */
  readonly kvType?: KvType;
  /** Bytes of the pool, rounded down to whole pages; asked for when the weights are in memory. */
  readonly kvCacheBytes: (pageBytes: number) => number;
  /** What computes attention; default `auto`. */
  readonly attention?: AttentionOption;
  /** ggml's rearranged CPU weights; on unless a test compares with plain ones. */
  readonly repack?: boolean;
  readonly onProgress?: ((loadedBytes: number, totalBytes: number) => void) | undefined;
  /** Sees each sampled row of logits, in place, before it is sampled. For tests and benches. */
  readonly onLogits?: (sequence: SequencePlan, logits: Float32Array) => void;
}

/** Where the time of all steps went, in milliseconds. */
export interface RunnerTimings {
  steps: number;
  /** Laying out the batch, building and allocating the graph, writing inputs. */
  prepareMs: number;
  /** ggml computing, from the call to its return. */
  computeMs: number;
  sampleMs: number;
}

/** Computes steps of one model on ggml, in this process. */
export class GgmlRunner implements Runner {
  readonly kvCacheSpec: KvCacheSpec;
  readonly vocabSize: number;
  readonly stage: PipelineStage;
  readonly memory: KvMemory;
  /** What computes attention, for people. */
  readonly attentionDescription: string;
  readonly timings: RunnerTimings = { steps: 0, prepareMs: 0, computeMs: 0, sampleMs: 0 };
  readonly #device: ComputeDevice;
  readonly #config: ModelConfig;
  readonly #weights: ModelWeights;
  readonly #kernels: ExactKernels;
  readonly #attention: Attention;
  readonly #graph: GraphBuilder;
  readonly #sampler: Sampler;
  readonly #onLogits: GgmlRunnerOptions['onLogits'];
  #decoder: DecoderGraph | undefined;
  #running: Promise<StepResult> | undefined;
  #isClosed: boolean = false;

  /** Reads the weights and allocates the pool. Throws what the catalogues of ggml and runner list. */
  static async open(options: GgmlRunnerOptions): Promise<GgmlRunner> {
    const { config, file } = options;
    const isExact = options.numerics === 'exact';
    const device = openDevice({ device: options.device, threads: options.threads, exact: isExact });
    let weights: ModelWeights | undefined;
    try {
      weights = await loadWeights(device, file, config, {
        repack: options.repack ?? true,
        onProgress: options.onProgress,
      });
      const kvType = options.kvType ?? F16;
      const attention = await chooseAttention(device, config, options.blockSize, options.attention ?? 'auto', {
        kvType,
      });
      // ggml's reference kernels cost fusions too, and only its attention needs them.
      if (attention.kind === 'native') device.useExactKernels(false);
      const kernels =
        isExact && device.kind === 'cpu'
          ? await findExactRowRule(device, file, weights.matrices, await openRowProduct(device))
          : { rule: anyRows };
      // Two kernels give KV two sets of bits: what one computed is not what the other would compute again.
      const numerics = isExact ? `exact ${attention.kind}` : 'fast';
      const fingerprint = await modelFingerprint(file, numerics, options.blockSize, kvType);
      return new GgmlRunner(options, device, weights, kernels, attention, fingerprint);
    } catch (error) {
      weights?.close();
      device.close();
      throw error;
    }
  }

  private constructor(
    options: GgmlRunnerOptions,
    device: ComputeDevice,
    weights: ModelWeights,
    kernels: ExactKernels,
    attention: AttentionChoice,
    fingerprint: string,
  ) {
    const { config, blockSize } = options;
    const layout = {
      type: options.kvType ?? F16,
      layerCount: config.layerCount,
      blockSize,
      headCountKv: config.headCountKv,
      headDim: config.headDim,
    };
    const poolBytes = Math.min(options.kvCacheBytes(pageBytes(layout)), largestBuffer(device));
    const pageCount = Math.max(2, Math.floor(poolBytes / pageBytes(layout)));
    this.stage = wholeModel(config.layerCount);
    this.#device = device;
    this.#config = config;
    this.#weights = weights;
    this.#kernels = kernels;
    this.memory = new KvMemory(device, layout, pageCount);
    this.#attention = attention.create(this.memory);
    this.attentionDescription = attention.description;
    this.#graph = new GraphBuilder(device);
    this.#sampler = new Sampler(config.vocabSize);
    this.#onLogits = options.onLogits;
    this.vocabSize = config.vocabSize;
    this.kvCacheSpec = {
      groups: [
        {
          kind: 'full',
          blockSize: tokenCount(blockSize),
          layers: Array.from({ length: config.layerCount }, (_, i) => i),
        },
      ],
      pageBytes: pageBytes(layout),
      pageCount: blockCount(pageCount),
      fingerprint,
    };
  }

  get kvPages(): KvPages | undefined {
    return this.#device.kind === 'cpu' ? this.memory : undefined;
  }

  /** What computes, for people: `CPU (...)`. */
  get deviceDescription(): string {
    return this.#device.description;
  }

  execute(plan: StepPlan): Promise<StepResult> {
    assert(this.#running === undefined, 'one step at a time');
    assert(!this.#isClosed, 'the runner is closed');
    this.#running = this.#run(plan).finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#running?.catch(() => undefined);
    this.#graph.close();
    this.memory.close();
    this.#weights.close();
    this.#device.close();
  }

  async #run(plan: StepPlan): Promise<StepResult> {
    const started = performance.now();
    const batch = layOutBatch(plan, this.memory, this.#kernels.rule);
    const decoder = this.#decoderFor(batch);
    decoder.writeInputs();
    const prepared = performance.now();
    await this.#graph.compute();
    const computed = performance.now();
    const { sampled, failures } = this.#sample(batch, decoder.logits);
    this.timings.steps++;
    this.timings.prepareMs += prepared - started;
    this.timings.computeMs += computed - prepared;
    this.timings.sampleMs += performance.now() - computed;
    return { stepId: plan.stepId, sampled, ...(failures.length === 0 ? {} : { failures }) };
  }

  /** The last step's graph where it fits (a GPU's scheduler wants its graphs fresh), else a new one with memory. */
  #decoderFor(batch: Batch): DecoderGraph {
    const last = this.#decoder;
    const isAlike = last?.rowCount === batch.paddedRowCount && last.outputCount === batch.outputRows.length;
    if (last !== undefined && isAlike && this.#device.kind === 'cpu' && last.rebind(batch)) return last;
    this.#decoder = undefined;
    const decoder = buildDecoder(
      this.#graph,
      this.#config,
      this.#weights,
      this.memory,
      this.#attention,
      batch,
      this.#kernels.rowProduct,
    );
    this.#graph.allocate();
    this.#decoder = decoder;
    return decoder;
  }

  #sample(batch: Batch, logits: TensorPtr | undefined): Pick<StepResult, 'sampled'> & { failures: SequenceFailure[] } {
    const sampled: (SampledToken | undefined)[] = batch.sequences.map(() => undefined);
    const failures: SequenceFailure[] = [];
    if (logits === undefined) return { sampled, failures };
    const rows = this.#logitsRows(batch, logits);
    for (const [sequence, { plan, outputIndex }] of batch.sequences.entries()) {
      if (plan.sample === undefined || outputIndex === undefined) continue;
      const row = rows.subarray(outputIndex * this.vocabSize, (outputIndex + 1) * this.vocabSize);
      this.#onLogits?.(plan, row);
      try {
        sampled[sequence] = this.#sampler.sample(row, plan.sample, plan.tokens);
      } catch (error) {
        // Values that overflow F16 are one prompt's fault; the engine and its other requests go on.
        if (!(error instanceof KvasirError)) throw error;
        failures.push({ sequence, error });
      }
    }
    return { sampled, failures };
  }

  #logitsRows(batch: Batch, logits: TensorPtr): Float32Array {
    const bytes = batch.outputCount * logitsRowBytes(this.#config);
    if (this.#device.kind === 'cpu') return new Float32Array(this.#graph.dataOf(logits, bytes));
    const rows = new Float32Array(bytes / 4);
    this.#graph.read(logits, rows);
    return rows;
  }
}

/** The pool is one tensor: on a GPU it cannot be larger than what its driver binds at once. */
function largestBuffer({ kind, native, mainBuffers }: ComputeDevice): number {
  return kind === 'cpu' ? Number.POSITIVE_INFINITY : Number(native.ggml_backend_buft_get_max_size(mainBuffers.pointer));
}
