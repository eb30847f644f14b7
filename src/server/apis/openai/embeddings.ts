import { randomUUID } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { shapes, withoutUndefined } from '../../../base/field-reader.ts';
import { engineClosed, promptEmpty, tooManyTokens } from '../../../core/errors.ts';
import type { AsyncEngine } from '../../../engine/contract.ts';
import { checkDimensions, type Embedding, type EmbedRequest, embedAll, poolingFor } from '../../../engine/embed.ts';
import { asInputError } from '../../../engine/score.ts';
import { reusedTokens } from '../../../engine/stats.ts';
import { cutTokens, type Truncation } from '../../../engine/truncation.ts';
import { engineFor } from '../../generation/engine-for.ts';
import type { ParseLimits } from '../../generation/request.ts';
import { needsOfVectors } from '../../generation/request-needs.ts';
import { bodyReader, ignoreSmall } from '../../http/body-reader.ts';
import { abortWhenGone, unlessGone } from '../../http/client-connection.ts';
import { LazyList } from '../../http/json-pieces.ts';
import type { RequestMemory } from '../../http/request-memory.ts';
import { sendJson } from '../../http/send-json.ts';
import { traceHeadersOf } from '../../http/trace-headers.ts';
import { embeddingExample } from '../../openapi/examples.ts';
import { readCacheSalt, readPriority, readPrompts } from './parse.ts';
import { readTruncation } from './read-truncation.ts';

/** OpenAI's limit. */
export const inputsMax = 2048;

interface ParsedEmbeddings {
  readonly model?: string;
  readonly inputs: readonly (string | Int32Array)[];
  readonly isBase64: boolean;
  readonly addSpecial: boolean;
  readonly truncation: Truncation | undefined;
  readonly settings: Omit<EmbedRequest, 'prompt'>;
}

/** The body of OpenAI's `/v1/embeddings`, and vLLM's fields. What depends on the model is checked later. */
export function parseEmbeddings(body: unknown, limits: ParseLimits, engine: AsyncEngine): ParsedEmbeddings {
  const reader = bodyReader(body, limits);
  const model = reader.name('model');
  const inputs = readPrompts(reader, { ...limits, choicesMax: inputsMax }, 'input');
  const format = reader.choice('encoding_format', ['float', 'base64']);
  const dimensions = reader.raw('dimensions', shapes.integer) as number | undefined;
  const cacheSalt = readCacheSalt(reader);
  // vLLM's new name comes first.
  const normalize = reader.boolean('use_activation') ?? reader.boolean('normalize');
  const addSpecial = reader.boolean('add_special_tokens') ?? true;
  const settings = withoutUndefined({ dimensions, normalize, cacheSalt, priority: readPriority(reader) });
  ignoreSmall(reader, ['user', 'request_id']);
  const truncation = readTruncation(reader, engine);
  reader.finish();
  return { ...withoutUndefined({ model }), inputs, isBase64: format === 'base64', addSpecial, truncation, settings };
}

/** Another API's request and answer. */
export interface EmbeddingsForm {
  /** The body in OpenAI's form. A text may be empty if it has tokens: those that the model adds. */
  body(given: unknown): unknown;
  /** `model`: its name. */
  answer(embeddings: readonly Embedding[], model: string): object;
}

export interface EmbeddingsOptions {
  /** Default: OpenAI's. */
  readonly form?: EmbeddingsForm;
  readonly limits: ParseLimits;
  readonly memory: RequestMemory;
  readonly clientTimeoutMs: number;
  isAccepting(): boolean;
}

/** OpenAI's endpoint. */
export function registerEmbeddings(app: FastifyInstance, engine: AsyncEngine, options: EmbeddingsOptions): void {
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
    (request, reply) => answerEmbeddings(engine, request, reply, options),
  );
}

export async function answerEmbeddings(
  served: AsyncEngine,
  request: FastifyRequest,
  reply: FastifyReply,
  { form, limits, memory, isAccepting, clientTimeoutMs }: EmbeddingsOptions,
): Promise<FastifyReply> {
  if (!isAccepting()) throw engineClosed();
  const body = form === undefined ? request.body : form.body(request.body);
  const parsed = parseEmbeddings(body, limits, served);
  const engine = engineFor(served, parsed.model);
  poolingFor(engine.model);
  checkDimensions(parsed.settings.dimensions, engine.model);
  request.body = undefined;
  const { caller } = request;
  using place = caller.place();
  const atOnce = place.enter(parsed.inputs.length);
  const { signal } = abortWhenGone(reply);
  const prepared = await unlessGone(reply, signal, async () => {
    await place.turn(signal);
    const prompts = await tokensOf(engine, parsed, form !== undefined, signal);
    const vectorLength = parsed.settings.dimensions ?? engine.model.embedding!.length;
    return {
      prompts,
      held: await memory.hold(needsOfVectors(prompts, vectorLength), signal, caller.tenant),
    };
  });
  if (prepared === undefined) return reply;
  using _held = prepared.held;
  const answer = await unlessGone(reply, signal, async () => {
    const { prompts } = prepared;
    const requestId = `embd-${randomUUID().replaceAll('-', '')}`;
    const requests = prompts.map((prompt, i) => ({
      ...parsed.settings,
      ...traceHeadersOf(request),
      ...(caller.tenant === undefined ? {} : { tenant: caller.tenant }),
      prompt,
      requestId: `${requestId}-${i}`,
    }));
    const embeddings = await embedAll(engine, requests, { signal, atOnce });
    if (form !== undefined) return form.answer(embeddings, engine.model.name);
    return {
      id: requestId,
      object: 'list',
      created: Math.floor(Date.now() / 1000),
      model: engine.model.name,
      data: new LazyList(function* () {
        for (const [index, { embedding }] of embeddings.entries())
          yield {
            object: 'embedding',
            index,
            embedding: parsed.isBase64 ? base64Of(embedding) : Array.from(embedding),
          };
      }),
      usage: usageOf(embeddings),
    };
  });
  return answer === undefined ? reply : await sendJson(reply, answer, { clientTimeoutMs });
}

async function tokensOf(engine: AsyncEngine, parsed: ParsedEmbeddings, mayBeEmpty: boolean, signal: AbortSignal) {
  const { inputs, addSpecial, truncation } = parsed;
  const added = truncation === undefined || !addSpecial ? [] : engine.tokenize('');
  const { maxModelLen } = engine.model;
  const prompts: Int32Array[] = [];
  for (const input of inputs) {
    if (prompts.length > 0) await nextTurn();
    if (input.length === 0 && !mayBeEmpty) throw promptEmpty();
    const whole = typeof input === 'string' ? await tokenizeInput(engine, input, parsed, signal) : input;
    if (whole.length === 0) throw promptEmpty();
    const tokens = truncation === undefined ? whole : cutTokens(whole, truncation, added);
    if (tokens.length > maxModelLen) {
      throw tooManyTokens({ promptTokens: tokens.length, maxModelLen, isEmbedding: true });
    }
    prompts.push(tokens);
  }
  return prompts;
}

async function tokenizeInput(
  engine: AsyncEngine,
  text: string,
  { addSpecial, truncation }: ParsedEmbeddings,
  signal: AbortSignal,
) {
  try {
    // As `tokenizeText`.
    return await engine.tokenizePrompt(text, {
      addSpecial,
      parseSpecial: true,
      isCut: truncation !== undefined,
      signal,
    });
  } catch (error) {
    throw asInputError(error);
  }
}

/** The bytes of the F32 values, little-endian, as with OpenAI. */
const base64Of = ({ buffer, byteOffset, byteLength }: Float32Array): string =>
  Buffer.from(buffer, byteOffset, byteLength).toString('base64');

/** Of requests without an output. */
export function usageOf(embeddings: readonly Pick<Embedding, 'stats'>[]) {
  const tokens = embeddings.reduce((sum, { stats }) => sum + stats.promptTokens, 0);
  const cached = embeddings.reduce((sum, { stats }) => sum + reusedTokens(stats), 0);
  return { prompt_tokens: tokens, total_tokens: tokens, prompt_tokens_details: { cached_tokens: cached } };
}
