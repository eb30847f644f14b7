import type { GgufMetadata } from './gguf-metadata.ts';
import type { GgufTensor } from './gguf-tensors.ts';

/** Architectures whose files may have layers for multi-token prediction (MTP), in llama.cpp's order of tensors. */
const withPredictionLayers: readonly string[] = ['qwen35', 'qwen35moe', 'deepseek2'];

/**
 * Layers after those that compute the next token: they predict the tokens after it. Kvasir does not compute them, so they have
 * neither weights in memory nor KV. 0 for architectures that cannot have them.
 */
export function predictionLayers(metadata: GgufMetadata, architecture: string): number {
  return withPredictionLayers.includes(architecture) ? (metadata.u32(`${architecture}.nextn_predict_layers`) ?? 0) : 0;
}

/** The tensors of a file that Kvasir reads: all but those of prediction layers. */
export function modelTensors(
  metadata: GgufMetadata,
  tensors: ReadonlyMap<string, GgufTensor>,
): ReadonlyMap<string, GgufTensor> {
  const architecture = metadata.string('general.architecture') ?? '';
  const skipped = predictionLayers(metadata, architecture);
  if (skipped === 0) return tensors;
  const first = (metadata.u32(`${architecture}.block_count`) ?? 0) - skipped;
  // Without another layer the file is invalid, which `readModelConfig` says.
  if (first < 1) return tensors;
  const isRead = (name: string): boolean => Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? 0) < first;
  return new Map([...tensors].filter(([name]) => isRead(name)));
}
