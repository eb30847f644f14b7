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
  /** Some layers have a recurrent state, and no KV heads in the metadata. */
  readonly isHybrid?: boolean;
  /** Layers with a recurrent state have gated delta nets, and attention has a gate. The metadata lists these layers. */
  readonly hasDeltaNets?: boolean;
  /** See `DeltaNetConfig`. */
  readonly hasAdjacentHeads?: boolean;
  /** A layer has attention, a recurrent state or a network, and nothing else. The metadata has no width for those without a network. */
  readonly hasSinglePartLayers?: boolean;
  /** Networks have no gate; their activation is the square of ReLU. */
  readonly hasUngatedNetworks?: boolean;
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

/** `down(gelu(up(h)))`, or `down(silu(gate(h)) * up(h))`. */
export type BertNetwork = 'gelu' | 'swiglu';

export type QkNorm = 'none' | 'head' | 'row';

/** RMS norms of the input of attention and network (`before`), of their results (`after`), or of both (`around`). */
export type Norms = 'before' | 'after' | 'around';

const nemotronH = {
  pairs: 'neox',
  hasNoRope: true,
  isHybrid: true,
  hasSinglePartLayers: true,
  hasUngatedNetworks: true,
} as const satisfies ArchitectureTraits;
const qwen35 = {
  pairs: 'neox',
  qkNorm: 'head',
  hasPartialRope: true,
  hasDeltaNets: true,
  feedForwardNormName: 'post_attention_norm',
  hasPredictionLayers: true,
} as const satisfies ArchitectureTraits;

const traitsByName = {
  llama: { pairs: 'normal' },
  qwen2: { pairs: 'neox' },
  qwen3: { pairs: 'neox', qkNorm: 'head' },
  qwen3moe: { pairs: 'neox', qkNorm: 'head', experts: 'always' },
  gemma3: { pairs: 'neox', qkNorm: 'head', norms: 'around' },
  'gpt-oss': { pairs: 'neox', experts: 'always', feedForwardNormName: 'post_attention_norm', hasExactYarn: true },
  gemma4: {
    pairs: 'neox',
    qkNorm: 'head',
    norms: 'around',
    hasValueNorm: true,
    experts: 'maybe',
    hasFusedExperts: true,
  },
  lfm2: { pairs: 'neox', qkNorm: 'head', isHybrid: true },
  deepseek2: { pairs: 'normal', experts: 'always', hasFusedExperts: true, hasPredictionLayers: true },
  granitehybrid: { pairs: 'normal', experts: 'maybe', isHybrid: true },
  nemotron_h: nemotronH,
  nemotron_h_moe: { ...nemotronH, experts: 'always', hasPredictionLayers: true },
  qwen35,
  qwen35moe: { ...qwen35, experts: 'always', hasFusedExperts: true },
  qwen3next: { ...qwen35, experts: 'always', hasFusedExperts: true, hasAdjacentHeads: true },
  smollm3: { pairs: 'normal', noRopeInterval: 4 },
  olmo2: { pairs: 'neox', qkNorm: 'row', norms: 'after' },
  glm4: { pairs: 'normal', norms: 'around', hasPartialRope: true, hasFusedNetwork: true, hasPredictionLayers: true },
  glm4moe: {
    ...{ pairs: 'neox', hasPartialRope: true, experts: 'always' },
    ...{ feedForwardNormName: 'post_attention_norm', hasPredictionLayers: true },
  },
  lfm2moe: { pairs: 'neox', qkNorm: 'head', isHybrid: true, experts: 'always' },
  phi3: { pairs: 'neox', hasPartialRope: true, hasFusedNetwork: true, hasLongRope: true },
  mistral3: { pairs: 'normal', hasTemperature: true },
  bert: { pairs: 'neox', norms: 'after', isEncoder: true, bertNetwork: 'gelu', hasPositionEmbeddings: true },
  'nomic-bert': { pairs: 'neox', norms: 'after', isEncoder: true, bertNetwork: 'swiglu' },
  'jina-bert-v3': { pairs: 'neox', norms: 'after', isEncoder: true, bertNetwork: 'gelu' },
  'gemma-embedding': { pairs: 'neox', qkNorm: 'head', norms: 'around', isEncoder: true },
} as const satisfies Readonly<Record<string, ArchitectureTraits>>;

export type Architecture = keyof typeof traitsByName;
export const architectures = Object.keys(traitsByName) as readonly Architecture[];

export const traitsOf = (architecture: Architecture): ArchitectureTraits => traitsByName[architecture];
