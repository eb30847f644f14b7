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
}

/** ggml's top-k sorts the experts of a token in memory on the stack. */
const expertsMax = 1024;

/**
 * Reads the experts of an architecture that has them in every layer. `sharedWidth`: the width that the chosen experts
 * share if the metadata has no width of an expert.
 */
export function readExpertConfig(
  { metadata, path }: GgufFile,
  architecture: string,
  sharedWidth?: number,
): ExpertConfig {
  const read = (name: string, largest: number, fallback?: number): number => {
    const key = `${architecture}.${name}`;
    const value = metadata.require(key, metadata.u32(key) ?? fallback);
    if (value < 1 || value > largest) throw metadata.invalid(key, `between 1 and ${largest}`);
    return value;
  };
  const count = read('expert_count', expertsMax);
  const used = read('expert_used_count', count);
  const refuse = (name: string, found: number | undefined): void => {
    if (found === undefined || found === 0 || found === 1) return;
    throw modelFeatureUnsupported({ path, architecture, feature: 'this router', found: `${name} = ${found}` });
  };
  refuse('expert_group_count', metadata.u32(`${architecture}.expert_group_count`));
  refuse('expert_weights_scale', metadata.f32(`${architecture}.expert_weights_scale`));
  const width = sharedWidth === undefined ? undefined : Math.floor(sharedWidth / used);
  return { count, used, feedForwardLength: read('expert_feed_forward_length', 1 << 24, width) };
}
