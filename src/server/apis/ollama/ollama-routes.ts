import type { FastifyInstance } from 'fastify';
import type { AsyncEngine } from '../../../engine/contract.ts';
import type { Embedding } from '../../../engine/embed.ts';
import type { Endpoint } from '../../generation/endpoint.ts';
import { engineFor } from '../../generation/engine-for.ts';
import type { GenerationRouteOptions } from '../../generation/generation-route.ts';
import type { ParseLimits } from '../../generation/request.ts';
import type { RouteDescription } from '../../generation/route-description.ts';
import type { BodyOptions } from '../../http/body-reader.ts';
import { pullOff } from '../../http/server-errors.ts';
import {
  ollamaChatExample,
  ollamaEmbeddingsExample,
  ollamaEmbedExample,
  ollamaGenerateExample,
  ollamaGenerateOthers,
  ollamaShowExample,
  ollamaShowOthers,
} from '../../openapi/examples.ts';
import { answerEmbeddings } from '../openai/embeddings.ts';
import { type DescribedModel, describeLoaded, describeModel, showModel } from './describe-model.ts';
import { pullOfOllama, registerModelOrders, registerOllamaVersion } from './model-orders.ts';
import { answerWithoutText, type OllamaForm, ollamaRenderer } from './ollama-renderer.ts';
import {
  chatOfOllama,
  type EmbeddingOfOllama,
  embeddingOfOllama,
  generateOfOllama,
  oneEmbeddingOfOllama,
  showOfOllama,
} from './read-ollama-request.ts';

export interface OllamaRouteParts {
  readonly limits: ParseLimits;
  readonly options: GenerationRouteOptions;
}

/** The rest of Ollama's API for its clients, for the one model of the server. */
export function registerOllamaRoutes(
  app: FastifyInstance,
  engine: AsyncEngine,
  { limits, options }: OllamaRouteParts,
): void {
  registerEmbeddings(app, engine, { limits, options });
  registerModelOrders(
    app,
    (body) => pullOfOllama(body, limits),
    async (name) => {
      if (!isServed(engine, name)) throw pullOff({ model: name.slice(0, 100) });
      return nothingToDo;
    },
  );
  app.get('/api/tags', about({ summary: 'The model, and its adapters.' }), async () => {
    const adapters = (engine.adapters?.list() ?? []).map(({ name }) => engineFor(engine, name));
    const described = await Promise.all([engine, ...adapters].map(describeServed));
    return { models: described.map(({ model }) => model) };
  });
  app.get('/api/ps', about({ summary: 'The loaded model.' }), async () => ({
    models: [describeLoaded(await describeServed(engine), { size_vram: 0, context_length: engine.model.maxModelLen })],
  }));
  app.post(
    '/api/show',
    about({
      summary: 'Facts about the model.',
      body: { example: ollamaShowExample, others: ollamaShowOthers, reads: [showOfOllama] },
    }),
    async (request) => {
      const { model } = engineFor(engine, showOfOllama(request.body, limits).model);
      const { chatTemplate = '', maxModelLen } = model;
      const capabilities = capabilitiesOf(engine, options);
      return showModel(await describeServed({ model }), { chatTemplate, maxModelLen, capabilities });
    },
  );
  registerOllamaVersion(app);
}

const about = (described: RouteDescription) => ({ config: { about: { ...described, error: 'OllamaError' } } });

const answersText = { answer: 'OllamaAnswer', chunk: 'OllamaAnswer', media: 'application/x-ndjson' } as const;

/** Ollama's endpoints for conversations and prompts. */
export const ollamaEndpoints: readonly Endpoint[] = [
  {
    path: '/api/chat',
    about: {
      summary: 'Answers to conversations.',
      body: { example: ollamaChatExample, reads: [chatOfOllama] },
      ...answersText,
      error: 'OllamaError',
    },
    idPrefix: 'chat-',
    read: (body, limits) => readOf(chatOfOllama(body, limits), 'message'),
    render: ollamaRenderer('message'),
  },
  {
    path: '/api/generate',
    about: {
      summary: 'Answers to prompts.',
      body: { example: ollamaGenerateExample, others: ollamaGenerateOthers, reads: [generateOfOllama] },
      ...answersText,
      error: 'OllamaError',
    },
    idPrefix: 'cmpl-',
    read: (body, limits) => readOf(generateOfOllama(body, limits), 'response'),
    render: ollamaRenderer('response'),
  },
];

/** What concerns the model only: it stays loaded, because the server has no other. */
const readOf = (asked: ReturnType<typeof generateOfOllama>, form: OllamaForm) =>
  'kind' in asked ? { model: asked.model, answer: (name: string) => answerWithoutText(form, name, asked.kind) } : asked;

function registerEmbeddings(app: FastifyInstance, engine: AsyncEngine, { limits, options }: OllamaRouteParts): void {
  const register = (
    url: string,
    description: RouteDescription,
    read: (body: unknown, given?: BodyOptions) => EmbeddingOfOllama,
    answer: (embeddings: readonly Embedding[], startMs: number, model: string) => object,
  ) =>
    app.post(url, about(description), (request, reply) => {
      const startMs = performance.now();
      const body = read(request.body, limits);
      const { input, model } = body;
      if (Array.isArray(input) && input.length === 0) return answer([], startMs, engineFor(engine, model).model.name);
      const form = {
        body: () => body,
        answer: (made: readonly Embedding[], name: string) => answer(made, startMs, name),
      };
      return answerEmbeddings(engine, request, reply, { ...options, limits, form });
    });
  register(
    '/api/embed',
    { summary: 'Vectors of texts.', body: { example: ollamaEmbedExample, reads: [embeddingOfOllama] } },
    embeddingOfOllama,
    (embeddings, startMs, model) => ({
      model,
      embeddings: embeddings.map(({ embedding }) => Array.from(embedding)),
      total_duration: Math.round((performance.now() - startMs) * 1e6),
      load_duration: 0,
      prompt_eval_count: embeddings.reduce((sum, { stats }) => sum + stats.promptTokens, 0),
    }),
  );
  register(
    '/api/embeddings',
    {
      summary: 'The vector of a text, as older clients ask for it.',
      body: { example: ollamaEmbeddingsExample, reads: [oneEmbeddingOfOllama] },
    },
    oneEmbeddingOfOllama,
    ([only]) => ({ embedding: only === undefined ? [] : Array.from(only.embedding) }),
  );
}

const describeServed = ({ model }: Pick<AsyncEngine, 'model'>): Promise<DescribedModel> =>
  describeModel(model, model.architecture);

const nothingToDo = async (): Promise<void> => undefined;

function isServed(engine: AsyncEngine, name: string): boolean {
  try {
    return engineFor(engine, name) !== undefined;
  } catch {
    return false;
  }
}

function capabilitiesOf({ model }: AsyncEngine, { reasoningFormat }: GenerationRouteOptions): string[] {
  return [
    ...(model.makesNoText === true ? [] : ['completion']),
    ...(model.hasChatTemplate ? ['tools'] : []),
    ...(reasoningFormat === undefined ? [] : ['thinking']),
    ...(model.fimTokens === undefined ? [] : ['insert']),
    ...(model.embedding?.pooling === undefined ? [] : ['embedding']),
  ];
}
