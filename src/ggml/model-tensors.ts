import { architectures, traitsOf } from './architectures.ts';
import type { GgufMetadata } from './gguf-metadata.ts';
import type { GgufTensor } from './gguf-tensors.ts';
import { rowBytes } from './types.ts';

type Tensors = ReadonlyMap<string, GgufTensor>;

/**
 * Layers after those that compute the next token: they predict the tokens after it. Only speculation computes them (`mtp`), so
 * without it they have neither weights in memory nor KV. 0 for architectures that cannot have them.
 */
export function predictionLayers(metadata: GgufMetadata, architecture: string): number {
  return traitsNamed(architecture)?.hasPredictionLayers === true
    ? (metadata.u32(`${architecture}.nextn_predict_layers`) ?? 0)
    : 0;
}

/**
 * The tensors of a file as Kvasir reads them: those of prediction layers apart, and with one tensor for each matrix where the
 * file has several in one. The rows of a matrix are adjacent in the file, so a part of the rows is a matrix too.
 */
export function modelTensors(metadata: GgufMetadata, tensors: Tensors) {
  const architecture = metadata.string('general.architecture') ?? '';
  const all = withoutSharedKv(metadata, architecture, withoutFusion(metadata, architecture, tensors));
  const isPredicting = isOfPrediction(metadata, architecture);
  return {
    tensors: new Map([...all].filter(([name]) => !isPredicting(name))),
    predictionTensors: new Map([...all].filter(([name]) => isPredicting(name))),
  };
}

function withoutFusion(metadata: GgufMetadata, architecture: string, tensors: Tensors): Tensors {
  const isFused = (name: string): boolean => /^blk\.\d+\.(attn_qkv\.|ffn_up\.weight$)/.test(name);
  if (![...tensors.keys()].some(isFused)) return tensors;
  return new Map(
    [...tensors.values()].flatMap((tensor) =>
      partsOf(metadata, architecture, tensors, tensor).map((part) => [part.name, part] as const),
    ),
  );
}

/**
 * The matrices of the model in a matrix that has as many rows as one of the model's file: itself, or several where the file has them
 * in one. `tensor` has the name of the file's matrix.
 */
export function matricesIn(
  { metadata, tensors }: { readonly metadata: GgufMetadata; readonly tensors: Tensors },
  tensor: GgufTensor,
): readonly GgufTensor[] {
  // Where the file had a fused network, the model's tensors have both parts.
  const outputs = new Map([...tensors].filter(([name]) => name.endsWith('.attn_output.weight')));
  return partsOf(metadata, metadata.string('general.architecture') ?? '', outputs, tensor);
}

/** Whether a tensor is one of a prediction layer, by its name. */
function isOfPrediction(metadata: GgufMetadata, architecture: string): (name: string) => boolean {
  const count = predictionLayers(metadata, architecture);
  const first = (metadata.u32(`${architecture}.block_count`) ?? 0) - count;
  // Without another layer the file is invalid, which `readModelConfig` says.
  if (count === 0 || first < 1) return () => false;
  return (name) => Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? 0) >= first;
}

/** Without the tensors for K and V in layers that read those of earlier layers: files may have them, and nothing reads them. */
function withoutSharedKv(metadata: GgufMetadata, architecture: string, tensors: Tensors): Tensors {
  const shared = architecture === 'gemma4' ? (metadata.u32(`${architecture}.attention.shared_kv_layers`) ?? 0) : 0;
  if (shared === 0) return tensors;
  const first = (metadata.u32(`${architecture}.block_count`) ?? 0) - shared;
  const isRead = (name: string): boolean => Number(/^blk\.(\d+)\.attn_(k|v|k_norm)\./.exec(name)?.[1] ?? -1) < first;
  return new Map([...tensors].filter(([name]) => isRead(name)));
}

/** The matrices in a tensor: itself, unless it has the rows of several. Shapes that do not fit are left to `checkTensors`. */
function partsOf(
  metadata: GgufMetadata,
  architecture: string,
  tensors: Tensors,
  tensor: GgufTensor,
): readonly GgufTensor[] {
  const [, layer, index, part, kind] = /^(blk\.(\d+)\.)(attn_qkv|ffn_up)\.(weight|bias)$/.exec(tensor.name) ?? [];
  const rows = kind === 'bias' ? tensor.ne[0] : tensor.ne[1];
  const output = tensors.get(`${layer}attn_output.weight`);
  if (part === 'attn_qkv' && output !== undefined) {
    // Gemma 4 has heads of another length in each kind of layer.
    const keys =
      architecture === 'gemma4' ? (rows - output.ne[0]) / 2 : keyElements(metadata, architecture, Number(index));
    if (!(keys > 0 && rows > 2 * keys)) return [tensor];
    const queries = rows - 2 * keys;
    return [
      rowsOf(tensor, `${layer}attn_q.${kind}`, 0, queries),
      rowsOf(tensor, `${layer}attn_k.${kind}`, queries, keys),
      rowsOf(tensor, `${layer}attn_v.${kind}`, queries + keys, keys),
    ];
  }
  const isFusedNetwork = part === 'ffn_up' && kind === 'weight' && traitsNamed(architecture)?.hasFusedNetwork === true;
  if (!isFusedNetwork || tensors.has(`${layer}ffn_gate.weight`)) return [tensor];
  const width = metadata.u32(`${architecture}.feed_forward_length`) ?? 0;
  if (rows !== 2 * width) return [tensor];
  return [rowsOf(tensor, `${layer}ffn_gate.weight`, 0, width), rowsOf(tensor, `${layer}ffn_up.weight`, width, width)];
}

/** Elements of all keys of a token in one layer. */
function keyElements(metadata: GgufMetadata, architecture: string, layer: number): number {
  const number = (name: string): number => metadata.u32(`${architecture}.${name}`) ?? 0;
  const heads = number('attention.head_count');
  const headDim =
    metadata.u32(`${architecture}.attention.key_length`) ?? Math.floor(number('embedding_length') / heads);
  const kvHeads = metadata.u32OfLayers(`${architecture}.attention.head_count_kv`, number('block_count'));
  return headDim * (kvHeads === undefined ? heads : (kvHeads[layer] ?? 0));
}

/** Some rows of a matrix, or some elements of a bias, as a tensor. */
function rowsOf(tensor: GgufTensor, name: string, first: number, count: number): GgufTensor {
  const { type, ne } = tensor;
  const isBias = name.endsWith('.bias');
  const bytes = isBias ? type.typeSize : rowBytes(type, ne[0]);
  return {
    ...tensor,
    name,
    ne: isBias ? [count, 1, 1, 1] : [ne[0], count, 1, 1],
    byteLength: count * bytes,
    fileOffset: tensor.fileOffset + first * bytes,
  };
}

const traitsNamed = (architecture: string) => {
  const known = architectures.find((name) => name === architecture);
  return known === undefined ? undefined : traitsOf(known);
};
