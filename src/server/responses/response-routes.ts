import type { OutgoingHttpHeaders } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { engineClosed } from '../../core/errors.ts';
import type { AsyncEngine } from '../../engine/contract.ts';
import { prepareChat } from '../chat-prompt.ts';
import { checkModel } from '../check-model.ts';
import { abortWhenGone, unlessGone } from '../client-connection.ts';
import { warningHeader } from '../foreign-fields.ts';
import { GenerationMeter } from '../generation.ts';
import { noteError } from '../http.ts';
import type { ParsedChat, ParseLimits } from '../openai-parse.ts';
import type { HeldMemory } from '../request-memory.ts';
import { needsOf } from '../request-needs.ts';
import type { RouteOptions } from '../routes.ts';
import { sendJson } from '../send-json.ts';
import { fieldNotSupported } from '../server-errors.ts';
import { EventStream } from '../sse.ts';
import { traceHeadersOf } from '../trace-headers.ts';
import { type ParsedResponse, parseResponse } from './parse-response.ts';
import { ResponseRun } from './response-run.ts';
import { type ResponseJob, Responses } from './responses.ts';
import { truncated } from './truncate-conversation.ts';

/** `/v1/responses`: OpenAI's API for conversations whose state is on the server. */
export function registerResponseRoutes(
  app: FastifyInstance,
  engine: AsyncEngine,
  limits: ParseLimits,
  options: RouteOptions,
): void {
  const responses = new Responses(engine, options.responseStoreMaxBytes);
  const route = new ResponseRoute(engine, responses, limits, options);
  type WithId = { Params: { id: string }; Querystring: { stream?: string } };
  app.post('/v1/responses', { config: { isGeneration: true } }, (request, reply) => route.create(request, reply));
  app.get<WithId>('/v1/responses/:id', ({ params, query }, reply) => {
    if (query.stream === 'true') {
      throw fieldNotSupported({ parameter: 'stream', detail: ': the events of a response are not kept' });
    }
    return sendJson(reply, responses.get(params.id), options);
  });
  app.delete<WithId>('/v1/responses/:id', ({ params: { id } }) => {
    responses.delete(id);
    return { id, object: 'response', deleted: true };
  });
  app.post<WithId>('/v1/responses/:id/cancel', async ({ params: { id } }, reply) =>
    sendJson(reply, await responses.cancel(id), options),
  );
}

class ResponseRoute {
  readonly #engine: AsyncEngine;
  readonly #responses: Responses;
  readonly #limits: ParseLimits;
  readonly #options: RouteOptions;

  constructor(engine: AsyncEngine, responses: Responses, limits: ParseLimits, options: RouteOptions) {
    this.#engine = engine;
    this.#responses = responses;
    this.#limits = limits;
    this.#options = options;
  }

  async create(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | object> {
    if (!this.#options.isAccepting()) throw engineClosed();
    const asked = parseResponse(request.body, this.#limits, this.#responses);
    checkModel(this.#engine, asked.chat.model);
    if (asked.ignored.length > 0) {
      reply.header('warning', warningHeader(asked.ignored));
      request.requestLog.ignored = asked.ignored;
    }
    // A response in the background goes on without its client.
    const controller = asked.echo.background ? new AbortController() : abortWhenGone(reply);
    const prepared = await unlessGone(reply, controller.signal, async (signal) => {
      const job = await this.#prepare(request, asked, controller, signal);
      request.body = undefined;
      return { job, held: await this.#options.memory.hold(needsOf(job), signal) };
    });
    if (prepared === undefined) return reply;
    const { job } = prepared;
    if (asked.echo.background && !asked.stream) {
      const { bodyMemory } = request;
      request.bodyMemory = undefined;
      void this.#finish(request, job, [prepared.held, bodyMemory]);
      return job.run.body();
    }
    using _held = prepared.held;
    if (asked.stream) return await this.#stream(request, reply, job);
    for await (const _ of this.#responses.generate(job));
    // The client has closed the connection, so there is no socket for the answer.
    if (controller.signal.aborted) return reply.hijack();
    return await sendJson(reply, job.run.body(), this.#options);
  }

  async #prepare(
    request: FastifyRequest,
    asked: ParsedResponse,
    controller: AbortController,
    signal: AbortSignal,
  ): Promise<ResponseJob> {
    const { echo } = asked;
    const prepare = (chat: ParsedChat) => prepareChat(this.#engine, chat, this.#options, signal);
    const { parsed, prompts, answers } =
      echo.truncation === 'auto'
        ? await truncated(asked.items, (items) => prepare(asked.chatOf(items)))
        : await prepare(asked.chat);
    const { clock } = this.#options;
    const meter = new GenerationMeter(prompts, 1, clock, request.requestLog.startMs);
    request.requestLog.meter = meter;
    const { format, prompt } = answers;
    const topLogprobs = parsed.params.logprobs;
    const run = new ResponseRun({ engine: this.#engine, echo, format, prompt, meter, topLogprobs, now: Date.now });
    return { run, asked, parsed, prompts, meter, controller, ...traceHeadersOf(request) };
  }

  /** An error before the first event is thrown and becomes an HTTP error; a later error becomes an event. */
  async #stream(request: FastifyRequest, reply: FastifyReply, job: ResponseJob): Promise<FastifyReply> {
    const events = new EventStream(reply.raw, reply.getHeaders() as OutgoingHttpHeaders, this.#options);
    try {
      for await (const event of this.#responses.generate(job)) await events.sendJson(event, event.type);
    } catch (error) {
      job.controller.abort();
      if (!events.isOpen) throw error;
      noteError(error, request);
      for (const event of await this.#responses.fail(job, error)) await events.sendJson(event, event.type);
    } finally {
      events.close();
    }
    return reply.hijack();
  }

  /** Generates without a client. */
  async #finish(request: FastifyRequest, job: ResponseJob, held: readonly (HeldMemory | undefined)[]): Promise<void> {
    try {
      for await (const _ of this.#responses.generate(job));
    } catch (error) {
      noteError(error, request);
      await this.#responses.fail(job, error);
    } finally {
      for (const memory of held) memory?.[Symbol.dispose]();
    }
  }
}
