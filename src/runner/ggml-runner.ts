import { allSettled } from '../base/all-settled.ts';
import { assert, assertDefined } from '../base/assert.ts';
import type { BlockMemory, DeviceBlocks } from '../core/block-memory.ts';
import { blockCount, type RequestId } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import { areSameSpans, type DraftRequest, type Span, type StepPlan } from '../core/step.ts';
import { withAllocationFailure } from '../ggml/allocation-failure.ts';
import { type ComputeDevice, gpuMemoryOf, openDevice } from '../ggml/device.ts';
import type { TensorPtr } from '../ggml/ffi.ts';
import type { GgufTensor } from '../ggml/gguf.ts';
import type { GraphBuilder } from '../ggml/graph.ts';
import { F16 } from '../ggml/types.ts';
import { openPoolWatcher } from '../native/pool-watcher.ts';
import { AdapterStore } from './adapters/adapter-store.ts';
import { type DecoderGraph, type DecoderParts, logitsOf } from './arch/decoder.ts';
import { type AttentionChoice, chooseAttention } from './attention/attention-choice.ts';
import { attentionLayers } from './attention-layers.ts';
import { type Batch, layOutBatch } from './batch.ts';
import {
  type HiddenStates,
  type PipelineStage,
  type Runner,
  type RunnerTimings,
  type StageResult,
  wholeModel,
} from './contract.ts';
import { DecoderGraphs } from './decoder-graphs.ts';
import { groupSpecs, kvLayouts, layerGroups, layersKv, predictionLayout, usedBytes } from './kv-groups.ts';
import { blockBytes, KvMemory } from './kv-memory.ts';
import { KvMemoryAhead } from './kv-memory-ahead.ts';
import { largestStep } from './largest-step.ts';
import { findExactKernels } from './matmul/exact-kernels.ts';
import type { ExactKernels } from './matmul/exact-row-rule.ts';
import { openRowMatmul } from './matmul/row-matmul.ts';
import { anyRows, type RowRule } from './matmul/row-rule.ts';
import { openTiledMatmul, type TiledMatmul } from './matmul/tiled-matmul.ts';
import { openWeightedSum, type WeightedSum } from './matmul/weighted-sum.ts';
import { mixerShapes } from './mixer/mixer-shapes.ts';
import { type Mixers, stateElements } from './mixer/mixers.ts';
import { ggmlMixers, type MixerChoice, openMixers } from './mixer/open-mixers.ts';
import { digestOf, modelFingerprint } from './model-fingerprint.ts';
import { modelConstants, numericsIdentity } from './numerics-identity.ts';
import { type HeadRotation, openHeadRotation, ropesOf } from './operations/head-rotation.ts';
import { openRowOperations, type RowOperations } from './operations/row-operations.ts';
import { otherMatrices } from './own-matmuls.ts';
import { createPredictor } from './prediction/create-predictor.ts';
import { loadPredictionWeights } from './prediction/prediction-weights.ts';
import type { Predictor } from './prediction/predictor.ts';
import { blockOptionsOf, defaultNumerics, type GgmlRunnerOptions, stageOf } from './runner-options.ts';
import { BatchSampler, type BestOfRow } from './sampling/batch-sampler.ts';
import { BestTokens } from './sampling/best-tokens.ts';
import { scriptPasses } from './sampling/logits-candidates.ts';
import { type NativeLogitsPasses, openLogitsPasses } from './sampling/logits-passes.ts';
import { PromptHeads } from './sampling/prompt-heads.ts';
import { promptResults } from './sampling/prompt-results.ts';
import { StateTables } from './states/layer-states.ts';
import { clearUnusedPlaces, type UsedGroup } from './unused-places.ts';
import type { PlacedMatrix } from './weight-store.ts';
import { loadWeights, type ModelWeights } from './weights.ts';

/** The parts of a runner, which owns them. */
interface RunnerParts {
  readonly device: ComputeDevice;
  readonly weights: ModelWeights;
  readonly prediction: ModelWeights | undefined;
  readonly kernels: ExactKernels & {
    readonly tiles: TiledMatmul | undefined;
    readonly weightedSum: WeightedSum | undefined;
    readonly passes: NativeLogitsPasses | undefined;
    readonly operations: RowOperations | undefined;
    readonly headRotation: HeadRotation | undefined;
  };
  readonly attention: AttentionChoice;
  /** Of a model with states. */
  readonly mixers: Mixers | undefined;
  readonly identity: Pick<KvCacheSpec, 'fingerprint' | 'numerics'>;
}

/** A chunk of which the layers before `nextLayer` are computed. */
interface ChunkByLayers {
  readonly requestId: RequestId;
  readonly spans: readonly Span[];
  readonly nextLayer: number;
  readonly hidden: HiddenStates;
}

/** Computes steps of a model, or of one stage of a model, on ggml, in this process. */
export class GgmlRunner implements Runner {
  readonly kvCacheSpec: KvCacheSpec;
  readonly vocabSize: number;
  readonly stage: PipelineStage;
  readonly memory: KvMemory;
  /** The implementation of attention, for people. */
  readonly attentionDescription: string;
  readonly adapters: AdapterStore;
  readonly timings: RunnerTimings = { steps: 0, prepareMs: 0, computeMs: 0, sampleMs: 0 };
  readonly #device: ComputeDevice;
  readonly #weights: ModelWeights;
  readonly #rowRule: RowRule;
  readonly #operations: RowOperations | undefined;
  readonly #graphs: DecoderGraphs;
  readonly #parts: Omit<DecoderParts, 'graph'>;
  /** Only the last stage may have one. */
  readonly #predictor: Predictor | undefined;
  readonly #usedGroups: readonly UsedGroup[];
  readonly #memoryAhead: KvMemoryAhead | undefined;
  /** Only the last stage has one. */
  readonly #sampler: BatchSampler | undefined;
  /** The chunk of a prompt that is computed a few layers at a time. */
  #chunk: ChunkByLayers | undefined;
  /** For requests that ask for results of their prompts; made for the first of them. */
  #promptHeads: PromptHeads | undefined;
  #running: Promise<unknown> | undefined;
  #isClosed: boolean = false;

  /** Reads the weights and allocates the pool. Throws errors of the catalogues of ggml and runner. */
  static async open(options: GgmlRunnerOptions): Promise<GgmlRunner> {
    const { config, file, threads, rowsMax = 512 } = options;
    const compile = { event: options.onEvent };
    const barrier = await openPoolWatcher(options, compile);
    const device = openDevice({ device: options.device, threads, exact: options.numerics !== 'fast', barrier });
    const isExact = (options.numerics ?? defaultNumerics[device.kind]) === 'exact';
    let weights: ModelWeights | undefined;
    let prediction: ModelWeights | undefined;
    try {
      // The thread starts while the weights are read.
      const thread = device.computeThread().started();
      thread.catch(() => undefined);
      // The types of the whole model, not only of this stage's layers, because all stages must have the same
      // fingerprint.
      const types = [...file.tensors.values()].map(({ type }) => type.name);
      const tiles = options.matmulKernels === false ? undefined : await openTiledMatmul(device, types, compile);
      const placement = {
        map: options.mmap === true,
        repack: options.repack ?? true,
        keepPlain: (matrix: GgufTensor) => tiles?.fits(matrix) === true,
      };
      const stage = stageOf(options);
      weights = await loadWeights(device, file, config, { ...placement, stage, onProgress: options.onProgress });
      const { head } = weights;
      if (options.predicts === true && head !== undefined)
        prediction = await loadPredictionWeights(device, file, config, { ...placement, model: { ...weights, head } });
      const kvType = options.kvType ?? F16;
      const [attention] = await allSettled([
        chooseAttention(device, {
          ...compile,
          option: options.attention ?? 'auto',
          headCount: config.headCount,
          layouts: [...new Set(kvLayouts(config, wholeModel(config.layerCount), blockOptionsOf(options)))],
          hasTwoSidedWindows: config.isEncoder === true && config.slidingWindow !== undefined,
          isExact,
        }),
        tiles?.takeAll(weights),
        prediction && tiles?.takeAll(prediction),
      ]);
      // On a CPU, ggml's attention needs its reference kernels for fast numerics too. Its fastest kernel multiplies
      // masked values by 0, so a NaN would spread to earlier tokens, whose blocks other requests share.
      // Its other kernels multiply several rows of an expert in IQ4_XS together, with other bits than a row alone.
      const hasSuchExperts = [...file.tensors.values()].some(
        (tensor) => tensor.type.name === 'IQ4_XS' && tensor.ne[2] > 1 && tiles?.fits(tensor) !== true,
      );
      const needsReference = attention.kind === 'gather' || (isExact && hasSuchExperts);
      device.useExactKernels(device.kind === 'gpu' ? isExact : needsReference);
      const isOther = ({ source }: PlacedMatrix): boolean => tiles?.fits(source) !== true;
      const others = weights.matrices.filter(isOther);
      const experts = weights.expertMatrices.filter(isOther);
      const rowMatmul = isExact ? await openRowMatmul(device, others, compile) : undefined;
      const kernels: ExactKernels = isExact
        ? await findExactKernels({ device, file, rowsMax }, { matrices: others, experts, rowMatmul })
        : { rule: anyRows };
      const mixers = await mixersOf(device, options);
      const passes = await openLogitsPasses(device.native, compile);
      const operations = options.matmulKernels === false ? undefined : await openRowOperations(device, compile);
      const headRotation =
        options.matmulKernels === false ? undefined : await openHeadRotation(device, config, compile);
      // Different kernels compute KV with different bits, so a recomputed block would not equal the lost block.
      // Machines that share a store may have different CPUs and kernels.
      const numerics = await numericsIdentity(device, {
        isExact,
        repack: options.repack ?? true,
        attention: attention.identity,
        tiles: tiles?.identity ?? '',
        operations: operations?.sourceDigest ?? '',
        rotation: headRotation?.sourceDigest ?? '',
        isSameOnAllCpus:
          operations?.isFused === true &&
          attention.kind === 'native' &&
          (headRotation !== undefined || ropesOf(config).length === 0) &&
          mixers?.identity !== 'ggml' &&
          otherMatrices(file.tensors.values(), (tensor) => tiles?.fits(tensor) === true).length === 0,
        hasExperts: config.experts !== undefined,
        ...modelConstants(config),
        ...(mixers === undefined ? {} : { mixers: mixers.identity }),
      });
      const fingerprint = modelFingerprint(file, await digestOf(file, options.digest), {
        // Each device has numerics of its own, and no stage knows those of the others.
        numerics: options.placement ?? numerics,
        blockSize: options.blockSize,
        kvType,
        groups: layerGroups(config, blockOptionsOf(options)),
        freqFactors: config.rope.freqFactors,
      });
      const hasOwnSum = config.experts !== undefined && options.matmulKernels !== false;
      const weightedSum = hasOwnSum ? await openWeightedSum(device, compile) : undefined;
      await thread;
      return new GgmlRunner(options, {
        device,
        weights,
        prediction,
        kernels: { ...kernels, tiles, weightedSum, passes, operations, headRotation },
        attention,
        mixers: mixers?.mixers,
        identity: options.placement === undefined ? { fingerprint } : { fingerprint, numerics },
      });
    } catch (error) {
      prediction?.close();
      weights?.close();
      device.close();
      throw withAllocationFailure(error, 'the model', device.description);
    }
  }

  private constructor(
    options: GgmlRunnerOptions,
    { device, weights, prediction, kernels, attention, mixers, identity }: RunnerParts,
  ) {
    const { config, timers } = options;
    this.stage = stageOf(options);
    const blocks = blockOptionsOf(options);
    const kv = layersKv(config, this.stage, blocks);
    const layouts = kvLayouts(config, this.stage, blocks);
    const layout = layouts[0]!;
    const groups = groupSpecs(config, this.stage, blocks);
    const bytes = blockBytes(layout) + (prediction === undefined ? 0 : blockBytes(predictionLayout(layout)));
    const gpu = gpuMemoryOf(device);
    // The pool is one tensor.
    const poolBytes = Math.min(options.kvCacheBytes(bytes, gpu), gpu?.tensorBytesMax ?? Number.POSITIVE_INFINITY);
    const poolBlocks = Math.max(2, Math.floor(poolBytes / bytes));
    this.#device = device;
    this.#weights = weights;
    this.#rowRule = kernels.rule;
    this.#operations = kernels.operations;
    this.#graphs = new DecoderGraphs(device, kernels.operations);
    const { passes, tiles, rowMatmul, weightedSum, byRow } = kernels;
    const lowRank = kernels.operations?.lowRank;
    this.adapters = new AdapterStore({
      ...{ device, base: options, matrices: weights.matrices, hasEmbedding: weights.tokenEmbedding !== undefined },
      ...{ kernels: lowRank, idle: () => this.#running },
    });
    let memory: KvMemory | undefined;
    try {
      memory = new KvMemory(device, layout, poolBlocks);
      this.memory = memory;
      const memories = memory.inLayouts(layouts);
      this.#parts = {
        config,
        weights,
        memories,
        layersKv: kv,
        mixers,
        states: new StateTables(device.native, this.memory, kv),
        attention: attention.create(memories, attentionLayers(device.native, config, kv, weights)),
        kernels: { tiles, row: rowMatmul, weightedSum, byRow },
        headRotation: kernels.headRotation,
        bestTokens:
          passes === undefined || device.kind !== 'cpu'
            ? undefined
            : new BestTokens(passes.bestOfShares, device.threads),
        adapters: this.adapters,
        checksRows: device.kind === 'gpu' && config.isEncoder !== true,
      };
      this.#predictor =
        prediction &&
        createPredictor({
          ...{ device, weights: prediction, layout, blockCount: poolBlocks, attention },
          shared: this.#parts,
          operations: kernels.operations,
          passes: passes ?? scriptPasses,
          read: (graph, result, length) => this.#read(graph, result, length),
          onLogits: options.onDraftLogits,
        });
      this.#sampler = weights.head === undefined ? undefined : new BatchSampler(config.vocabSize, passes, options);
      // A GPU whose memory is too small for a step must say so now, and not when the step comes.
      if (device.kind === 'gpu' && config.isEncoder !== true) {
        const { rowsMax = 512, sequencesMax = 64, tokensMax = config.contextLength } = options;
        const step = largestStep(groups, { rowsMax, sequencesMax, tokensMax, blockCount: poolBlocks });
        const hiddenRows = this.#predictor?.hiddenRows;
        this.#graphs.graphFor(this.#parts, layOutBatch(step, { memories, groups, hiddenRows }, this.#rowRule));
      }
    } catch (error) {
      this.#graphs.close();
      memory?.close();
      throw error;
    }
    this.attentionDescription = attention.description;
    this.vocabSize = config.vocabSize;
    this.#usedGroups = groups.map((group) => ({ ...group, usedBytes: usedBytes(group, layout, config) }));
    this.kvCacheSpec = {
      groups,
      blockBytes: blockBytes(layout),
      blockCount: blockCount(poolBlocks),
      ...identity,
      ...(this.#canSlice() ? { sliceableLayers: config.layerCount } : {}),
    };
    const rowsPerBlock = this.#parts.memories.map((ofGroup) => ofGroup.rowsPerBlock);
    this.#memoryAhead = timers && memory.isHost ? new KvMemoryAhead(memory, rowsPerBlock, timers) : undefined;
  }

  get blockMemory(): BlockMemory | undefined {
    return this.memory.isHost ? this.memory : undefined;
  }

  get deviceBlocks(): DeviceBlocks {
    return this.memory;
  }

  /** Compute graphs that were built so far. */
  get builtGraphs(): number {
    return this.#graphs.built;
  }

  /** The device, for people: `CPU (...)`. */
  get deviceDescription(): string {
    return this.#device.description;
  }

  execute(plan: StepPlan, hidden?: HiddenStates): Promise<StageResult> {
    return this.#alone(() => this.#run(plan, hidden));
  }

  draft(requests: readonly DraftRequest[], count: number): Promise<readonly Int32Array[]> {
    const predictor = assertDefined(this.#predictor, 'only a runner with a prediction layer drafts');
    return this.#alone(() => predictor.draft(requests, count));
  }

  release(requests: readonly RequestId[]): void {
    this.#predictor?.released(requests);
  }

  #alone<T>(run: () => Promise<T>): Promise<T> {
    assert(this.#running === undefined, 'one step at a time');
    assert(!this.#isClosed, 'the runner is closed');
    const running = run()
      .catch((error: unknown) => {
        throw withAllocationFailure(error, 'a step', this.#device.description);
      })
      .finally(() => {
        this.#running = undefined;
      });
    this.#running = running;
    return running;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#running?.catch(() => undefined);
    await this.#memoryAhead?.close();
    this.#graphs.close();
    this.#promptHeads?.close();
    this.adapters.close();
    this.#predictor?.close();
    this.memory.close();
    this.#weights.close();
    this.#device.close();
  }

  async #run(plan: StepPlan, hidden: HiddenStates | undefined): Promise<StageResult> {
    const started = performance.now();
    const { memories, config } = this.#parts;
    const hiddenRows = this.#predictor?.hiddenRows;
    const batchMemory = { memories, groups: this.kvCacheSpec.groups, isEncoder: config.isEncoder, hiddenRows };
    const batch = layOutBatch(plan, batchMemory, this.#rowRule);
    clearUnusedPlaces(plan, batch, this.memory, this.#usedGroups);
    const decoder = this.#graphs.graphFor(this.#parts, batch);
    decoder.writeInputs(hidden, this.#chunkFor(batch));
    this.#memoryAhead?.used(batch.slots);
    const prepared = performance.now();
    await decoder.graph.compute();
    this.#weights.checkMapped();
    const computed = performance.now();
    if (batch.slice !== undefined) this.#chunk = this.#chunkAfter(batch, decoder);
    let result = this.#resultOf(plan, batch, decoder);
    if (decoder.promptHidden !== undefined)
      result = await this.#withPrompts(result, batch, decoder.graph, decoder.promptHidden);
    if (this.#predictor !== undefined && decoder.hidden !== undefined) {
      const rows = batch.hiddenRows === 'all' ? batch.rowCount : batch.outputCount;
      const values = this.#read(decoder.graph, decoder.hidden, rows * config.embeddingLength);
      await this.#predictor.stepEnded(batch, values, result.sampled);
    }
    this.timings.steps++;
    this.timings.prepareMs += prepared - started;
    this.timings.computeMs += computed - prepared;
    this.timings.sampleMs += performance.now() - computed;
    return result;
  }

  /** Whether a row's KV and logits do not depend on which layers a step computes for other rows. */
  #canSlice(): boolean {
    const { attention, mixers, config } = this.#parts;
    const isWhole = this.stage.firstLayer === 0 && this.stage.endLayer === this.stage.layerCount;
    // A state is overwritten layer by layer, so a chunk that is given up would leave no valid state.
    const isWholeOnly = config.latent !== undefined || config.isEncoder === true;
    const hasKvOnly = mixers === undefined && !isWholeOnly;
    return (
      isWhole && hasKvOnly && attention.rebind !== undefined && this.#rowRule === anyRows && this.#device.kind === 'cpu'
    );
  }

  /** The hidden states from which the batch's slice continues; undefined for a first slice and without a slice. */
  #chunkFor({ slice, sequences }: Batch): HiddenStates | undefined {
    if (slice === undefined || slice.first === 0) return undefined;
    const { requestId, spans } = sequences.at(-1)!.plan;
    const chunk = assertDefined(this.#chunk, 'a slice after the first follows another one');
    const isSame = chunk.requestId === requestId && chunk.nextLayer === slice.first && areSameSpans(chunk.spans, spans);
    assert(
      isSame,
      `layer ${slice.first} of request ${requestId} follows layer ${chunk.nextLayer} of ${chunk.requestId}`,
    );
    return chunk.hidden;
  }

  /** Undefined after the last slice. */
  #chunkAfter({ slice, sequences }: Batch, { graph, chunkHidden }: DecoderGraph): ChunkByLayers | undefined {
    const { plan, rowCount } = sequences.at(-1)!;
    const { end } = assertDefined(slice, 'the batch has a slice');
    if (chunkHidden === undefined) {
      assert(end === this.stage.endLayer, 'only the last slice has no hidden states');
      return undefined;
    }
    const computed = this.#read(graph, chunkHidden, rowCount * this.#parts.config.embeddingLength);
    // A copy, because the next step writes the graph's memory again.
    const hidden =
      this.#chunk?.hidden.length === computed.length ? this.#chunk.hidden : new Float32Array(computed.length);
    hidden.set(computed);
    const spans = plan.spans.map((span) => ({ ...span }));
    return { requestId: plan.requestId, spans, nextLayer: end, hidden };
  }

  /** Without the results of prompts. */
  #resultOf({ stepId }: StepPlan, batch: Batch, { graph, result, best, rowSums }: DecoderGraph): StageResult {
    const nothing = batch.sequences.map(() => undefined);
    if (this.#sampler === undefined) {
      assert(result !== undefined, 'a stage before the last has hidden states');
      const rows = this.#read(graph, result, batch.rowCount * this.#parts.config.embeddingLength);
      // The next step writes the graph's memory again, possibly before the next stage has read it.
      return { stepId, sampled: nothing, hidden: this.#device.kind === 'cpu' ? rows.slice() : rows };
    }
    const logits = result === undefined ? none : this.#read(graph, result, batch.outputCount * this.vocabSize);
    const { sampled, failures } = this.#sampler.sample(batch, logits, {
      rowSums: rowSums && this.#read(graph, rowSums, batch.rowCount),
      bestOfRow: this.#bestIn(graph, best),
    });
    return failures.length === 0 ? { stepId, sampled } : { stepId, sampled, failures };
  }

  async #withPrompts(result: StageResult, batch: Batch, graph: GraphBuilder, hidden: TensorPtr): Promise<StageResult> {
    const sampler = assertDefined(this.#sampler, 'only the last stage has results of prompts');
    const prompts = await this.#promptResults(sampler, batch, graph, hidden);
    const failures = [...(result.failures ?? []), ...prompts.failures];
    return { ...result, ...(failures.length === 0 ? {} : { failures }), prompts: prompts.prompts };
  }

  #promptResults({ sampler }: BatchSampler, batch: Batch, graph: GraphBuilder, promptHidden: TensorPtr) {
    const { config, weights, kernels } = this.#parts;
    const head = assertDefined(weights.head, 'the last stage has the output head');
    const parts = { device: this.#device, config, kernels, operations: this.#operations, rule: this.#rowRule };
    this.#promptHeads ??= new PromptHeads({ ...parts, head, logitsOf, adapters: this.adapters });
    const hidden = this.#read(graph, promptHidden, batch.promptRows.length * config.embeddingLength);
    return promptResults(batch, hidden, this.#promptHeads, sampler);
  }

  /** The best token of each row, if the graph has computed it. */
  #bestIn(graph: GraphBuilder, best: TensorPtr | undefined): BestOfRow | undefined {
    const { bestTokens } = this.#parts;
    if (best === undefined || bestTokens === undefined) return undefined;
    const found = graph.dataOf(best, Int32Array);
    return (row, logits) => bestTokens.of(found, row, logits);
  }

  /** The first values of a result: on a CPU in place, valid until the next step; else a copy. */
  #read(graph: GraphBuilder, result: TensorPtr, length: number): Float32Array {
    if (this.#device.kind === 'cpu') return graph.dataOf(result, Float32Array, length);
    const values = new Float32Array(length);
    graph.read(result, values);
    return values;
  }
}

const none = new Float32Array(0);

/** Of a model with states, for all of its layers, because all stages must have the same fingerprint. */
async function mixersOf(device: ComputeDevice, options: GgmlRunnerOptions): Promise<MixerChoice | undefined> {
  const { config, matmulKernels, onEvent } = options;
  if (config.states === undefined) return undefined;
  const shapes = mixerShapes(config);
  assert(stateElements(shapes) === config.states.elements, 'a block has room for the states of the mixers');
  return matmulKernels === false ? ggmlMixers(shapes) : openMixers(device, shapes, { event: onEvent });
}
