/** A provider for the AI SDK (`ai` on npm) that runs the model in this process: the entry point `kvasir/ai-sdk`. */
import { KvasirEmbeddingModel } from './ai-sdk/embedding-model.ts';
import { KvasirLanguageModel } from './ai-sdk/language-model.ts';
import { checkIsEngine } from './engine/check-arguments.ts';
import type { AsyncEngine } from './engine/contract.ts';
import { modelNames } from './engine/model-names.ts';
import type { EngineOptions } from './engine/options.ts';
import { LLM } from './llm.ts';

export { KvasirEmbeddingModel, type KvasirEmbeddingOptions } from './ai-sdk/embedding-model.ts';
export { KvasirLanguageModel } from './ai-sdk/language-model.ts';
export type { KvasirProviderOptions } from './ai-sdk/provider-options.ts';

/** The provider of one model. It opens the model at the first request. */
export interface KvasirProvider {
  /** The language model. A provider has one model, so its name here appears in the AI SDK's reports only. */
  (modelId?: string): KvasirLanguageModel;
  languageModel(modelId?: string): KvasirLanguageModel;
  /** The same model for embeddings, if its file or the option `pooling` says how it makes them. */
  embeddingModel(modelId?: string): KvasirEmbeddingModel;
  /** The engine itself. */
  engine(): Promise<AsyncEngine>;
  /** Aborts the running requests and frees the model. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * A provider that opens and owns an engine.
 *
 * ```ts
 * await using provider = createKvasir({ model: 'model.gguf' });
 * const { text } = await generateText({ model: provider(), prompt: 'Tell me a story.' });
 * ```
 */
export function createKvasir(options: EngineOptions): KvasirProvider {
  const llm = new LLM(options);
  const { name } = modelNames(options);
  const languageModel = (modelId = name) => new KvasirLanguageModel(() => llm.engine(), modelId);
  return Object.assign((modelId?: string) => languageModel(modelId), {
    languageModel,
    embeddingModel: (modelId = name) => new KvasirEmbeddingModel(() => llm.engine(), modelId),
    engine: () => llm.engine(),
    close: () => llm.close(),
    [Symbol.asyncDispose]: () => llm.close(),
  });
}

/** The language model of an engine, which the caller owns and closes. */
export function kvasir(engine: AsyncEngine): KvasirLanguageModel {
  checkIsEngine(engine);
  return new KvasirLanguageModel(async () => engine, engine.model.name);
}

/** The embedding model of an engine, which the caller owns and closes. */
export function kvasirEmbeddings(engine: AsyncEngine): KvasirEmbeddingModel {
  checkIsEngine(engine);
  return new KvasirEmbeddingModel(async () => engine, engine.model.name);
}
