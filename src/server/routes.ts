import { isUtf8 } from 'node:buffer';
import { randomUUID } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import { basename } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { withoutUndefined } from '../base/field-reader.ts';
import type { JsonObject } from '../base/json.ts';
import { tierReports } from '../connector/offloading/tier-report.ts';
import { engineClosed } from '../core/errors.ts';
import { type ModelSampling, unsetSampling } from '../core/sampling-parse.ts';
import type { ChatAnswerOptions } from '../engine/chat/chat-answer.ts';
import { type ModelFormats, renderConversation } from '../engine/chat/conversation.ts';
import type { AsyncEngine } from '../engine/contract.ts';
import type { AnsweredDelta } from '../engine/early-end.ts';
import { shownNames } from '../engine/model-names.ts';
import { registerAdapterRoutes } from './adapter-routes.ts';
import { registerMessageRoutes } from './anthropic/message-routes.ts';
import { type BestOf, keepBest } from './best-of.ts';
import { type CacheRouteOptions, registerCacheRoutes } from './cache/cache-routes.ts';
import { registerKvRoutes } from './cache/kv-routes.ts';
import type { Callers } from './callers.ts';
import { ChoiceCollector } from './choice-collector.ts';
import { abortWhenGone, unlessGone } from './client-connection.ts';
import { registerConversationRoutes } from './conversation-routes.ts';
import { answerEmbeddings, parseEmbeddings } from './embeddings.ts';
import { engineFor } from './engine-for.ts';
import { promptsOf } from './fill-in-middle.ts';
import { GenerationMeter, generateAll, type Prompt, prepareAnswer, preparePrompts } from './generation.ts';
import { noteError } from './http.ts';
import { registerInfillRoute } from './infill/infill-routes.ts';
import { LazyList } from './json-pieces.ts';
import type { Place } from './key-queues.ts';
import { registerKvEventRoutes } from './kv-event-routes.ts';
import type { HttpMetrics } from './metrics/http-metrics.ts';
import { registerMetrics } from './metrics/metrics-routes.ts';
import { registerOllamaRoutes } from './ollama/ollama-routes.ts';
import {
  type ParsedGeneration,
  type ParseLimits,
  parseChat,
  parseCompletion,
  parseDetokenize,
  parseTokenize,
} from './openai-parse.ts';
import { chatRenderer, completionRenderer, type RenderContext, type Renderer } from './openai-render.ts';
import type { ModelCard } from './openai-types.ts';
import {
  chatExample,
  chatOthers,
  completionExample,
  completionOthers,
  detokenizeExample,
  embeddingExample,
  tokenizeExample,
  tokenizeOthers,
} from './openapi/examples.ts';
import { registerOpenApi } from './openapi/openapi.ts';
import { registerPage } from './page-routes.ts';
import type { RequestMemory } from './request-memory.ts';
import { needsOf, needsOfTokens } from './request-needs.ts';
import type { ResponseKeeper } from './responses/response-keeper.ts';
import { registerResponseRoutes } from './responses/response-routes.ts';
import { registerScoreRoutes } from './scores.ts';
import { sendJson } from './send-json.ts';
import { errorAnswer } from './server-errors.ts';
import { addShortPaths } from './short-paths.ts';
import { EventStream } from './sse.ts';
import { traceHeadersOf } from './trace-headers.ts';
import type { UnknownFields } from './unknown-fields.ts';
import { sendWarnings } from './warning-header.ts';

export interface RouteOptions extends CacheRouteOptions, ModelFormats {
  /** Whether clients may load and unload LoRA adapters. */
  readonly enableRuntimeLora: boolean;
  readonly callers: Pick<Callers, 'requiresKey' | 'hasAdminKey'>;
  readonly version: string;
  readonly choicesMax: number;
  readonly maxNumSeqs: number;
  /** Whether the page is served at `/`. */
  readonly hasPage: boolean;
  readonly responseStoreMaxBytes: number;
  readonly responseKeeper?: ResponseKeeper;
  readonly memory: RequestMemory;
  readonly unknownFields: UnknownFields | undefined;
  /** Absent: the endpoints have their own. */
  readonly httpMetrics?: HttpMetrics;
}

/** OpenAI's default for completions. For chats the default is the rest of the context. */
const COMPLETION_MAX_TOKENS_DEFAULT = 16;

/** A parsed request of one of the two endpoints, and the renderer for its response. */
export interface Generation {
  /** Of `engineFor`. */
  readonly engine: AsyncEngine;
  readonly parsed: ParsedGeneration;
  readonly prompts: readonly Prompt[];
  /** How many prompts may be computed at the same time. */
  readonly promptsAtOnce: number;
  render(context: RenderContext): Renderer;
  readonly idPrefix: string;
  readonly echoes?: readonly string[];
  readonly answers?: ChatAnswerOptions;
  readonly bestOf?: BestOf;
}

export function registerRoutes(app: FastifyInstance, engine: AsyncEngine, options: RouteOptions): void {
  const { model } = engine;
  const limits: ParseLimits = {
    vocabSize: model.vocabSize,
    maxModelLen: model.maxModelLen,
    choicesMax: options.choicesMax,
    unknownFields: options.unknownFields,
    samplingDefaults: model.samplingDefaults,
  };
  registerOpenApi(app, options.version, limits);
  addShortPaths(app);
  const created = Math.floor(Date.now() / 1000);
  const cardOf = (id: string, parent: string | null = null): ModelCard => ({
    id,
    object: 'model',
    created,
    owned_by: 'kvasir',
    root: parent === null ? model.name : id,
    parent,
    max_model_len: model.maxModelLen,
    ...(parent === null && model.description !== undefined ? { description: model.description } : {}),
  });
  const cards = (): ModelCard[] => [
    ...[model.name, ...shownNames(model.aliases ?? [])].map((id) => cardOf(id)),
    ...(engine.adapters?.list() ?? []).map(({ name }) => cardOf(name, model.name)),
  ];
  const generations = new GenerationRoute(options);

  app.post(
    '/v1/completions',
    {
      config: {
        about: {
          summary: 'Completions of texts or tokens.',
          body: { example: completionExample, others: completionOthers, reads: [parseCompletion] },
          answer: 'CompletionBody',
          chunk: 'CompletionChunk',
          media: 'text/event-stream',
        },
      },
    },
    (request, reply) =>
      generations.answer(request, reply, async (signal, place) => {
        const parsed = parseCompletion(request.body, limits);
        const chosen = engineFor(engine, parsed.model);
        const promptsAtOnce = place.enter(parsed.prompts.length, parsed.params.n);
        await place.turn(signal);
        const prompts = await preparePrompts(
          engine,
          parsed,
          { prompts: await promptsOf(engine, parsed, signal), maxTokensDefault: COMPLETION_MAX_TOKENS_DEFAULT },
          signal,
        );
        const { bestOf } = parsed;
        const generation: Generation = {
          engine: chosen,
          parsed,
          prompts,
          promptsAtOnce,
          render: completionRenderer,
          idPrefix: 'cmpl-',
          ...(bestOf === undefined ? {} : { bestOf }),
        };
        return parsed.echo ? { ...generation, echoes: echoesOf(engine, parsed.prompts) } : generation;
      }),
  );
  app.post(
    '/v1/chat/completions',
    {
      config: {
        about: {
          summary: 'Answers to conversations.',
          body: { example: chatExample, others: chatOthers, reads: [parseChat] },
          answer: 'ChatBody',
          chunk: 'ChatChunk',
          media: 'text/event-stream',
        },
      },
    },
    (request, reply) =>
      generations.answer(request, reply, async (signal, place) => {
        const asked = parseChat(request.body, limits);
        const chosen = engineFor(engine, asked.model);
        const promptsAtOnce = place.enter(1, asked.params.n);
        await place.turn(signal);
        const prepared = await prepareAnswer(chosen, asked, options, signal);
        return { ...prepared, engine: chosen, promptsAtOnce, render: chatRenderer, idPrefix: 'chatcmpl-' };
      }),
  );
  registerConversationRoutes(app, engine, { limits, options });
  registerInfillRoute(app, engine, { limits, generations });
  registerMessageRoutes(app, engine, { limits, options, generations });
  registerOllamaRoutes(app, engine, { limits, options, generations });
  registerResponseRoutes(app, engine, limits, options);
  app.post(
    '/v1/embeddings',
    {
      config: {
        about: {
          summary: 'Vectors of texts or tokens.',
          body: { example: embeddingExample, reads: [(body, given) => parseEmbeddings(body, given, engine)] },
        },
      },
    },
    (request, reply) => answerEmbeddings(engine, request, reply, { ...options, limits }),
  );
  registerScoreRoutes(app, engine, { ...options, limits });
  app.get('/v1/models', { config: { about: { summary: 'The model, by each of its names.' } } }, () => ({
    object: 'list',
    data: cards(),
  }));
  app.get<{ Params: { model: string } }>(
    '/v1/models/:model',
    { config: { about: { summary: 'The model.', answer: 'ModelCard' } } },
    (request) => {
      const { name } = engineFor(engine, request.params.model).model;
      const listed = cards();
      // A name that only a pattern has is not listed.
      return listed.find(({ id }) => id === request.params.model) ?? listed.find(({ id }) => id === name);
    },
  );
  app.post(
    '/tokenize',
    {
      config: {
        about: {
          summary: 'Tokens of a text or a conversation.',
          body: { example: tokenizeExample, others: tokenizeOthers, reads: [parseTokenize] },
        },
      },
    },
    async (request, reply) => {
      const parsed = parseTokenize(request.body, limits);
      const { input, addSpecial, parseSpecial, tokenStrings, withPieces } = parsed;
      engineFor(engine, parsed.model);
      const answer = await unlessGone(reply, abortWhenGone(reply).signal, async (signal) => {
        const text = typeof input === 'string' ? input : await renderConversation(engine, input, signal);
        // No request computes them, so they may be more than the context has.
        const tokens = await engine.tokenizePrompt(text, { addSpecial, parseSpecial, isCut: true, signal });
        const strings = tokenStrings ? tokenStringsOf(engine, tokens) : null;
        const answered = withPieces ? piecesOf(engine, tokens) : Array.from(tokens);
        const counts = { count: tokens.length, max_model_len: model.maxModelLen };
        const body = { ...counts, tokens: answered, token_strs: strings };
        return { body, held: await options.memory.hold(needsOfTokens(tokens.length), signal, request.caller.tenant) };
      });
      if (answer === undefined) return reply;
      using _held = answer.held;
      return await sendJson(reply, answer.body, options);
    },
  );
  app.post(
    '/detokenize',
    {
      config: {
        about: {
          summary: 'The text of tokens.',
          body: { example: detokenizeExample, reads: [parseDetokenize] },
        },
      },
    },
    async (request, reply) => {
      const { model: asked, tokens } = parseDetokenize(request.body, limits);
      engineFor(engine, asked);
      using _held = await options.memory.hold(
        needsOfTokens(tokens.length),
        abortWhenGone(reply).signal,
        request.caller.tenant,
      );
      let prompt = '';
      for (const part of engine.detokenizeParts(tokens, { skipSpecialTokens: false })) {
        prompt += part;
        await nextTurn();
      }
      // Under vLLM's name, and llama-server's.
      return await sendJson(reply, { prompt, content: prompt }, options);
    },
  );
  const answerHealth = (_: unknown, reply: FastifyReply): FastifyReply => {
    if (!options.isAccepting()) return reply.status(503).send({ status: 'shutting down' });
    const health = engine.health();
    const serves = health.status === 'ok' || health.status === 'degraded';
    return reply.status(serves ? 200 : 503).send(health);
  };
  const health = { isPublic: true, about: { summary: 'Whether the server serves.' } };
  app.get('/health', { config: health }, answerHealth);
  // Amazon SageMaker's name for the same.
  app.get('/ping', { config: health }, answerHealth);
  app.post('/ping', { config: health }, answerHealth);
  // While a worker process is replaced, the server must not be restarted: a restart would end every request.
  app.get(
    '/health/live',
    { config: { isPublic: true, about: { summary: 'Whether the server lives: a restart does not help.' } } },
    (_, reply) => {
      const { status, message } = engine.health();
      if (status !== 'broken') return { status: 'ok' };
      return reply.status(503).send({ status, ...(message === undefined ? {} : { message }) });
    },
  );
  if (options.hasPage) registerPage(app);
  registerCacheRoutes(app, engine, options);
  registerKvRoutes(app, engine, { ...options, limits });
  registerMetrics(app, engine, options.httpMetrics);
  registerKvEventRoutes(app, engine);
  registerAdapterRoutes(app, engine, { ...options, limits });
  app.get('/tiers', { config: { about: { summary: 'The tiers below the pool.' } } }, () => ({
    tiers: attachedReports(engine),
  }));
  app.get('/version', { config: { about: { summary: 'The version of Kvasir.' } } }, () => ({
    version: options.version,
  }));
  // llama-server's, for clients that read the length of the context from it.
  app.get('/props', { config: { about: { summary: 'Properties of the server and its model.' } } }, () => ({
    default_generation_settings: { n_ctx: model.maxModelLen, params: samplingFields(model.samplingDefaults) },
    // What the page uses without settings.
    recommended_sampling: samplingFields(unsetSampling(model.samplingDefaults)),
    total_slots: options.maxNumSeqs,
    model_alias: model.name,
    model_path: basename(model.path),
    chat_template: model.chatTemplate ?? '',
    build_info: `kvasir ${options.version}`,
  }));
}

/** A tier that was detached has done something, and is no tier any more. */
function attachedReports(engine: AsyncEngine) {
  const reports = tierReports(engine.stats().transfers.connector);
  const names = engine.kv?.tiers() ?? [];
  return names.length === 0 ? reports : reports.filter(({ name }) => names.includes(name));
}

/** Only what differs from the defaults of OpenAI's API. */
const samplingFields = ({ temperature, topK, topP, minP, repetitionPenalty }: ModelSampling = {}): JsonObject =>
  withoutUndefined({ temperature, top_k: topK, top_p: topP, min_p: minP, repetition_penalty: repetitionPenalty });

const tokenStringsOf = (engine: AsyncEngine, tokens: Int32Array): LazyList<string> =>
  new LazyList(function* () {
    for (const token of tokens) yield engine.detokenize([token], { skipSpecialTokens: false });
  });

/** As in llama-server, a piece that is only a part of a character is a list of bytes. */
const piecesOf = (engine: AsyncEngine, tokens: Int32Array): LazyList<object> =>
  new LazyList(function* () {
    for (const id of tokens) {
      const bytes = Buffer.from(engine.tokenBytes(id));
      yield { id, piece: isUtf8(bytes) ? bytes.toString() : Array.from(bytes) };
    }
  });

/** What the response has of the prompt's logprobs. */
function promptScoresOf({ promptLogprobs, echoedLogprobs }: ParsedGeneration) {
  return {
    ...(promptLogprobs === undefined ? {} : { promptLogprobs }),
    ...(echoedLogprobs === undefined ? {} : { echoedLogprobs }),
  };
}

function echoesOf(engine: AsyncEngine, prompts: readonly (string | Int32Array)[]): string[] {
  return prompts.map((prompt) => (typeof prompt === 'string' ? prompt : engine.detokenize(prompt)));
}

/** The common part of both endpoints, from the parsed request to the last byte. */
export class GenerationRoute {
  readonly #options: RouteOptions;

  constructor(options: RouteOptions) {
    this.#options = options;
  }

  async answer(
    request: FastifyRequest,
    reply: FastifyReply,
    prepare: (signal: AbortSignal, place: Place) => Promise<Generation>,
  ): Promise<FastifyReply | object> {
    if (!this.#options.isAccepting()) throw engineClosed();
    using place = request.caller.place();
    const controller = abortWhenGone(reply);
    // Only for the preparation: `#generate` aborts the signal itself if one prompt of several fails.
    const prepared = await unlessGone(reply, controller.signal, async (signal) => {
      const generation = await prepare(signal, place);
      // What is still needed of the body is in the generation.
      request.body = undefined;
      return { generation, held: await this.#options.memory.hold(needsOf(generation), signal, request.caller.tenant) };
    });
    if (prepared === undefined) return reply;
    using _held = prepared.held;
    return await this.#generate(request, reply, controller, prepared.generation);
  }

  async #generate(
    request: FastifyRequest,
    reply: FastifyReply,
    controller: AbortController,
    generation: Generation,
  ): Promise<FastifyReply | object> {
    const { engine, parsed, prompts, promptsAtOnce } = generation;
    const n = parsed.params.n ?? 1;
    const { clock } = this.#options;
    sendWarnings(request, reply, { parsed, prompts, ignored: parsed.ignored });
    const meter = new GenerationMeter(prompts, n, clock, request.requestLog.startMs);
    request.requestLog.meter = meter;
    const id = `${generation.idPrefix}${randomUUID().replaceAll('-', '')}`;
    const renderer = generation.render({
      engine,
      id,
      created: Math.floor(Date.now() / 1000),
      prompts,
      n: generation.bestOf?.kept ?? n,
      times: meter,
      returnTokenIds: parsed.returnTokenIds,
      ...(generation.echoes === undefined ? {} : { echoes: generation.echoes }),
      ...promptScoresOf(parsed),
      ...(generation.answers === undefined ? {} : { answers: generation.answers }),
    });
    const { tenant } = request.caller;
    const settings = { parsed, id, promptsAtOnce, tenant, ...traceHeadersOf(request) };
    const deltas = generateAll(engine, prompts, settings, controller);
    if (parsed.stream) return this.#stream(request, reply, deltas, { parsed, renderer, meter, controller });
    const collector = new ChoiceCollector(prompts.length * n, parsed.params);
    for await (const delta of deltas) {
      meter.add(delta);
      collector.add(delta);
    }
    // The client has closed the connection, so there is no socket for the answer.
    if (controller.signal.aborted) return reply.hijack();
    const choices = collector.choices();
    const kept = generation.bestOf === undefined ? choices : keepBest(choices, generation.bestOf);
    return sendJson(reply, renderer.body(kept, meter.usage()), this.#options);
  }

  /** An error before the first event is thrown and becomes an HTTP error; a later error becomes an event. */
  async #stream(
    request: FastifyRequest,
    reply: FastifyReply,
    deltas: AsyncIterable<AnsweredDelta>,
    { parsed, renderer, meter, controller }: StreamParts,
  ): Promise<FastifyReply> {
    const { form } = renderer;
    const events = new EventStream(reply.raw, reply.getHeaders() as OutgoingHttpHeaders, {
      ...this.#options,
      isLines: form?.isLines === true,
    });
    const isLong = parsed.params.logprobs !== undefined;
    const usageSoFar = () => (parsed.continuousUsage ? meter.usage() : parsed.includeUsage ? null : undefined);
    try {
      for await (const delta of deltas) {
        meter.add(delta);
        for (const chunk of renderer.chunks(delta, usageSoFar())) {
          if (isLong || form !== undefined) await events.sendJson(chunk, form?.typeOf?.(chunk));
          else await events.send(JSON.stringify(chunk));
        }
      }
      if (controller.signal.aborted) return reply.hijack();
      if (parsed.includeUsage) await events.send(JSON.stringify(renderer.usageChunk?.(meter.usage())));
      if (form === undefined) await events.send('[DONE]');
    } catch (error) {
      controller.abort();
      if (!events.isOpen) throw error;
      noteError(error, request);
      const event = form?.ofError(error);
      await events.send(JSON.stringify(event ?? errorAnswer(error).body), event && form?.typeOf?.(event));
    } finally {
      events.close();
    }
    return reply.hijack();
  }
}

interface StreamParts {
  readonly parsed: ParsedGeneration;
  readonly renderer: Renderer;
  readonly meter: GenerationMeter;
  readonly controller: AbortController;
}
