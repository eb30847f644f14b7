import { randomUUID } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../base/clock.ts';
import { tierReports } from '../connector/offloading/tier-report.ts';
import { engineClosed } from '../core/errors.ts';
import type { AsyncEngine, OutputDelta } from '../engine/contract.ts';
import {
  type AnswerFormat,
  knowsTools,
  needsControlTokens,
  type ReasoningFormat,
  type ToolFormat,
} from '../tools/formats.ts';
import { asPlainMessages, forTemplate } from '../tools/template-messages.ts';
import type { ChatAnswerOptions } from './chat-answer.ts';
import { chatPage } from './chat-page.ts';
import { ChoiceCollector } from './choice-collector.ts';
import { warningHeader } from './foreign-fields.ts';
import { GenerationMeter, generateAll, type Prompt, preparePrompts, tokenizeText } from './generation.ts';
import { noteError } from './http.ts';
import {
  type ParsedChat,
  type ParsedConversation,
  type ParsedGeneration,
  type ParseLimits,
  parseChat,
  parseCompletion,
  parseDetokenize,
  parseTokenize,
} from './openai-parse.ts';
import { chatRenderer, completionRenderer, type RenderContext, type Renderer } from './openai-render.ts';
import type { ModelCard } from './openai-types.ts';
import { errorAnswer, modelNotFound } from './server-errors.ts';
import { EventStream, type EventStreamOptions } from './sse.ts';

export interface RouteOptions extends EventStreamOptions {
  readonly version: string;
  readonly choicesMax: number;
  /** How the model writes calls of tools. */
  readonly toolFormat: ToolFormat;
  /** How it writes its thoughts; undefined: they are content. */
  readonly reasoningFormat: ReasoningFormat | undefined;
  readonly clock: Clock;
  /** While false, `/health` answers 503 and new requests are refused. */
  isAccepting(): boolean;
}

/** OpenAI's default for completions. For chats the default is the rest of the context. */
const COMPLETION_MAX_TOKENS_DEFAULT = 16;

/** A parsed request of one of the two endpoints, and the renderer for its response. */
interface Generation {
  readonly parsed: ParsedGeneration;
  readonly prompts: readonly Prompt[];
  render(context: RenderContext): Renderer;
  readonly idPrefix: string;
  readonly echoes?: readonly string[];
  readonly answers?: ChatAnswerOptions;
}

export function registerRoutes(app: FastifyInstance, engine: AsyncEngine, options: RouteOptions): void {
  const { model } = engine;
  const limits: ParseLimits = {
    vocabSize: model.vocabSize,
    maxModelLen: model.maxModelLen,
    choicesMax: options.choicesMax,
  };
  const created = Math.floor(Date.now() / 1000);
  const card: ModelCard = {
    id: model.name,
    object: 'model',
    created,
    owned_by: 'kvasir',
    root: model.name,
    parent: null,
    max_model_len: model.maxModelLen,
  };
  const generations = new GenerationRoute(engine, options);

  app.post('/v1/completions', (request, reply) =>
    generations.answer(request, reply, async (signal) => {
      const parsed = parseCompletion(request.body, limits);
      checkModel(engine, parsed.model);
      const prompts = await preparePrompts(
        engine,
        parsed,
        { prompts: parsed.prompts, maxTokensDefault: COMPLETION_MAX_TOKENS_DEFAULT },
        signal,
      );
      const generation: Generation = { parsed, prompts, render: completionRenderer, idPrefix: 'cmpl' };
      return parsed.echo ? { ...generation, echoes: echoesOf(engine, parsed.prompts) } : generation;
    }),
  );
  app.post('/v1/chat/completions', (request, reply) =>
    generations.answer(request, reply, async (signal) => {
      const asked = parseChat(request.body, limits);
      checkModel(engine, asked.model);
      const format = answerFormat(asked, options);
      const parsed = withControlTokens(asked, format);
      const text = await renderConversation(engine, parsed, signal);
      const answers = { format, prompt: text, areParallel: asked.areParallel };
      const prompts = await preparePrompts(
        engine,
        parsed,
        { prompts: [text], maxTokensDefault: model.maxModelLen },
        signal,
      );
      return { parsed, prompts, render: chatRenderer, idPrefix: 'chatcmpl', answers };
    }),
  );
  app.get('/v1/models', () => ({ object: 'list', data: [card] }));
  app.get<{ Params: { model: string } }>('/v1/models/:model', (request) => {
    checkModel(engine, request.params.model);
    return card;
  });
  app.post('/tokenize', async (request, reply) => {
    const { model: asked, input, addSpecial, tokenStrings } = parseTokenize(request.body, limits);
    checkModel(engine, asked);
    return unlessGone(reply, abortWhenGone(reply).signal, async (signal) => {
      const text = typeof input === 'string' ? input : await renderConversation(engine, input, signal);
      const tokens = await tokenizeText(engine, text, addSpecial, signal);
      const strings = tokenStrings ? await tokenStringsOf(engine, tokens) : null;
      return { count: tokens.length, max_model_len: model.maxModelLen, tokens, token_strs: strings };
    });
  });
  app.post('/detokenize', async (request) => {
    const { model: asked, tokens } = parseDetokenize(request.body, limits);
    checkModel(engine, asked);
    let prompt = '';
    for (const part of engine.detokenizeParts(tokens, { skipSpecialTokens: false })) {
      prompt += part;
      await nextTurn();
    }
    return { prompt };
  });
  app.get('/health', { config: { isPublic: true } }, (_, reply) => {
    if (!options.isAccepting()) return reply.status(503).send({ status: 'shutting down' });
    const health = engine.health();
    return reply.status(health.status === 'ok' ? 200 : 503).send(health);
  });
  // While a worker process is replaced, the server must not be restarted: a restart would end every request.
  app.get('/health/live', { config: { isPublic: true } }, (_, reply) => {
    const { status, message } = engine.health();
    if (status !== 'broken') return { status: 'ok' };
    return reply.status(503).send({ status, ...(message === undefined ? {} : { message }) });
  });
  app.get('/', { config: { isPublic: true } }, (_, reply) => reply.headers(chatPage.headers).send(chatPage.html));
  app.get('/tiers', () => ({ tiers: tierReports(engine.stats().transfers.counters) }));
  app.get('/version', () => ({ version: options.version }));
}

function checkModel(engine: AsyncEngine, requested: string | undefined): void {
  const served = engine.model.name;
  if (requested !== undefined && requested !== served) {
    throw modelNotFound({ parameter: 'model', requested: requested.slice(0, 100), served });
  }
}

function renderConversation(
  engine: AsyncEngine,
  { messages, tools, addGenerationPrompt, variables }: ParsedConversation,
  signal: AbortSignal,
): Promise<string> {
  const isKnown = knowsTools(engine.model.chatTemplate ?? '');
  const input = isKnown ? forTemplate(messages, tools) : asPlainMessages(messages, tools);
  const withTools = input.tools === undefined ? variables : { ...variables, tools: input.tools };
  return engine.renderChat(input.messages, { addGenerationPrompt, variables: withTools, signal });
}

/** How the answer is read. Without tools, calls are content, except in formats with channels. */
function answerFormat({ tools }: ParsedConversation, { toolFormat, reasoningFormat }: RouteOptions): AnswerFormat {
  const hasCalls = tools.length > 0 || toolFormat === 'openai';
  return { tools: hasCalls ? toolFormat : undefined, reasoning: reasoningFormat };
}

/** The parser needs the control tokens around calls, which are otherwise left out of the text. */
function withControlTokens(parsed: ParsedChat, { tools }: AnswerFormat): ParsedChat {
  if (tools === undefined || !needsControlTokens(tools)) return parsed;
  return { ...parsed, params: { ...parsed.params, skipSpecialTokens: false } };
}

/** Tokens between two turns of the event loop. */
const STRINGS_AT_ONCE = 2048;

async function tokenStringsOf(engine: AsyncEngine, tokens: readonly number[]): Promise<string[]> {
  const strings: string[] = [];
  for (const token of tokens) {
    strings.push(engine.detokenize([token], { skipSpecialTokens: false }));
    if (strings.length % STRINGS_AT_ONCE === 0) await nextTurn();
  }
  return strings;
}

function echoesOf(engine: AsyncEngine, prompts: readonly (string | Int32Array)[]): string[] {
  return prompts.map((prompt) => (typeof prompt === 'string' ? prompt : engine.detokenize(prompt)));
}

/** The common part of both endpoints, from the parsed request to the last byte. */
class GenerationRoute {
  readonly #engine: AsyncEngine;
  readonly #options: RouteOptions;

  constructor(engine: AsyncEngine, options: RouteOptions) {
    this.#engine = engine;
    this.#options = options;
  }

  async answer(
    request: FastifyRequest,
    reply: FastifyReply,
    prepare: (signal: AbortSignal) => Promise<Generation>,
  ): Promise<FastifyReply | object> {
    if (!this.#options.isAccepting()) throw engineClosed();
    const controller = abortWhenGone(reply);
    // Only for the preparation: `#generate` aborts the signal itself if one prompt of several fails.
    const prepared = await unlessGone(reply, controller.signal, async (signal) => ({
      generation: await prepare(signal),
    }));
    return 'generation' in prepared ? this.#generate(request, reply, controller, prepared.generation) : prepared;
  }

  async #generate(
    request: FastifyRequest,
    reply: FastifyReply,
    controller: AbortController,
    generation: Generation,
  ): Promise<FastifyReply | object> {
    const { parsed, prompts } = generation;
    const n = parsed.params.n ?? 1;
    const { clock } = this.#options;
    if (parsed.ignored.length > 0) {
      reply.header('warning', warningHeader(parsed.ignored));
      request.requestLog.ignored = parsed.ignored;
    }
    const meter = new GenerationMeter(prompts, n, clock, request.requestLog.startMs);
    request.requestLog.meter = meter;
    const id = `${generation.idPrefix}-${randomUUID().replaceAll('-', '')}`;
    const renderer = generation.render({
      engine: this.#engine,
      id,
      created: Math.floor(Date.now() / 1000),
      prompts,
      n,
      returnTokenIds: parsed.returnTokenIds,
      ...(generation.echoes === undefined ? {} : { echoes: generation.echoes }),
      ...(generation.answers === undefined ? {} : { answers: generation.answers }),
    });
    const deltas = generateAll(this.#engine, prompts, { parsed, id }, controller);
    if (parsed.stream) return this.#stream(request, reply, deltas, { parsed, renderer, meter, controller });
    const collector = new ChoiceCollector(prompts.length * n);
    for await (const delta of deltas) {
      meter.add(delta);
      collector.add(delta);
    }
    // The client has closed the connection, so there is no socket for the answer.
    if (controller.signal.aborted) return reply.hijack();
    reply.raw.setTimeout(this.#options.stallTimeoutMs);
    return renderer.body(collector.choices(), meter.usage());
  }

  /** An error before the first event is thrown and becomes an HTTP error; a later error becomes an event. */
  async #stream(
    request: FastifyRequest,
    reply: FastifyReply,
    deltas: AsyncIterable<OutputDelta>,
    { parsed, renderer, meter, controller }: StreamParts,
  ): Promise<FastifyReply> {
    const events = new EventStream(reply.raw, reply.getHeaders() as OutgoingHttpHeaders, this.#options);
    const usageSoFar = () => (parsed.continuousUsage ? meter.usage() : parsed.includeUsage ? null : undefined);
    try {
      for await (const delta of deltas) {
        meter.add(delta);
        for (const chunk of renderer.chunks(delta, usageSoFar())) await events.send(JSON.stringify(chunk));
      }
      if (parsed.includeUsage) await events.send(JSON.stringify(renderer.usageChunk(meter.usage())));
      await events.send('[DONE]');
    } catch (error) {
      controller.abort();
      if (!events.isOpen) throw error;
      noteError(error, request);
      await events.send(JSON.stringify(errorAnswer(error).body));
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

/** Sends no answer if the work failed because the client closed the connection. */
async function unlessGone<T>(
  reply: FastifyReply,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T | FastifyReply> {
  try {
    return await work(signal);
  } catch (error) {
    if (signal.aborted) return reply.hijack();
    throw error;
  }
}

/** Aborts when the connection closes before the whole response is written. */
function abortWhenGone(reply: FastifyReply): AbortController {
  const controller = new AbortController();
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) controller.abort();
  });
  if (reply.raw.destroyed) controller.abort();
  return controller;
}
