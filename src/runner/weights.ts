import { assertDefined } from '../base/assert.ts';
import { allocateTensors, type BufferType, type ComputeDevice } from '../ggml/device.ts';
import type { BufferPtr, ContextPtr, TensorPtr } from '../ggml/ffi.ts';
import type { GgufFile, GgufTensor } from '../ggml/gguf.ts';
import { preferHugePages } from '../ggml/huge-pages.ts';
import type { LatentAttention } from '../ggml/latent-config.ts';
import type { ModelConfig } from '../ggml/model-config.ts';
import { canMultiply, canMultiplyExperts, canTakeRows } from '../ggml/operation-support.ts';
import { ROPE_FREQS } from '../ggml/rope-config.ts';
import { outputNormOf } from '../ggml/tensor-list.ts';
import { readTensors, type TensorTarget } from '../ggml/tensor-reader.ts';
import { dataPointer } from '../ggml/tensor-struct.ts';
import { isFirstStage, isLastStage, layersOf, type PipelineStage } from './contract.ts';

export interface LayerWeights {
  readonly attentionNorm: TensorPtr;
  /**
   * Undefined, as `key`, `value` and `attentionOutput`, in layers with a state instead of attention. With latent attention,
   * `key` and `value` are undefined.
   */
  readonly query: TensorPtr | undefined;
  readonly queryBias: TensorPtr | undefined;
  readonly queryNorm: TensorPtr | undefined;
  readonly key: TensorPtr | undefined;
  readonly keyBias: TensorPtr | undefined;
  readonly keyNorm: TensorPtr | undefined;
  readonly value: TensorPtr | undefined;
  readonly valueBias: TensorPtr | undefined;
  readonly latent: LatentWeights | undefined;
  readonly attentionOutput: TensorPtr | undefined;
  readonly attentionOutputBias: TensorPtr | undefined;
  /** F32 `[heads]` */
  readonly sinks: TensorPtr | undefined;
  readonly attentionPostNorm: TensorPtr | undefined;
  readonly shortConvolution: ShortConvolutionWeights | undefined;
  readonly mamba: MambaWeights | undefined;
  readonly deltaNet: DeltaNetWeights | undefined;
  readonly feedForwardNorm: TensorPtr;
  /** `[embedding, experts]` of a mixture of experts. Then `gate`, `up` and `down` have a matrix of each expert. */
  readonly router: TensorPtr | undefined;
  readonly routerBias: TensorPtr | undefined;
  readonly gate: TensorPtr;
  readonly up: TensorPtr;
  readonly down: TensorPtr;
  /** Of experts: F32 `[outputs, experts]`. */
  readonly gateBias: TensorPtr | undefined;
  readonly upBias: TensorPtr | undefined;
  readonly downBias: TensorPtr | undefined;
  /** F32 `[experts]`, added to the probabilities by which experts are chosen. */
  readonly choiceBias: TensorPtr | undefined;
  /** The network of a mixture that computes for every token. */
  readonly shared: NetworkWeights | undefined;
  readonly feedForwardPostNorm: TensorPtr | undefined;
  /** F32 `[embedding]`: its product with a row, after a sigmoid, multiplies the row's result of `shared`. */
  readonly sharedGate: TensorPtr | undefined;
}

/** A gated delta net. */
export interface DeltaNetWeights {
  /** `[embedding, ...]`: queries, keys and values. */
  readonly qkv: TensorPtr;
  readonly gate: TensorPtr;
  /** F32 `[taps, channels]`. */
  readonly kernel: TensorPtr;
  /** `[embedding, heads]` */
  readonly alpha: TensorPtr;
  readonly beta: TensorPtr;
  /** F32, one number for each head: added to alpha; and the factor of decays. */
  readonly bias: TensorPtr;
  readonly a: TensorPtr;
  /** F32 `[headDim]`. */
  readonly norm: TensorPtr;
  readonly outProjection: TensorPtr;
}

/** Mamba-2. */
export interface MambaWeights {
  /** `[embedding, ...]`: the gate, the channels of the convolution, and dt of each head. */
  readonly inProjection: TensorPtr;
  /** F32 `[taps, channels]`. */
  readonly kernel: TensorPtr;
  readonly kernelBias: TensorPtr;
  /** F32, one number for each head. */
  readonly dtBias: TensorPtr;
  readonly a: TensorPtr;
  readonly d: TensorPtr;
  /** F32 `[width / groups, groups]`. */
  readonly norm: TensorPtr;
  readonly outProjection: TensorPtr;
}

/** A gated convolution over the tokens just before. */
export interface ShortConvolutionWeights {
  /** F32 `[taps, embedding]`. */
  readonly kernel: TensorPtr;
  /** `[embedding, 3 * embedding]`: both gates and the values. */
  readonly inProjection: TensorPtr;
  readonly outProjection: TensorPtr;
}

export type NetworkWeights = Pick<LayerWeights, 'gate' | 'up' | 'down'>;

/** Latent attention (`latent-attention.ts`). `LayerWeights.query` makes the queries of all heads. */
export interface LatentWeights {
  /** `[embedding, query rank]`, and the norm of its result; undefined if queries are made from the layer's input. */
  readonly queryDown: TensorPtr | undefined;
  readonly queryNorm: TensorPtr | undefined;
  /** `[embedding, rank + elements with RoPE]` */
  readonly down: TensorPtr;
  /** `[rank]` */
  readonly norm: TensorPtr;
  /** `[query elements without RoPE, rank, heads]` */
  readonly keyOfHead: TensorPtr;
  /** `[rank, value elements, heads]` */
  readonly valueOfHead: TensorPtr;
}

/** A matrix and its buffers, which decide the kernel that multiplies it. */
export interface PlacedMatrix {
  readonly tensor: TensorPtr;
  readonly source: GgufTensor;
  readonly buffers: BufferType;
}

/** The weights that turn the last layer's output into logits. */
export interface OutputHead {
  readonly norm: TensorPtr;
  /** `[embedding, vocab]`. */
  readonly output: TensorPtr;
}

/** The weights of one pipeline stage, or of a whole model. */
export interface ModelWeights {
  /** Undefined if this is not the first stage. */
  readonly tokenEmbedding: TensorPtr | undefined;
  /** Undefined if this is not the last stage. */
  readonly head: OutputHead | undefined;
  readonly ropeFreqs: TensorPtr | undefined;
  /** The stage's layers in order. */
  readonly layers: readonly LayerWeights[];
  /** All matrices of matmuls with every row. */
  readonly matrices: readonly PlacedMatrix[];
  /** All matrices `[inputs, outputs, experts or heads]` of matmuls with the rows of an expert or a head. */
  readonly expertMatrices: readonly PlacedMatrix[];
  readonly byteLength: number;
  close(): void;
}

export interface WeightOptions {
  /** The stage whose weights are read. */
  readonly stage: PipelineStage;
  /** Whether matrices may be in ggml's repacked CPU buffers, as in llama.cpp by default. */
  readonly repack: boolean;
  /** Matrices that must be in plain host memory on a CPU, in the layout of the file, because Kvasir lays them out. */
  readonly keepPlain?: (matrix: GgufTensor) => boolean;
  readonly onProgress?: ((loadedBytes: number, totalBytes: number) => void) | undefined;
}

/**
 * Places and reads the weights of a model, or of one stage of a model. A matrix goes to repacked buffers if ggml has a
 * kernel for its type and shape on this CPU and `keepPlain` is false for it. Other tensors go to the device's plain
 * buffers, or to the CPU's if the device cannot compute with them.
 * Throws `outOfNativeMemory` and errors of reading the file.
 */
export async function loadWeights(
  device: ComputeDevice,
  file: GgufFile,
  config: ModelConfig,
  options: WeightOptions,
): Promise<ModelWeights> {
  const store = new WeightStore(device, file, options);
  const { stage } = options;
  const weights = {
    tokenEmbedding: isFirstStage(stage) ? store.table('token_embd.weight') : undefined,
    head: isLastStage(stage) ? outputHead(store, config) : undefined,
    ropeFreqs: config.rope.hasFreqFactors ? store.vector(ROPE_FREQS) : undefined,
    layers: layersOf(stage).map((layer) => layerWeights(store, config, layer)),
  };
  try {
    await store.load(options.onProgress);
  } catch (error) {
    store.close();
    throw error;
  }
  return {
    ...weights,
    matrices: store.matrices,
    expertMatrices: store.expertMatrices,
    byteLength: store.byteLength,
    close: () => store.close(),
  };
}

function outputHead(store: WeightStore, config: ModelConfig): OutputHead {
  return {
    norm: store.vector(outputNormOf(config)),
    output: store.matrix(config.tiedEmbeddings ? 'token_embd.weight' : 'output.weight'),
  };
}

function layerWeights(store: WeightStore, config: ModelConfig, index: number): LayerWeights {
  const name = (part: string): string => `blk.${index}.${part}`;
  const postNorm = (part: string) => (config.hasPostNorms ? store.vector(name(`post_${part}_norm.weight`)) : undefined);
  const hasState = config.states?.layers.includes(index) === true;
  return {
    attentionNorm: store.vector(name('attn_norm.weight')),
    ...(hasState ? noAttention : attentionWeights(store, config, name)),
    shortConvolution: hasState && config.shortConvolution ? shortConvolutionWeights(store, name) : undefined,
    mamba: hasState && config.mamba ? mambaWeights(store, name) : undefined,
    deltaNet: hasState && config.deltaNet ? deltaNetWeights(store, name) : undefined,
    attentionPostNorm: postNorm('attention'),
    feedForwardNorm: store.vector(name(`${config.feedForwardNormName}.weight`)),
    ...networkWeights(store, config, index, name),
    feedForwardPostNorm: postNorm('ffw'),
  };
}

type NameOf = (part: string) => string;

function attentionWeights(store: WeightStore, config: ModelConfig, name: NameOf) {
  if (config.latent !== undefined) return latentAttentionWeights(store, config.latent, name);
  const bias = (part: string) => (config.hasQkvBias ? store.vector(name(`${part}.bias`)) : undefined);
  const norm = (part: string) => (config.hasQkNorm ? store.vector(name(`${part}_norm.weight`)) : undefined);
  return {
    query: store.matrix(name('attn_q.weight')),
    queryBias: bias('attn_q'),
    queryNorm: norm('attn_q'),
    key: store.matrix(name('attn_k.weight')),
    keyBias: bias('attn_k'),
    keyNorm: norm('attn_k'),
    value: store.matrix(name('attn_v.weight')),
    valueBias: bias('attn_v'),
    latent: undefined,
    attentionOutput: store.matrix(name('attn_output.weight')),
    attentionOutputBias: config.hasOutputBias ? store.vector(name('attn_output.bias')) : undefined,
    sinks: config.hasSinks ? store.vector(name('attn_sinks.weight')) : undefined,
  };
}

const noAttention = {
  query: undefined,
  queryBias: undefined,
  queryNorm: undefined,
  key: undefined,
  keyBias: undefined,
  keyNorm: undefined,
  value: undefined,
  valueBias: undefined,
  latent: undefined,
  attentionOutput: undefined,
  attentionOutputBias: undefined,
  sinks: undefined,
};

function shortConvolutionWeights(store: WeightStore, name: NameOf): ShortConvolutionWeights {
  return {
    kernel: store.vector(name('shortconv.conv.weight')),
    inProjection: store.matrix(name('shortconv.in_proj.weight')),
    outProjection: store.matrix(name('shortconv.out_proj.weight')),
  };
}

function latentAttentionWeights(store: WeightStore, { queryRank }: LatentAttention, name: NameOf) {
  const isLite = queryRank === undefined;
  return {
    ...noAttention,
    query: store.matrix(name(isLite ? 'attn_q.weight' : 'attn_q_b.weight')),
    attentionOutput: store.matrix(name('attn_output.weight')),
    latent: {
      queryDown: isLite ? undefined : store.matrix(name('attn_q_a.weight')),
      queryNorm: isLite ? undefined : store.vector(name('attn_q_a_norm.weight')),
      down: store.matrix(name('attn_kv_a_mqa.weight')),
      norm: store.vector(name('attn_kv_a_norm.weight')),
      keyOfHead: store.experts(name('attn_k_b.weight')),
      valueOfHead: store.experts(name('attn_v_b.weight')),
    },
  };
}

function mambaWeights(store: WeightStore, name: NameOf): MambaWeights {
  return {
    inProjection: store.matrix(name('ssm_in.weight')),
    kernel: store.vector(name('ssm_conv1d.weight')),
    kernelBias: store.vector(name('ssm_conv1d.bias')),
    dtBias: store.vector(name('ssm_dt.bias')),
    a: store.vector(name('ssm_a')),
    d: store.vector(name('ssm_d')),
    norm: store.vector(name('ssm_norm.weight')),
    outProjection: store.matrix(name('ssm_out.weight')),
  };
}

function deltaNetWeights(store: WeightStore, name: NameOf): DeltaNetWeights {
  return {
    qkv: store.matrix(name('attn_qkv.weight')),
    gate: store.matrix(name('attn_gate.weight')),
    kernel: store.vector(name('ssm_conv1d.weight')),
    alpha: store.matrix(name('ssm_alpha.weight')),
    beta: store.matrix(name('ssm_beta.weight')),
    bias: store.vector(name('ssm_dt.bias')),
    a: store.vector(name('ssm_a')),
    norm: store.vector(name('ssm_norm.weight')),
    outProjection: store.matrix(name('ssm_out.weight')),
  };
}

const noShared = { shared: undefined, sharedGate: undefined };

function networkWeights(store: WeightStore, config: ModelConfig, layer: number, name: NameOf) {
  const { experts } = config;
  const bias = (part: string) => (config.hasExpertBias ? store.vector(name(`${part}.bias`)) : undefined);
  const biases = {
    routerBias: bias('ffn_gate_inp'),
    gateBias: bias('ffn_gate_exps'),
    upBias: bias('ffn_up_exps'),
    downBias: bias('ffn_down_exps'),
  };
  const network = (suffix: string): NetworkWeights => ({
    gate: store.matrix(name(`ffn_gate${suffix}.weight`)),
    up: store.matrix(name(`ffn_up${suffix}.weight`)),
    down: store.matrix(name(`ffn_down${suffix}.weight`)),
  });
  if (experts === undefined || layer < (experts.denseLayers ?? 0)) {
    return { ...biases, router: undefined, ...network(''), choiceBias: undefined, ...noShared };
  }
  return {
    ...biases,
    choiceBias: experts.hasChoiceBias === true ? store.vector(name('exp_probs_b.bias')) : undefined,
    shared: experts.sharedLength === undefined ? undefined : network('_shexp'),
    router: store.router(name('ffn_gate_inp.weight')),
    sharedGate: experts.hasSharedGate === true ? store.vector(name('ffn_gate_inp_shexp.weight')) : undefined,
    gate: store.experts(name('ffn_gate_exps.weight')),
    up: store.experts(name('ffn_up_exps.weight')),
    down: store.experts(name('ffn_down_exps.weight')),
  };
}

/** The tensors of one type of buffer. */
interface BufferGroup {
  readonly buffers: BufferType;
  readonly context: ContextPtr;
  readonly tensors: Map<string, { readonly pointer: TensorPtr; readonly source: GgufTensor }>;
  buffer?: BufferPtr;
}

/** Tensors are declared first. Then the buffer of each group is allocated at once, and filled from the file. */
class WeightStore {
  readonly matrices: PlacedMatrix[] = [];
  readonly expertMatrices: PlacedMatrix[] = [];
  byteLength = 0;
  readonly #device: ComputeDevice;
  readonly #file: GgufFile;
  readonly #options: WeightOptions;
  readonly #groups = new Map<string, BufferGroup>();

  constructor(device: ComputeDevice, file: GgufFile, options: WeightOptions) {
    this.#device = device;
    this.#file = file;
    this.#options = options;
  }

  /** Numbers that are added or multiplied. */
  vector(name: string): TensorPtr {
    return this.#declare(name, this.#device.mainBuffers);
  }

  /** A matrix whose rows are read by index. */
  table(name: string): TensorPtr {
    const { mainBuffers, cpuBuffers } = this.#device;
    return this.#declare(name, canTakeRows(this.#device, this.#source(name)) ? mainBuffers : cpuBuffers);
  }

  /** A matrix that is multiplied. */
  matrix(name: string): TensorPtr {
    const source = this.#source(name);
    const buffers = this.#placeMatrix(source);
    const tensor = this.#declare(name, buffers);
    this.matrices.push({ tensor, source, buffers });
    return tensor;
  }

  /** A small matrix that is multiplied by single rows (`expertNetwork`), which repacked buffers do not support. */
  router(name: string): TensorPtr {
    const { mainBuffers, cpuBuffers } = this.#device;
    return this.#declare(name, canMultiply(this.#device, this.#source(name), mainBuffers) ? mainBuffers : cpuBuffers);
  }

  /** The matrices of all experts or all heads of a layer. */
  experts(name: string): TensorPtr {
    const source = this.#source(name);
    const buffers = this.#placeMatrix(source, canMultiplyExperts);
    const tensor = this.#declare(name, buffers);
    this.expertMatrices.push({ tensor, source, buffers });
    return tensor;
  }

  async load(onProgress: WeightOptions['onProgress']): Promise<void> {
    const targets: TensorTarget[] = [];
    for (const group of this.#groups.values()) {
      const bytes = [...group.tensors.values()].reduce((sum, { source }) => sum + source.byteLength, 0);
      group.buffer = allocateTensors(this.#device, group.context, group.buffers, { purpose: 'the weights', bytes });
      this.#device.native.ggml_backend_buffer_set_usage(group.buffer, 1);
      if (group.buffers.isHost) this.#preferHugePages(group.buffer);
      this.byteLength += bytes;
      for (const { pointer, source } of group.tensors.values()) targets.push(this.#target(group, pointer, source));
    }
    await readTensors(this.#file, targets, onProgress);
  }

  #preferHugePages(buffer: BufferPtr): void {
    const { native } = this.#device;
    const bytes = native.ggml_backend_buffer_get_size(buffer);
    preferHugePages(native, native.ggml_backend_buffer_get_base(buffer), bytes);
  }

  close(): void {
    for (const { buffer, context } of this.#groups.values()) {
      if (buffer !== undefined) this.#device.native.ggml_backend_buffer_free(buffer);
      this.#device.native.ggml_free(context);
    }
    this.#groups.clear();
  }

  #placeMatrix(source: GgufTensor, isSupported = canMultiply): BufferType {
    const { kind, mainBuffers, cpuBuffers, repackedBuffers } = this.#device;
    if (kind === 'gpu') return isSupported(this.#device, source, mainBuffers) ? mainBuffers : cpuBuffers;
    const { repack, keepPlain } = this.#options;
    if (!repack || repackedBuffers === undefined || keepPlain?.(source) === true) return cpuBuffers;
    return isSupported(this.#device, source, repackedBuffers) ? repackedBuffers : cpuBuffers;
  }

  #source(name: string): GgufTensor {
    return assertDefined(this.#file.tensors.get(name), `the file has ${name}, which the configuration needs`);
  }

  #declare(name: string, buffers: BufferType): TensorPtr {
    const { native } = this.#device;
    let group = this.#groups.get(buffers.name);
    if (group === undefined) {
      const bytes = (this.#file.tensors.size + 1) * native.ggml_tensor_overhead();
      const context = native.ggml_init({ mem_size: bytes, mem_buffer: 0, no_alloc: true });
      group = { buffers, context, tensors: new Map() };
      this.#groups.set(buffers.name, group);
    }
    const known = group.tensors.get(name);
    if (known !== undefined) return known.pointer;
    const source = this.#source(name);
    const pointer = native.ggml_new_tensor_3d(group.context, source.type.id, source.ne[0], source.ne[1], source.ne[2]);
    native.ggml_set_name(pointer, name);
    group.tensors.set(name, { pointer, source });
    return pointer;
  }

  /** Plain host memory is read into directly; a repacked or GPU tensor gets all of its bytes from a staging copy. */
  #target({ buffers }: BufferGroup, pointer: TensorPtr, source: GgufTensor): TensorTarget {
    const { native, repackedBuffers } = this.#device;
    if (buffers.isHost && buffers !== repackedBuffers) {
      return { tensor: source, into: new Uint8Array(native.memoryAt(dataPointer(native, pointer), source.byteLength)) };
    }
    return {
      tensor: source,
      accept: (bytes) => native.ggml_backend_tensor_set(pointer, bytes, 0, source.byteLength),
    };
  }
}
