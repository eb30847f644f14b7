/** What architectures have of their own, besides the numbers of their metadata. Names are llama.cpp's. */
export interface ArchitectureTraits {
  /** The pairs of RoPE: adjacent elements (`normal`) or elements of two halves (`neox`). */
  readonly pairs: 'normal' | 'neox';
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
  /** Files may have one matrix for the gate and the up projection of a network: `ffn_up`, the gate first. */
  readonly hasFusedNetwork?: boolean;
  /** Files may have layers for multi-token prediction (MTP). */
  readonly hasPredictionLayers?: boolean;
  /** Of so many layers, the last has no RoPE. */
  readonly noRopeInterval?: number;
  /** RoPE may have LongRoPE's two sets of divisors. */
  readonly hasLongRope?: boolean;
  /** The metadata may have a temperature of attention. */
  readonly hasTemperature?: boolean;
}

export type QkNorm = 'none' | 'head' | 'row';

/** RMS norms of the input of attention and network (`before`), of their results (`after`), or of both (`around`). */
export type Norms = 'before' | 'after' | 'around';

const traitsByName = {
  llama: { pairs: 'normal' },
  qwen2: { pairs: 'neox' },
  qwen3: { pairs: 'neox', qkNorm: 'head' },
  qwen3moe: { pairs: 'neox', qkNorm: 'head', experts: 'always' },
  gemma3: { pairs: 'neox', qkNorm: 'head', norms: 'around' },
  'gpt-oss': { pairs: 'neox', experts: 'always', feedForwardNormName: 'post_attention_norm' },
  gemma4: { pairs: 'neox', qkNorm: 'head', norms: 'around', hasValueNorm: true, experts: 'maybe' },
  lfm2: { pairs: 'neox', qkNorm: 'head', isHybrid: true },
  deepseek2: { pairs: 'normal', experts: 'always', hasPredictionLayers: true },
  granitehybrid: { pairs: 'normal', experts: 'maybe', isHybrid: true },
  qwen35: {
    ...{ pairs: 'neox', qkNorm: 'head', hasPartialRope: true },
    ...{ feedForwardNormName: 'post_attention_norm', hasPredictionLayers: true },
  },
  qwen35moe: {
    ...{ pairs: 'neox', qkNorm: 'head', hasPartialRope: true, experts: 'always' },
    ...{ feedForwardNormName: 'post_attention_norm', hasPredictionLayers: true },
  },
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
} as const satisfies Readonly<Record<string, ArchitectureTraits>>;

export type Architecture = keyof typeof traitsByName;
export const architectures = Object.keys(traitsByName) as readonly Architecture[];

export const traitsOf = (architecture: Architecture): ArchitectureTraits => traitsByName[architecture];
