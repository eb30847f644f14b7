/** What architectures have of their own, besides the numbers of their metadata. Names are llama.cpp's. */
export interface ArchitectureTraits {
  /** The pairs of RoPE: adjacent elements (`normal`) or elements of two halves (`neox`). */
  readonly pairs: 'normal' | 'neox';
  /** No RoPE, also if the metadata has its parameters. */
  readonly hasNoRope?: boolean;
  /** RoPE may rotate only the first elements of a head. */
  readonly hasPartialRope?: boolean;
  /** RMS norms of queries and keys before RoPE: of each head, or of all heads together. */
  readonly qkNorm?: QkNorm;
  /** An RMS norm of each head of values, without weights. */
  readonly hasValueNorm?: boolean;
  /** Where the norms of attention and of the network are; default `before`. */
  readonly norms?: Norms;
  /** `blk.N.*.weight`: the norm before the network; default `ffn_norm`. */
  readonly feedForwardNormName?: 'post_attention_norm';
  /** Networks are mixtures of experts: always, or if the metadata has experts. Default: never. */
  readonly experts?: 'always' | 'maybe';
  /** Files may have biases of attention's output and of dense networks. */
  readonly hasBiases?: boolean;
  /**
   * The pairs of RoPE have positions of three kinds, for text and images. A text's positions of all kinds are equal, so its RoPE is that of
   * other models. (libllama gives the pairs of Qwen 3 VL that have no kind the position 0; transformers gives them that of the text.)
   */
  readonly hasImagePositions?: boolean;
  /** See `ExpertKeys`. */
  readonly expertKeys?: ExpertKeys;
  /** Of layers with a recurrent state. Default: there are none. */
  readonly mixer?: MixerKind;
  /** See `DeltaNetConfig`. */
  readonly hasAdjacentHeads?: boolean;
  /** A layer has attention, a recurrent state or a network, and nothing else. The metadata has no width for those without a network. */
  readonly hasSinglePartLayers?: boolean;
  /** Of a layer, and of each expert; default `swiglu`. BERT's layers have `bertNetwork` instead. */
  readonly network?: NetworkKind;
  /** The metadata may have factors of embeddings, attention, residuals and logits, and say that there is no RoPE. */
  readonly hasScales?: boolean;
  /** Files may have one matrix for the gate and the up projection of a network: `ffn_up`, the gate first. */
  readonly hasFusedNetwork?: boolean;
  /** Files may have one matrix for the gate and the up projection of an expert. */
  readonly hasFusedExperts?: boolean;
  /** Files may have layers for multi-token prediction (MTP). */
  readonly hasPredictionLayers?: boolean;
  /** Of so many layers, the last has no RoPE. */
  readonly noRopeInterval?: number;
  /** RoPE may have LongRoPE's two sets of divisors. */
  readonly hasLongRope?: boolean;
  /** YaRN stretches a range of pairs that is not rounded. */
  readonly hasExactYarn?: boolean;
  /** The metadata may have a temperature of attention. */
  readonly hasTemperature?: boolean;
  /** Tokens also see later tokens, so the model makes embeddings or scores, and no text. */
  readonly isEncoder?: boolean;
  /** The network of BERT's layers, whose norms are LayerNorms after attention and network. */
  readonly bertNetwork?: BertNetwork;
  /** Positions are embeddings that are added to those of the tokens, instead of RoPE. */
  readonly hasPositionEmbeddings?: boolean;
}

/**
 * `down(silu(gate(h)) * up(h))` (`swiglu`), the same with GELU (`geglu`), or `down(relu(up(h))^2)`, which has no gate. `clamped swiglu`:
 * experts clamp their values, and the weights of the chosen experts are the softmax of their scores alone.
 */
export type NetworkKind = 'swiglu' | 'geglu' | 'squared relu' | 'clamped swiglu';

/**
 * How a layer continues its state. Layers with a short convolution or Mamba-2 have no KV heads in the metadata. The metadata lists layers
 * with gated delta nets, and attention in other layers has a gate.
 */
export type MixerKind = 'short convolution' | 'mamba' | 'delta net';

/** Whose keys of experts and router a file has (`expert-variants.ts`). */
export type ExpertKeys = 'qwen' | 'gpt-oss' | 'deepseek' | 'gemma4' | 'lfm2' | 'qwen3.5' | 'nemotron' | 'granite';

/** Whether the metadata has no KV heads for layers with a state. */
export const marksStatesByHeads = ({ mixer }: ArchitectureTraits): boolean =>
  mixer === 'mamba' || mixer === 'short convolution';

/** `down(gelu(up(h)))`, or `down(silu(gate(h)) * up(h))`. */
export type BertNetwork = 'gelu' | 'swiglu';

export type QkNorm = 'none' | 'head' | 'row';

/** RMS norms of the input of attention and network (`before`), of their results (`after`), or of both (`around`). */
export type Norms = 'before' | 'after' | 'around';

/** A layer has Mamba-2, attention without RoPE, or a network, with one norm before it. */
const nemotronH = {
  pairs: 'neox',
  hasNoRope: true,
  mixer: 'mamba',
  hasSinglePartLayers: true,
  network: 'squared relu',
} as const satisfies ArchitectureTraits;
const gemma3 = {
  pairs: 'neox',
  qkNorm: 'head',
  norms: 'around',
  network: 'geglu',
} as const satisfies ArchitectureTraits;
/** Most layers have a gated convolution over the last tokens, the others attention, perhaps with a sliding window. */
const lfm2 = { pairs: 'neox', qkNorm: 'head', mixer: 'short convolution' } as const satisfies ArchitectureTraits;
/** Most layers have a gated delta net, the others attention with a gate for each element. */
const qwen35 = {
  pairs: 'neox',
  qkNorm: 'head',
  hasPartialRope: true,
  mixer: 'delta net',
  feedForwardNormName: 'post_attention_norm',
  hasPredictionLayers: true,
} as const satisfies ArchitectureTraits;
const qwen35moe = {
  ...qwen35,
  experts: 'always',
  expertKeys: 'qwen3.5',
  hasFusedExperts: true,
} as const satisfies ArchitectureTraits;

const traitsByName = {
  // Mixtral is a llama with experts, which are as wide as its networks would be.
  llama: { pairs: 'normal', hasBiases: true, experts: 'maybe', expertKeys: 'granite' },
  qwen2: { pairs: 'neox' },
  qwen3: { pairs: 'neox', qkNorm: 'head' },
  qwen3moe: { pairs: 'neox', qkNorm: 'head', experts: 'always', expertKeys: 'qwen' },
  // Most layers have a sliding window and another base of RoPE.
  gemma3,
  // Experts and router have biases, and each head an attention sink. Every other layer has a sliding window.
  'gpt-oss': {
    ...{ pairs: 'neox', experts: 'always', expertKeys: 'gpt-oss', network: 'clamped swiglu' },
    ...{ feedForwardNormName: 'post_attention_norm', hasExactYarn: true },
  },
  // Heads in layers with a window are smaller and more. A layer may have experts beside its network.
  gemma4: { ...gemma3, hasValueNorm: true, experts: 'maybe', expertKeys: 'gemma4', hasFusedExperts: true },
  lfm2,
  // K and V of a token are made from one row (`latent-config.ts`).
  deepseek2: {
    ...{ pairs: 'normal', experts: 'always', expertKeys: 'deepseek' },
    ...{ hasFusedExperts: true, hasPredictionLayers: true },
  },
  granitehybrid: { pairs: 'normal', experts: 'maybe', expertKeys: 'granite', mixer: 'mamba', hasScales: true },
  nemotron_h: nemotronH,
  nemotron_h_moe: { ...nemotronH, experts: 'always', expertKeys: 'nemotron', hasPredictionLayers: true },
  qwen35,
  qwen35moe,
  // Delta nets have other orders of heads and matrices (`DeltaNetConfig`).
  qwen3next: { ...qwen35moe, hasAdjacentHeads: true },
  granite: { pairs: 'normal', hasBiases: true, hasScales: true },
  granitemoe: { pairs: 'normal', experts: 'always', expertKeys: 'granite', hasScales: true },
  qwen2vl: { pairs: 'neox', hasImagePositions: true },
  qwen3vl: { pairs: 'neox', qkNorm: 'head', hasImagePositions: true },
  qwen3vlmoe: { pairs: 'neox', qkNorm: 'head', experts: 'always', expertKeys: 'qwen', hasImagePositions: true },
  smollm3: { pairs: 'normal', noRopeInterval: 4 },
  // In OLMo 3, three of four layers have a sliding window, and only the others a RoPE for long contexts.
  olmo2: { pairs: 'neox', qkNorm: 'row', norms: 'after' },
  glm4: { pairs: 'normal', norms: 'around', hasPartialRope: true, hasFusedNetwork: true, hasPredictionLayers: true },
  glm4moe: {
    ...{ pairs: 'neox', hasPartialRope: true, experts: 'always', expertKeys: 'deepseek' },
    ...{ feedForwardNormName: 'post_attention_norm', hasPredictionLayers: true },
  },
  lfm2moe: { ...lfm2, experts: 'always', expertKeys: 'lfm2' },
  // Its sliding window is not used, as in llama.cpp.
  phi3: { pairs: 'neox', hasPartialRope: true, hasFusedNetwork: true, hasLongRope: true },
  mistral3: { pairs: 'normal', hasTemperature: true },
  bert: { pairs: 'neox', norms: 'after', isEncoder: true, bertNetwork: 'gelu', hasPositionEmbeddings: true },
  'nomic-bert': { pairs: 'neox', norms: 'after', isEncoder: true, bertNetwork: 'swiglu' },
  'jina-bert-v3': { pairs: 'neox', norms: 'after', isEncoder: true, bertNetwork: 'gelu' },
  'gemma-embedding': { ...gemma3, isEncoder: true },
} as const satisfies Readonly<Record<string, ArchitectureTraits>>;

export type Architecture = keyof typeof traitsByName;
export const architectures = Object.keys(traitsByName) as readonly Architecture[];

export const traitsOf = (architecture: Architecture): ArchitectureTraits => traitsByName[architecture];
