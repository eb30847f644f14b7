import { createHash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { AsyncEngine } from '../../engine/contract.ts';
import type { Embedding } from '../../engine/embed.ts';
import { answerEmbeddings } from '../embeddings.ts';
import { engineFor } from '../engine-for.ts';
import { promptsOf } from '../fill-in-middle.ts';
import { prepareAnswer, preparePrompts } from '../generation.ts';
import { type ParseLimits, parseChat, parseCompletion } from '../openai-parse.ts';
import {
  ollamaChatExample,
  ollamaEmbedExample,
  ollamaGenerateExample,
  ollamaGenerateOthers,
  ollamaShowExample,
  ollamaShowOthers,
} from '../openapi/examples.ts';
import type { RouteDescription } from '../openapi/openapi.ts';
import type { GenerationRoute, RouteOptions } from '../routes.ts';
import { ollamaError, ollamaRenderer } from './ollama-renderer.ts';
import type { OllamaModel } from './ollama-types.ts';
import { chatOfOllama, embeddingOfOllama, generateOfOllama, modelOfOllama } from './read-ollama-request.ts';

export interface OllamaRouteParts {
  readonly limits: ParseLimits;
  readonly options: RouteOptions;
  readonly generations: GenerationRoute;
}

/** Ollama's API for its clients, for the one model of the server. */
export function registerOllamaRoutes(
  app: FastifyInstance,
  engine: AsyncEngine,
  { limits, options, generations }: OllamaRouteParts,
): void {
  const about = (described: RouteDescription) => ({
    config: { errorBody: ollamaError, about: { ...described, error: 'OllamaError' } },
  });
  const chat = (
    request: FastifyRequest,
    reply: Parameters<GenerationRoute['answer']>[1],
    form: 'message' | 'response',
    { body, ignored }: ReturnType<typeof chatOfOllama>,
  ) =>
    generations.answer(request, reply, async (signal, place) => {
      const asked = parseChat(body, limits);
      const chosen = engineFor(engine, asked.model);
      const promptsAtOnce = place.enter(1);
      await place.turn(signal);
      const all = { ...asked, continuousUsage: true, ignored: [...asked.ignored, ...ignored] };
      const prepared = await prepareAnswer(chosen, all, options, signal);
      return { ...prepared, engine: chosen, promptsAtOnce, render: ollamaRenderer(form), idPrefix: 'chat-' };
    });
  app.post(
    '/api/chat',
    about({
      summary: 'Answers to conversations.',
      body: { example: ollamaChatExample, reads: [chatOfOllama] },
      answer: 'OllamaAnswer',
      chunk: 'OllamaAnswer',
      media: 'application/x-ndjson',
    }),
    (request, reply) => chat(request, reply, 'message', chatOfOllama(request.body, limits)),
  );
  app.post(
    '/api/generate',
    about({
      summary: 'Answers to prompts.',
      body: { example: ollamaGenerateExample, others: ollamaGenerateOthers, reads: [generateOfOllama] },
      answer: 'OllamaAnswer',
      chunk: 'OllamaAnswer',
      media: 'application/x-ndjson',
    }),
    (request, reply) => {
      const { kind, model, ...asked } = generateOfOllama(request.body, limits);
      if (kind === 'chat') return chat(request, reply, 'response', asked);
      if (kind === 'load') {
        return {
          model: engineFor(engine, model).model.name,
          created_at: new Date().toISOString(),
          response: '',
          done: true,
          done_reason: 'load',
        };
      }
      return generations.answer(request, reply, async (signal, place) => {
        const read = parseCompletion(asked.body, limits);
        const chosen = engineFor(engine, read.model);
        const promptsAtOnce = place.enter(1);
        await place.turn(signal);
        const parsed = { ...read, continuousUsage: true, ignored: [...read.ignored, ...asked.ignored] };
        const texts = { prompts: await promptsOf(engine, parsed, signal), maxTokensDefault: engine.model.maxModelLen };
        const prompts = await preparePrompts(engine, parsed, texts, signal);
        return {
          engine: chosen,
          parsed,
          prompts,
          promptsAtOnce,
          render: ollamaRenderer('response'),
          idPrefix: 'cmpl-',
        };
      });
    },
  );
  app.post(
    '/api/embed',
    about({
      summary: 'Vectors of texts.',
      body: { example: ollamaEmbedExample, reads: [embeddingOfOllama] },
    }),
    (request, reply) => {
      const startMs = performance.now();
      const answer = (embeddings: readonly Embedding[], model: string): object => ({
        model,
        embeddings: embeddings.map(({ embedding }) => Array.from(embedding)),
        total_duration: Math.round((performance.now() - startMs) * 1e6),
        load_duration: 0,
        prompt_eval_count: embeddings.reduce((sum, { stats }) => sum + stats.promptTokens, 0),
      });
      const form = { body: (given: unknown) => embeddingOfOllama(given, limits), answer };
      return answerEmbeddings(engine, request, reply, { ...options, limits, form });
    },
  );
  app.get('/api/tags', about({ summary: 'The model, and its adapters.' }), async () => {
    const adapters = (engine.adapters?.list() ?? []).map(({ name }) => engineFor(engine, name));
    return { models: await Promise.all([engine, ...adapters].map(describeModel)) };
  });
  app.get('/api/ps', about({ summary: 'The loaded model.' }), async () => {
    const { size, ...model } = await describeModel(engine);
    const loaded = { size, size_vram: 0, context_length: engine.model.maxModelLen };
    return { models: [{ ...model, ...loaded, expires_at: new Date(Date.now() + dayMs).toISOString() }] };
  });
  app.post(
    '/api/show',
    about({
      summary: 'Facts about the model.',
      body: { example: ollamaShowExample, others: ollamaShowOthers, reads: [modelOfOllama] },
    }),
    async (request) => {
      engineFor(engine, modelOfOllama(request.body, limits));
      const { details, modified_at } = await describeModel(engine);
      const { architecture, chatTemplate = '', maxModelLen } = engine.model;
      const model_info = { 'general.architecture': architecture, [`${architecture}.context_length`]: maxModelLen };
      const capabilities = capabilitiesOf(engine, options);
      return { modelfile: '', parameters: '', template: chatTemplate, details, model_info, capabilities, modified_at };
    },
  );
  app.get('/api/version', about({ summary: 'The version of Kvasir.' }), () => ({ version: options.version }));
}

const dayMs = 86_400_000;

async function describeModel({ model }: AsyncEngine): Promise<OllamaModel> {
  // The file may be gone by now, or never have been one.
  const file = await stat(model.path).catch(() => undefined);
  const [size, modified] = [file?.size ?? 0, file?.mtime ?? new Date(0)];
  const digest = createHash('sha256').update(`${model.path} ${size} ${modified.getTime()}`).digest('hex');
  return {
    name: model.name,
    model: model.name,
    modified_at: modified.toISOString(),
    size,
    digest,
    details: {
      parent_model: '',
      format: 'gguf',
      family: model.architecture,
      families: [model.architecture],
      parameter_size: '',
      quantization_level: '',
    },
  };
}

function capabilitiesOf({ model }: AsyncEngine, { reasoningFormat }: RouteOptions): string[] {
  return [
    ...(model.makesNoText === true ? [] : ['completion']),
    ...(model.hasChatTemplate ? ['tools'] : []),
    ...(reasoningFormat === undefined ? [] : ['thinking']),
    ...(model.fimTokens === undefined ? [] : ['insert']),
    ...(model.embedding?.pooling === undefined ? [] : ['embedding']),
  ];
}
