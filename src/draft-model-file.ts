import { draftVocabularyDiffers } from './engine/errors.ts';
import type { EngineOptions } from './engine/options.ts';
import { type GgufFile, readGguf, weightBytesOf } from './ggml/gguf.ts';
import { readModelConfig } from './ggml/model-config.ts';
import { modelFile } from './hub/model-file.ts';
import type { DraftModelOptions } from './scheduler/speculation/options.ts';
import { firstDifferentToken } from './tokenizer/same-vocabulary.ts';

/** A draft model that can draft for the model. */
export interface DraftModelFile {
  readonly path: string;
  readonly contextLength: number;
  readonly weightBytes: number;
}

/**
 * Downloads the draft model if needed, and reads its header.
 * @throws KvasirError if it is no model that Kvasir supports, or if its vocabulary is not the model's (`draftVocabularyDiffers`)
 */
export async function readDraftModel(
  { model }: Pick<DraftModelOptions, 'model'>,
  options: Pick<EngineOptions, 'model' | 'onDownloadProgress'>,
  target: GgufFile,
): Promise<DraftModelFile> {
  const path = await modelFile(model, { onProgress: options.onDownloadProgress });
  const file = await readGguf(path);
  const token = await firstDifferentToken(target, file);
  if (token !== undefined) throw draftVocabularyDiffers({ path, token, model: options.model });
  return { path, contextLength: readModelConfig(file).contextLength, weightBytes: weightBytesOf(file) };
}
