import { type Architecture, marksStatesByHeads, traitsOf } from './architectures.ts';
import { modelFeatureUnsupported } from './errors.ts';
import type { GgufFile } from './gguf.ts';
import type { GgufMetadata } from './gguf-metadata.ts';
import { predictionLayers } from './model-tensors.ts';

/** Refuses variants of these architectures, which have the same name and compute something else. */
export function refuseFeatures({ metadata, path }: GgufFile, architecture: Architecture): void {
  const refuse = (feature: string, found: string): Error =>
    modelFeatureUnsupported({ path, architecture, feature, found });
  const experts = metadata.u32(`${architecture}.expert_count`) ?? 0;
  const traits = traitsOf(architecture);
  if (experts > 0 && traits.experts === undefined) throw refuse('a mixture of experts', `expert_count = ${experts}`);
  const temperature = metadata.f32(`${architecture}.attention.temperature_scale`) ?? 0;
  if (temperature !== 0 && traits.hasTemperature !== true)
    throw refuse('attention temperature', `attention.temperature_scale = ${temperature}`);
  const predicted = metadata.u32(`${architecture}.nextn_predict_layers`) ?? 0;
  if (predicted > predictionLayers(metadata, architecture)) {
    throw refuse('layers for multi-token prediction', `nextn_predict_layers = ${predicted}`);
  }
  // llama.cpp computes full attention in spite of this key.
  const window = metadata.u32(`${architecture}.attention.sliding_window`) ?? 0;
  if (window !== 0 && architecture === 'lfm2moe')
    throw refuse('a sliding window', `attention.sliding_window = ${window}`);
  const isCausal = metadata.bool(`${architecture}.attention.causal`);
  if (isCausal === false && !mayBeBidirectional(architecture)) {
    throw refuse('attention to later tokens (an embedding model)', 'attention.causal = false');
  }
  if (isCausal !== false && traits.bertNetwork !== undefined) {
    throw refuse('attention only to earlier tokens', `attention.causal = ${isCausal}`);
  }
  const moeInterval = metadata.u32(`${architecture}.moe_every_n_layers`) ?? 0;
  if (moeInterval > 0) throw refuse('experts in some layers', `moe_every_n_layers = ${moeInterval}`);
  const hasOtherHeads = marksStatesByHeads(traits) || architecture === 'gemma4';
  const hasOtherWidths = traits.hasSinglePartLayers === true || architecture === 'gemma4';
  const ofLayers = ['feed_forward_length', 'attention.head_count', 'attention.head_count_kv'];
  for (const name of [...ofLayers, 'expert_used_count', 'expert_feed_forward_length']) {
    if (name === 'attention.head_count_kv' && hasOtherHeads) continue;
    if (name === 'feed_forward_length' && hasOtherWidths) continue;
    const value = metadata.entries.get(`${architecture}.${name}`);
    if (value !== undefined && 'elementType' in value) throw refuse('layers of different sizes', `${name} is an array`);
  }
}

export const isBidirectional = (metadata: GgufMetadata, architecture: Architecture): boolean =>
  metadata.bool(`${architecture}.attention.causal`) === false;

/** Architectures whose files may also have attention to later tokens: all of their layers have full attention. */
const mayBeBidirectional = (architecture: Architecture): boolean =>
  traitsOf(architecture).isEncoder === true || ['llama', 'qwen2', 'qwen3'].includes(architecture);
