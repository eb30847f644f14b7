import type { EmbeddingModelV3, EmbeddingModelV3CallOptions, EmbeddingModelV3Result } from '@ai-sdk/provider';
import type { AsyncEngine } from '../engine/contract.ts';
import { type EmbedRequest, embedAll } from '../engine/embed.ts';
import { pickOptions } from './provider-options.ts';

/** `providerOptions.kvasir` of embeddings. */
export type KvasirEmbeddingOptions = Pick<EmbedRequest, 'dimensions' | 'normalize' | 'cacheSalt' | 'priority'>;

const names = ['dimensions', 'normalize', 'cacheSalt', 'priority'] as const satisfies readonly (keyof EmbedRequest)[];

/** An engine as an embedding model of the AI SDK 6 and 7. Errors of the engine are thrown unchanged (`KvasirError`). */
export class KvasirEmbeddingModel implements EmbeddingModelV3 {
  readonly specificationVersion = 'v3';
  readonly provider = 'kvasir';
  readonly modelId: string;
  /** The engine divides the inputs into steps. */
  readonly maxEmbeddingsPerCall = Infinity;
  readonly supportsParallelCalls = true;
  readonly #engine: () => Promise<AsyncEngine>;

  /** `engine` is called for each request. */
  constructor(engine: () => Promise<AsyncEngine>, modelId: string) {
    this.#engine = engine;
    this.modelId = modelId;
  }

  // A function of the object: AI SDK 7 calls it on a proxy, which has no private fields.
  readonly doEmbed = async (options: EmbeddingModelV3CallOptions): Promise<EmbeddingModelV3Result> => {
    const { values, abortSignal } = options;
    const settings: KvasirEmbeddingOptions = pickOptions(options.providerOptions?.kvasir, names);
    const engine = await this.#engine();
    abortSignal?.throwIfAborted();
    const embedded = await embedAll(
      engine,
      values.map((prompt) => ({ ...settings, prompt })),
      { signal: abortSignal },
    );
    return {
      embeddings: embedded.map(({ embedding }) => Array.from(embedding)),
      usage: { tokens: embedded.reduce((sum, { stats }) => sum + stats.promptTokens, 0) },
      warnings: [],
    };
  };
}
