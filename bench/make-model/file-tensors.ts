/** The tensors of a file, where they are others than those that Kvasir reads. */
import { traitsOf } from '../../src/ggml/architectures.ts';
import type { ModelConfig } from '../../src/ggml/model-config.ts';
import { expectedTensors } from '../../src/ggml/tensor-list.ts';
import { isNemotron } from './hybrid-models.ts';
import type { ModelOptions } from './model-maker.ts';

type Shapes = ReadonlyMap<string, readonly number[]>;

export function fileTensors(options: ModelOptions, config: ModelConfig): Shapes {
  const shapes =
    options.gemma4?.spareKv === true ? withSpareKv(config) : withPrediction(config, options.predictionLayers ?? 0);
  const hasFusedQkv = config.architecture === 'phi3' || options.gemma4?.fusedQkv === true;
  const hasFusedNetwork = traitsOf(config.architecture).hasFusedNetwork === true;
  return hasFusedQkv || hasFusedNetwork ? fused(shapes, { hasFusedQkv, hasFusedNetwork }) : shapes;
}

/** Prediction layers have attention, a network like the last layer's, and what joins an embedding and a hidden state. */
function withPrediction(config: ModelConfig, count: number): Shapes {
  const { embeddingLength: embedding, layerCount } = config;
  const shapes = new Map(expectedTensors(config));
  const { networkLayers: _, ...predicting } = config;
  const normName = isNemotron(config.architecture) ? 'post_attention_norm' : config.feedForwardNormName;
  const ofAll = expectedTensors({ ...predicting, feedForwardNormName: normName, layerCount: layerCount + count });
  for (const [name, shape] of ofAll)
    if (Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? 0) >= layerCount) shapes.set(name, shape);
  for (let layer = layerCount; layer < layerCount + count; layer++) {
    const name = (rest: string): string => `blk.${layer}.nextn.${rest}.weight`;
    shapes.set(name('eh_proj'), [2 * embedding, embedding]);
    for (const norm of ['enorm', 'hnorm', 'shared_head_norm']) shapes.set(name(norm), [embedding]);
  }
  return shapes;
}

/** Also the tensors for K and V of layers that share those of others. */
function withSpareKv({ sharedKvFrom: _, ...config }: ModelConfig): Shapes {
  return expectedTensors(config);
}

/** phi3 and perhaps gemma4: one tensor for q, k and v. phi3 and glm4: one tensor for the gate and the up projection. */
function fused(shapes: Shapes, { hasFusedQkv, hasFusedNetwork }: Readonly<Record<string, boolean>>): Shapes {
  const rows = new Map<string, readonly number[]>();
  for (const [name, shape] of shapes) {
    const hasValue = shapes.has(name.replace(/attn_[qkv]\./, 'attn_v.'));
    const ofQkv = hasFusedQkv && hasValue ? name.replace(/\.attn_[qkv]\.weight$/, '.attn_qkv.weight') : name;
    const fusedName = hasFusedNetwork ? ofQkv.replace('.ffn_gate.weight', '.ffn_up.weight') : ofQkv;
    const before = rows.get(fusedName);
    rows.set(fusedName, before === undefined ? shape : [shape[0]!, before[1]! + shape[1]!]);
  }
  return rows;
}
