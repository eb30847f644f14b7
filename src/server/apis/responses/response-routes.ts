import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { engineClosed } from '../../../core/errors.ts';
import type { AsyncEngine } from '../../../engine/contract.ts';
import { engineFor } from '../../generation/engine-for.ts';
import { GenerationMeter, prepareAnswer } from '../../generation/generation.ts';
import { type GenerationRouteOptions, sendStream } from '../../generation/generation-route.ts';
import { answerPrompt, type ConversationPrompt, inputTokens } from '../../generation/prompt-route.ts';
import type { StreamForm } from '../../generation/renderer.ts';
import type { ParsedChat, ParseLimits } from '../../generation/request.ts';
import { needsOf } from '../../generation/request-needs.ts';
import type { BodyDescription, RouteDescription } from '../../generation/route-description.ts';
import { sendWarnings } from '../../generation/warning-header.ts';
import { abortWhenGone, unlessGone } from '../../http/client-connection.ts';
import { noteError } from '../../http/http.ts';
import type { Place } from '../../http/key-queues.ts';
import type { HeldMemory } from '../../http/request-memory.ts';
import { sendJson } from '../../http/send-json.ts';
import { fieldNotSupported } from '../../http/server-errors.ts';
import { traceHeadersOf } from '../../http/trace-headers.ts';
import { responseExample, responseOthers } from '../../openapi/examples.ts';
import { type InputItemQuery, listInputItems } from './input-items.ts';
import { parseResponse } from './parse-response.ts';
import type { ResponseKeeper } from './response-keeper.ts';
import { ResponseRun } from './response-run.ts';
import type { ResponseEvent } from './response-types.ts';
import { type ResponseJob, type Responses, TenantResponses } from './responses.ts';
import { truncated } from './truncate-conversation.ts';

export interface ResponseRouteOptions extends GenerationRouteOptions {
  readonly responseStoreMaxBytes: number;
  readonly responseKeeper?: ResponseKeeper;
}

/** `/v1/responses`: OpenAI's API for conversations whose state is on the server. */
export function registerResponseRoutes(
  app: FastifyInstance,
  engine: AsyncEngine,
  limits: ParseLimits,
  options: ResponseRouteOptions,
): void {
  const responses = new TenantResponses(options.responseStoreMaxBytes, options.responseKeeper);
  const route = new ResponseRoute(engine, responses, limits, options);
  const earlier = new TenantResponses(0).of({ tenant: undefined });
  const body: BodyDescription = {
    example: responseExample,
    others: responseOthers,
    reads: [(given, observed) => parseResponse(given, observed, earlier)],
  };
  const answer = 'ResponseBody';
  const about: RouteDescription = {
    summary: 'Answers whose conversations the server stores.',
    body,
    answer,
    chunk: 'ResponseEvent',
    media: 'text/event-stream',
  };
  app.post('/v1/responses', { config: { about } }, (request, reply) => route.create(request, reply));
  app.post(
    '/v1/responses/input_tokens',
    { config: { about: { summary: 'The number of tokens of the prompt.', body } } },
    (request, reply) => {
      const asked = parseResponse(request.body, limits, responses.of(request.caller));
      const count = (prompt: ConversationPrompt) => ({ object: 'response.input_tokens', ...inputTokens(prompt) });
      return answerPrompt({ engine, options }, [request, reply], asked.chat, count);
    },
  );
  const registered = ([method, url]: readonly ['GET' | 'POST' | 'DELETE', string], about: RouteDescription): void => {
    const handler = storedRoutes[`${method} ${url}` as keyof typeof storedRoutes];
    app.route<StoredRoute>({
      ...{ method, url, config: { about }, exposeHeadRoute: method === 'GET' },
      handler: (request, reply) => handler(responses.of(request.caller), request, reply, options),
    });
  };
  registered(['GET', '/v1/responses/:id'], { summary: 'A stored response.', answer });
  registered(['GET', '/v1/responses/:id/input_items'], { summary: 'The input of a stored response.' });
  registered(['DELETE', '/v1/responses/:id'], { summary: 'Deletes a stored response.' });
  registered(['POST', '/v1/responses/:id/cancel'], { summary: 'Cancels a response in the background.', answer });
}

export interface StoredRoute {
  Params: { id: string };
  Querystring: InputItemQuery & { stream?: string };
}

export type StoredHandler = (
  responses: Responses,
  request: FastifyRequest<StoredRoute>,
  reply: FastifyReply,
  options: Pick<ResponseRouteOptions, 'clientTimeoutMs'>,
) => unknown;

/** What clients do with responses that have begun. A server of several models answers it for those that it keeps. */
export const storedRoutes = {
  'GET /v1/responses/:id': (responses, { params, query }, reply, options) => {
    if (query.stream === 'true') {
      throw fieldNotSupported({ parameter: 'stream', detail: ': the events of a response are not kept' });
    }
    return sendJson(reply, responses.get(params.id), options);
  },
  'GET /v1/responses/:id/input_items': (responses, { params: { id }, query }, reply, options) =>
    sendJson(reply, listInputItems(id, responses.input(id), query), options),
  'DELETE /v1/responses/:id': (responses, { params: { id } }) => {
    responses.delete(id);
    return { id, object: 'response', deleted: true };
  },
  'POST /v1/responses/:id/cancel': async (responses, { params: { id } }, reply, options) =>
    sendJson(reply, await responses.cancel(id), options),
} as const satisfies Record<string, StoredHandler>;

class ResponseRoute {
  readonly #engine: AsyncEngine;
  readonly #responses: TenantResponses;
  readonly #limits: ParseLimits;
  readonly #options: ResponseRouteOptions;

  constructor(engine: AsyncEngine, responses: TenantResponses, limits: ParseLimits, options: ResponseRouteOptions) {
    this.#engine = engine;
    this.#responses = responses;
    this.#limits = limits;
    this.#options = options;
  }

  async create(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | object> {
    if (!this.#options.isAccepting()) throw engineClosed();
    const responses = this.#responses.of(request.caller);
    const asked = parseResponse(request.body, this.#limits, responses);
    const engine = engineFor(this.#engine, asked.chat.model);
    using place = request.caller.place();
    place.enter(1);
    const { memory } = this.#options;
    // A response in the background goes on without its client.
    const controller = asked.echo.background ? new AbortController() : abortWhenGone(reply);
    const prepared = await unlessGone(reply, controller.signal, async (signal) => {
      // A response in the background is answered before its turn, and a stream of one can be cut while it waits.
      if (!asked.echo.background) await place.turn(signal);
      const job = await this.#prepare(request, { asked, engine }, controller, signal);
      request.body = undefined;
      const needs = needsOf(job);
      memory.check(needs);
      return { job, held: asked.echo.background ? undefined : await memory.hold(needs, signal, request.caller.tenant) };
    });
    if (prepared === undefined) return reply;
    using _held = prepared.held;
    const { job } = prepared;
    sendWarnings(request, reply, { ...job, ignored: asked.ignored });
    responses.begin(job);
    if (asked.stream) return await this.#stream(request, reply, { job, responses, place });
    if (asked.echo.background) {
      void this.#finish(request, { job, responses, place });
      return job.run.body();
    }
    for await (const _ of responses.generate(job));
    // The client has closed the connection, so there is no socket for the answer.
    if (controller.signal.aborted) return reply.hijack();
    return await sendJson(reply, job.run.body(), this.#options);
  }

  async #prepare(
    request: FastifyRequest,
    { asked, engine }: Pick<ResponseJob, 'asked' | 'engine'>,
    controller: AbortController,
    signal: AbortSignal,
  ): Promise<ResponseJob> {
    const { echo } = asked;
    const prepare = (chat: ParsedChat) => prepareAnswer(engine, chat, this.#options, signal);
    const { parsed, prompts, answers } =
      echo.truncation === 'auto'
        ? await truncated(asked.items, (items) => prepare({ ...asked.chatOf(items), isStrict: true }))
        : await prepare(asked.chat);
    const { clock } = this.#options;
    const meter = new GenerationMeter(prompts, 1, clock, request.requestLog.startMs);
    request.requestLog.meter = meter;
    const { format, prompt } = answers;
    const { toolNames: tools } = asked;
    const topLogprobs = parsed.params.logprobs;
    const shown = { format, tools, prompt, topLogprobs };
    const run = new ResponseRun({ engine, echo, ...shown, meter, now: Date.now });
    return { run, engine, asked, parsed, prompts, meter, controller, ...traceHeadersOf(request) };
  }

  async #stream(request: FastifyRequest, reply: FastifyReply, work: ResponseWork): Promise<FastifyReply> {
    const { job, responses } = work;
    using _body = job.asked.echo.background ? takeBodyMemory(request) : undefined;
    const form: StreamForm<ResponseEvent> = {
      typeOf: ({ type }) => type,
      ofError: (error) => responses.fail(job, error),
    };
    try {
      const streamed = { chunks: this.#events(request, work), form, controller: job.controller };
      return await sendStream(request, reply, streamed, this.#options);
    } catch (error) {
      responses.forget(job);
      throw error;
    }
  }

  async *#events(request: FastifyRequest, { job, responses, place }: ResponseWork) {
    using _held = job.asked.echo.background ? await this.#turn(request, job, place) : undefined;
    for await (const event of responses.generate(job)) yield [event];
  }

  /** Waits for the turn of a response in the background, and for the memory of its answer. */
  async #turn(request: FastifyRequest, job: ResponseJob, place: Place): Promise<HeldMemory> {
    const { signal } = job.controller;
    await place.turn(signal);
    return await this.#options.memory.hold(needsOf(job), signal, request.caller.tenant);
  }

  /** Generates without a client. */
  async #finish(request: FastifyRequest, { job, responses, place: given }: ResponseWork): Promise<void> {
    using place = given.move();
    using _body = takeBodyMemory(request);
    try {
      using _held = await this.#turn(request, job, place);
      for await (const _ of responses.generate(job));
    } catch (error) {
      // While it waited.
      if (job.run.status === 'cancelled') return;
      noteError(error, request);
      await responses.fail(job, error);
    }
  }
}

/** The work goes on when the exchange has ended. */
function takeBodyMemory(request: FastifyRequest): HeldMemory | undefined {
  const { bodyMemory } = request;
  request.bodyMemory = undefined;
  return bodyMemory;
}

interface ResponseWork {
  readonly job: ResponseJob;
  readonly responses: Responses;
  readonly place: Place;
}
