import { modelFeatureUnsupported } from './errors.ts';
import type { GgufFile } from './gguf.ts';

/** A mixture of experts: for each token, a router chooses some of the feed-forward networks of a layer. */
export interface ExpertConfig {
  /** Experts of a layer. */
  readonly count: number;
  /** Experts that the router chooses for a token. */
  readonly used: number;
  /** The hidden width of one expert. */
  readonly feedForwardLength: number;
  /** First layers that have one network instead; default 0. */
  readonly denseLayers?: number;
  /** The hidden width of the shared network, which computes every token. Default: no shared network. */
  readonly sharedLength?: number;
  /** The function that makes probabilities of the router's results; default `softmax`. */
  readonly gating?: ExpertGating;
  /** Whether the weights of the chosen experts are divided by their sum; default true. */
  readonly dividesBySum?: boolean;
  /** Factor of the weights; default 1. */
  readonly weightScale?: number;
  /** `blk.N.exp_probs_b.bias` is added to the probabilities that choose, not to those that weigh; default false. */
  readonly hasChoiceBias?: boolean;
  /** Experts of a token come from some groups of adjacent experts. Default: from all of them. */
  readonly groups?: ExpertGroups;
  /** Whether a gate multiplies the result of the shared network. */
  readonly hasSharedGate?: boolean;
  /** `blk.N.ffn_gate_up_exps.weight`: one matrix of each expert for the gate, which comes first, and the up projection. Default: two. */
  readonly hasFusedGate?: boolean;
  /** Experts compute rows of this length, which a matrix makes of each row, and another matrix turns their sum back. Default: none. */
  readonly latentLength?: number;
  /** Whether layers have their network beside the experts, with norms and a router of their own; default false. */
  readonly isBesideNetwork?: boolean;
  /** `blk.N.ffn_down_exps.scale` multiplies the result of each expert; default false. */
  readonly hasResultScale?: boolean;
}

export interface ExpertGroups {
  readonly count: number;
  /** Groups that the router chooses for a token. */
  readonly used: number;
  /** The score of a group is the sum of so many of its largest scores: 2 in DeepSeek V3, 1 in DeepSeek V2. */
  readonly summed: 1 | 2;
}

export type ExpertGating = 'softmax' | 'sigmoid';

/** ggml's top-k sorts the experts of a token in memory on the stack. */
const expertsMax = 1024;

/**
 * Reads the experts of an architecture that has them in every layer. `sharedWidth`: the width that the chosen experts
 * share if the metadata has no width of an expert.
 */
export function readExpertConfig(file: GgufFile, architecture: string, sharedWidth?: number): ExpertConfig {
  const reader = new ExpertReader(file, architecture);
  const { count, used } = reader.counts();
  reader.refuse('expert_weights_scale');
  const width = sharedWidth === undefined ? undefined : Math.floor(sharedWidth / used);
  return { count, used, feedForwardLength: reader.read('expert_feed_forward_length', 1 << 24, width) };
}

/** Reads the experts of DeepSeek 2 and GLM 4.5: leading layers without experts, shared experts, and the router's variants. */
export function readDeepseekExperts(
  file: GgufFile,
  architecture: string,
  { layerCount, vocabSize }: { readonly layerCount: number; readonly vocabSize: number },
): ExpertConfig | undefined {
  const { metadata } = file;
  const key = (name: string): string => `${architecture}.${name}`;
  const denseLayers = metadata.u32(key('leading_dense_block_count')) ?? 0;
  if (denseLayers >= layerCount) return undefined;
  const reader = new ExpertReader(file, architecture);
  const { count, used } = reader.counts('with groups');
  const feedForwardLength = reader.read('expert_feed_forward_length', 1 << 24);
  const sharedCount = reader.read('expert_shared_count', expertsMax);
  const weightScale = metadata.f32(key('expert_weights_scale')) ?? 0;
  const gating = readGating(file, architecture, layerCount, vocabSize);
  const groups = reader.groups(count, used, gating);
  return {
    count,
    used,
    feedForwardLength,
    denseLayers,
    sharedLength: sharedCount * feedForwardLength,
    gating,
    ...(groups === undefined ? {} : { groups }),
    dividesBySum: metadata.bool(key('expert_weights_norm')) ?? false,
    weightScale: weightScale === 0 ? 1 : weightScale,
    hasChoiceBias: file.tensors.has(`blk.${denseLayers}.exp_probs_b.bias`),
  };
}

/** Without the key it is softmax, except for GLM. llama.cpp recognizes GLM 4.7 Flash by its shape. */
function readGating(
  { metadata, path }: GgufFile,
  architecture: string,
  layerCount: number,
  vocabSize: number,
): ExpertGating {
  const found = metadata.u32(`${architecture}.expert_gating_func`) ?? 0;
  const isGlm = architecture === 'glm4moe' || ((layerCount === 47 || layerCount === 48) && vocabSize === 154_880);
  const gating = found === 0 ? Number(isGlm) + 1 : found;
  if (gating === 1) return 'softmax';
  if (gating === 2) return 'sigmoid';
  const feature = 'this router';
  throw modelFeatureUnsupported({ path, architecture, feature, found: `expert_gating_func = ${found}` });
}

/** Reads the experts of LFM 2: leading layers without experts, and a bias of the choice. The weights are shares. */
export function readLfm2Experts(
  file: GgufFile,
  architecture: string,
  { layerCount, vocabSize }: { readonly layerCount: number; readonly vocabSize: number },
): ExpertConfig | undefined {
  const { metadata } = file;
  const denseLayers = metadata.u32(`${architecture}.leading_dense_block_count`) ?? 0;
  if (denseLayers >= layerCount) return undefined;
  const experts = readExpertConfig(file, architecture);
  const gating = readGating(file, architecture, layerCount, vocabSize);
  return { ...experts, denseLayers, gating, hasChoiceBias: true };
}

class ExpertReader {
  readonly #file: GgufFile;
  readonly #architecture: string;

  constructor(file: GgufFile, architecture: string) {
    this.#file = file;
    this.#architecture = architecture;
  }

  counts(groups?: 'with groups'): { readonly count: number; readonly used: number } {
    if (groups === undefined) this.refuse('expert_group_count');
    const count = this.read('expert_count', expertsMax);
    return { count, used: this.read('expert_used_count', count) };
  }

  /** Undefined if the experts come from all groups. */
  groups(experts: number, chosen: number, gating: ExpertGating): ExpertGroups | undefined {
    const { metadata } = this.#file;
    const key = `${this.#architecture}.expert_group_count`;
    const count = metadata.u32(key) ?? 0;
    if (count <= 1) return undefined;
    const used = this.read('expert_group_used_count', count);
    const summed = gating === 'sigmoid' ? 2 : 1;
    if (experts % count !== 0 || experts / count < summed || (experts / count) * used < chosen) {
      throw metadata.invalid(key, `a divisor of expert_count, which is ${experts}, with enough experts for a token`);
    }
    return used === count ? undefined : { count, used, summed };
  }

  read(name: string, largest: number, fallback?: number): number {
    const { metadata } = this.#file;
    const key = `${this.#architecture}.${name}`;
    const value = metadata.require(key, metadata.u32(key) ?? fallback);
    if (value < 1 || value > largest) throw metadata.invalid(key, `between 1 and ${largest}`);
    return value;
  }

  /** Refuses a file with another value than 0 and 1. */
  refuse(name: 'expert_group_count' | 'expert_weights_scale'): void {
    const { metadata, path } = this.#file;
    const key = `${this.#architecture}.${name}`;
    const found = (name === 'expert_group_count' ? metadata.u32(key) : metadata.f32(key)) ?? 0;
    if (found === 0 || found === 1) return;
    const architecture = this.#architecture;
    throw modelFeatureUnsupported({ path, architecture, feature: 'this router', found: `${name} = ${found}` });
  }
}

/** Experts of Nemotron 3: a sigmoid and a bias of the choice, a shared network, and perhaps shorter rows. */
export function readNemotronExperts(file: GgufFile, architecture: string, feedForwardLength: number): ExpertConfig {
  const { metadata } = file;
  const key = (name: string): string => `${architecture}.${name}`;
  const reader = new ExpertReader(file, architecture);
  const { count, used } = reader.counts();
  const weightScale = metadata.f32(key('expert_weights_scale')) ?? 0;
  const latentLength = metadata.u32(key('moe_latent_size')) ?? 0;
  if (latentLength > 1 << 24) throw metadata.invalid(key('moe_latent_size'), 'at most 2^24');
  return {
    count,
    used,
    feedForwardLength: reader.read('expert_feed_forward_length', 1 << 24, Math.floor(feedForwardLength / used)),
    sharedLength: reader.read('expert_shared_feed_forward_length', 1 << 24),
    gating: 'sigmoid',
    dividesBySum: metadata.bool(key('expert_weights_norm')) ?? false,
    weightScale: weightScale === 0 ? 1 : weightScale,
    hasChoiceBias: true,
    ...(latentLength === 0 ? {} : { latentLength }),
  };
}

/** Experts of Granite, which are as wide as the dense networks of the architecture, and may have a shared network. */
export function readGraniteExperts(file: GgufFile, architecture: string, feedForwardLength: number): ExpertConfig {
  const experts = readExpertConfig(file, architecture, feedForwardLength);
  const key = `${architecture}.expert_shared_feed_forward_length`;
  const sharedLength = file.metadata.u32(key) ?? 0;
  if (sharedLength > 1 << 24) throw file.metadata.invalid(key, 'at most 2^24');
  return { ...experts, feedForwardLength, ...(sharedLength === 0 ? {} : { sharedLength }) };
}

/** Experts of Qwen 3.5 and Qwen3-Next, which have a shared network with a gate. */
export function readQwen35Experts(file: GgufFile, architecture: string, feedForwardLength: number): ExpertConfig {
  const experts = readExpertConfig(file, architecture, feedForwardLength);
  const key = `${architecture}.expert_shared_feed_forward_length`;
  const sharedLength = file.metadata.u32(key) ?? feedForwardLength;
  if (sharedLength < 1 || sharedLength > 1 << 24) throw file.metadata.invalid(key, 'between 1 and 2^24');
  return { ...experts, sharedLength, hasSharedGate: true };
}
