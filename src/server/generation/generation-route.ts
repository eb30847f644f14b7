import { randomUUID } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import { engineClosed } from '../../core/errors.ts';
import type { ModelFormats } from '../../engine/chat/conversation.ts';
import type { AsyncEngine } from '../../engine/contract.ts';
import type { AnsweredDelta } from '../../engine/early-end.ts';
import { abortWhenGone, unlessGone } from '../http/client-connection.ts';
import { noteError } from '../http/http.ts';
import type { Place } from '../http/key-queues.ts';
import type { RequestMemory } from '../http/request-memory.ts';
import { sendJson } from '../http/send-json.ts';
import { EventStream, type EventStreamOptions } from '../http/sse.ts';
import { traceHeadersOf } from '../http/trace-headers.ts';
import { keepBest } from './best-of.ts';
import { ChoiceCollector } from './choice-collector.ts';
import type { Endpoint } from './endpoint.ts';
import { engineFor } from './engine-for.ts';
import { promptsOf } from './fill-in-middle.ts';
import { GenerationMeter, generateAll, type PreparedGeneration, prepareAnswer, preparePrompts } from './generation.ts';
import type { Renderer, StreamForm } from './renderer.ts';
import type { ParsedChat, ParsedCompletion, ParseLimits } from './request.ts';
import { needsOf } from './request-needs.ts';
import { sendWarnings } from './warning-header.ts';

export interface GenerationRouteOptions extends EventStreamOptions, ModelFormats {
  readonly clock: Clock;
  readonly memory: RequestMemory;
  /** While false, `/health` answers 503 and new requests are refused. */
  isAccepting(): boolean;
}

/** A request that may run now. */
interface Generation extends PreparedGeneration {
  /** Of `engineFor`. */
  readonly engine: AsyncEngine;
  /** How many prompts may be computed at the same time. */
  readonly promptsAtOnce: number;
  readonly echoes?: readonly string[];
}

/** The one road of requests that generate: from the body, which an endpoint reads, to the last byte, which it renders. */
export class GenerationRoute {
  readonly #served: AsyncEngine;
  readonly #limits: ParseLimits;
  readonly #options: GenerationRouteOptions;

  constructor(served: AsyncEngine, limits: ParseLimits, options: GenerationRouteOptions) {
    this.#served = served;
    this.#limits = limits;
    this.#options = options;
  }

  register(app: FastifyInstance, endpoint: Endpoint): void {
    const { path, about, errorBody } = endpoint;
    const config = { about, ...(errorBody === undefined ? {} : { errorBody }) };
    app.post(path, { config }, (request, reply) => this.#answer(endpoint, request, reply));
  }

  async #answer(endpoint: Endpoint, request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | object> {
    if (!this.#options.isAccepting()) throw engineClosed();
    if (endpoint.idHeader !== undefined) reply.header(endpoint.idHeader, request.id);
    const asked = endpoint.read(request.body, this.#limits);
    const engine = engineFor(this.#served, asked.model);
    if ('answer' in asked) return asked.answer(engine.model.name);
    using place = request.caller.place();
    const controller = abortWhenGone(reply);
    // Only for the preparation: `#generate` aborts the signal itself if one prompt of several fails.
    const prepared = await unlessGone(reply, controller.signal, async (signal) => {
      const generation = await this.#prepare(engine, asked, place, signal);
      // What is still needed of the body is in the generation.
      request.body = undefined;
      return { generation, held: await this.#options.memory.hold(needsOf(generation), signal, request.caller.tenant) };
    });
    if (prepared === undefined) return reply;
    using _held = prepared.held;
    return await this.#generate(endpoint, request, reply, { ...prepared.generation, controller });
  }

  /** Waits for the turn of the request, and makes tokens of its prompts. */
  async #prepare(
    engine: AsyncEngine,
    asked: ParsedChat | ParsedCompletion,
    place: Place,
    signal: AbortSignal,
  ): Promise<Generation> {
    const promptsAtOnce = place.enter('prompts' in asked ? asked.prompts.length : 1, asked.params.n);
    await place.turn(signal);
    if (!('prompts' in asked)) {
      return { engine, promptsAtOnce, ...(await prepareAnswer(engine, asked, this.#options, signal)) };
    }
    const { maxTokensDefault = engine.model.maxModelLen } = asked;
    const texts = { prompts: await promptsOf(engine, asked, signal), maxTokensDefault };
    const prompts = await preparePrompts(engine, asked, texts, signal);
    const generation = { engine, promptsAtOnce, parsed: asked, prompts };
    return asked.echo ? { ...generation, echoes: echoesOf(engine, asked.prompts) } : generation;
  }

  async #generate(
    { idPrefix, render }: Endpoint,
    request: FastifyRequest,
    reply: FastifyReply,
    { controller, ...generation }: Generation & { readonly controller: AbortController },
  ): Promise<FastifyReply | object> {
    const { engine, parsed, prompts, promptsAtOnce, answers, echoes } = generation;
    const { n = 1 } = parsed.params;
    const bestOf = 'bestOf' in parsed ? parsed.bestOf : undefined;
    sendWarnings(request, reply, generation);
    const meter = new GenerationMeter(prompts, n, this.#options.clock, request.requestLog.startMs);
    request.requestLog.meter = meter;
    const id = `${idPrefix}${randomUUID().replaceAll('-', '')}`;
    const renderer = render({
      ...{ engine, id, asked: parsed, prompts, usage: meter },
      created: Math.floor(Date.now() / 1000),
      n: bestOf?.kept ?? n,
      ...(echoes === undefined ? {} : { echoes }),
      ...(answers === undefined ? {} : { answers }),
    });
    const { tenant } = request.caller;
    const settings = { parsed, id, promptsAtOnce, tenant, ...traceHeadersOf(request) };
    const deltas = generateAll(engine, prompts, settings, controller);
    if (parsed.stream) {
      const work = { chunks: chunksOf(deltas, meter, renderer), form: renderer.form, controller };
      return await sendStream(request, reply, work, this.#options);
    }
    const collector = new ChoiceCollector(prompts.length * n, parsed.params);
    for await (const delta of deltas) {
      meter.add(delta);
      collector.add(delta);
    }
    // The client has closed the connection, so there is no socket for the answer.
    if (controller.signal.aborted) return reply.hijack();
    const choices = collector.choices();
    return sendJson(reply, renderer.body(bestOf === undefined ? choices : keepBest(choices, bestOf)), this.#options);
  }
}

export interface StreamedWork<Chunk extends object> {
  readonly chunks: AsyncIterable<readonly Chunk[]>;
  readonly form: StreamForm<Chunk>;
  readonly controller: AbortController;
}

/** Streams an answer. An error before the first event is thrown and becomes an HTTP error; a later error becomes an event. */
export async function sendStream<Chunk extends object>(
  request: FastifyRequest,
  reply: FastifyReply,
  { chunks, form, controller }: StreamedWork<Chunk>,
  options: EventStreamOptions,
): Promise<FastifyReply> {
  const { isLines = false } = form;
  const events = new EventStream(reply.raw, reply.getHeaders() as OutgoingHttpHeaders, { ...options, isLines });
  const send = (chunk: Chunk): Promise<void> => events.sendJson(chunk, form.typeOf?.(chunk));
  try {
    for await (const several of chunks) {
      for (const chunk of several) {
        if (form.isPlain === true) await events.send(JSON.stringify(chunk));
        else await send(chunk);
      }
    }
    if (controller.signal.aborted) return reply.hijack();
    for (const data of form.end?.() ?? []) await events.send(data);
  } catch (error) {
    controller.abort();
    if (!events.isOpen) throw error;
    noteError(error, request);
    for (const chunk of await form.ofError(error)) await send(chunk);
  } finally {
    events.close();
  }
  return reply.hijack();
}

async function* chunksOf(deltas: AsyncIterable<AnsweredDelta>, meter: GenerationMeter, renderer: Renderer) {
  for await (const delta of deltas) {
    meter.add(delta);
    yield renderer.chunks(delta);
  }
}

const echoesOf = (engine: AsyncEngine, prompts: readonly (string | Int32Array)[]): string[] =>
  prompts.map((prompt) => (typeof prompt === 'string' ? prompt : engine.detokenize(prompt)));
