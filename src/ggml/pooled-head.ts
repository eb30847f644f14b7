import type { Pooling } from '../core/request.ts';
import type { Architecture } from './architectures.ts';
import { modelFeatureUnsupported } from './errors.ts';
import type { GgufFile } from './gguf.ts';

/** Matrices that turn the pooled hidden states of a prompt into its embedding, or into the scores of a reranker. */
export interface PooledHead {
  readonly pooling: Pooling;
  readonly layers: readonly HeadLayer[];
  /** The length of the result. */
  readonly length: number;
  /** The result is scores. `softmax`: of several labels, of which the first says that the document is relevant. */
  readonly scores?: 'one' | 'softmax';
}

/** `activation(weight * x + bias)` */
export interface HeadLayer {
  /** Names of tensors. */
  readonly weight: string;
  readonly bias: string | undefined;
  readonly inputs: number;
  readonly outputs: number;
  readonly activation: 'tanh' | 'none';
}

/** llama.cpp's number for scores of a reranker. */
const rankPooling = 4;

/**
 * Undefined if pooled hidden states are the embeddings. Rerankers have a matrix with tanh, a matrix with one output per label, or
 * both. EmbeddingGemma may have two matrices after the mean.
 */
export function readPooledHead(
  file: GgufFile,
  architecture: Architecture,
  { embedding, isEncoder }: { readonly embedding: number; readonly isEncoder: boolean },
): PooledHead | undefined {
  const { metadata, tensors, path } = file;
  const poolingType = metadata.u32(`${architecture}.pooling_type`) ?? 0;
  const layer = (name: string, activation: HeadLayer['activation'] = 'none'): readonly HeadLayer[] => {
    const weight = `${name}.weight`;
    const tensor = tensors.get(weight);
    if (tensor === undefined) return [];
    const bias = tensors.has(`${name}.bias`) ? `${name}.bias` : undefined;
    return [{ weight, bias, inputs: tensor.ne[0], outputs: tensor.ne[1], activation }];
  };
  // The converter writes the head of a BERT's reranker, and no pooling type.
  const isRank = poolingType === rankPooling || tensors.has('cls.weight') || tensors.has('cls.output.weight');
  const layers = isRank
    ? [...layer('cls', 'tanh'), ...layer('cls.output')]
    : [...layer('dense_2'), ...layer('dense_3')];
  if (layers.length === 0) {
    if (!isRank) return undefined;
    const found = 'neither cls.weight nor cls.output.weight';
    throw modelFeatureUnsupported({ path, architecture, feature: 'a reranker without a head', found });
  }
  if (tensors.has('cls.norm.weight')) {
    throw modelFeatureUnsupported({ path, architecture, feature: 'a norm in the head', found: 'cls.norm.weight' });
  }
  const length = layers.at(-1)!.outputs;
  let inputs = embedding;
  for (const { weight, inputs: found, outputs } of layers) {
    if (found !== inputs) {
      const fit = `${weight} with ${found} inputs instead of ${inputs}`;
      throw modelFeatureUnsupported({ path, architecture, feature: 'this shape of a head', found: fit });
    }
    inputs = outputs;
  }
  if (!isRank) return { pooling: 'mean', layers, length };
  const scores = architecture === 'qwen3' ? 'softmax' : 'one';
  return { pooling: isEncoder ? 'cls' : 'last', layers, length, scores };
}

/**
 * Whether the scores are wrong because a part of the head is not in the file. The head of XLM-RoBERTa and RoBERTa has two matrices. That
 * of BERT has its pooler and one matrix, and llama.cpp's converter leaves out the pooler.
 */
export const isWithoutPooler = (architecture: Architecture, head: PooledHead | undefined): boolean =>
  architecture === 'bert' && head?.scores !== undefined && head.layers.length < 2;

/** Names and shapes of the tensors of a head. */
export const headTensors = ({ layers }: PooledHead): readonly (readonly [string, readonly number[]])[] =>
  layers.flatMap(({ weight, bias, inputs, outputs }) => [
    [weight, [inputs, outputs]] as const,
    ...(bias === undefined ? [] : [[bias, [outputs]] as const]),
  ]);
