import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type FieldReader, shapes, withoutUndefined } from '../../../base/field-reader.ts';
import { engineClosed, promptEmpty } from '../../../core/errors.ts';
import type { AsyncEngine } from '../../../engine/contract.ts';
import { poolingFor } from '../../../engine/embed.ts';
import { asInputError, type ScoreRequest, scoreAll } from '../../../engine/score.ts';
import { engineFor } from '../../generation/engine-for.ts';
import type { ParseLimits } from '../../generation/request.ts';
import { needsOfVectors } from '../../generation/request-needs.ts';
import { bodyReader, ignoreSmall } from '../../http/body-reader.ts';
import { abortWhenGone, unlessGone } from '../../http/client-connection.ts';
import { LazyList } from '../../http/json-pieces.ts';
import { sendJson } from '../../http/send-json.ts';
import { tooManyChoices } from '../../http/server-errors.ts';
import { traceHeadersOf } from '../../http/trace-headers.ts';
import { rerankExample, rerankOthers, scoreExample, scoreOthers } from '../../openapi/examples.ts';
import { type EmbeddingsOptions, inputsMax, usageOf } from './embeddings.ts';
import { readCacheSalt, readPriority } from './parse.ts';
import { readTruncation } from './read-truncation.ts';

type Pairs = readonly Pick<ScoreRequest, 'query' | 'document'>[];

interface ParsedScores {
  readonly model: string | undefined;
  readonly pairs: Pairs;
  readonly settings: Omit<ScoreRequest, 'query' | 'document'>;
}

interface ParsedRerank extends ParsedScores {
  /** 0: all. */
  readonly topCount: number;
  readonly returnsDocuments: boolean;
  /** The answer is a list, as in Text Embeddings Inference. */
  readonly isList: boolean;
}

/** vLLM's `/score`: `text_1` and `text_2`, or the same under other names. One text is paired with each of the others. */
export function parseScore(body: unknown, limits: ParseLimits, engine: AsyncEngine): ParsedScores {
  const reader = bodyReader(body, limits);
  const isGiven = (name: string): boolean => reader.raw(name, shapes.text, shapes.list) !== undefined;
  const [first, second] =
    textNames.find(([, two]) => isGiven(two)) ?? textNames.find(([one]) => isGiven(one)) ?? textNames[0];
  const [queries, documents] = [readTexts(reader, first), readTexts(reader, second)];
  if (queries.length !== 1 && queries.length !== documents.length) {
    throw reader.invalid(
      second,
      `a text for each of the ${queries.length} texts of \`${first}\``,
      `${documents.length} texts`,
    );
  }
  const pairs = documents.map((document, i) => ({ query: queries[queries.length === 1 ? 0 : i]!, document }));
  return finish(reader, engine, pairs);
}

const textNames = [
  ['text_1', 'text_2'],
  ['queries', 'documents'],
  ['queries', 'items'],
  ['data_1', 'data_2'],
] as const;

/** The rerank API of Jina and Cohere, as vLLM has it, or with `texts` that of Text Embeddings Inference, as llama-server has it. */
export function parseRerank(body: unknown, limits: ParseLimits, engine: AsyncEngine): ParsedRerank {
  const reader = bodyReader(body, limits);
  const query = readText(
    reader,
    'query',
    reader.required('query', reader.raw('query', shapes.text, shapes.object), 'a text'),
  );
  const isList =
    reader.raw('texts', shapes.text, shapes.list) !== undefined &&
    reader.raw('documents', shapes.text, shapes.list) === undefined;
  const documents = readTexts(reader, isList ? 'texts' : 'documents');
  const topCount = reader.integer('top_n', { min: 0 }) ?? 0;
  const returnsDocuments = (isList ? reader.boolean('return_text') : reader.boolean('return_documents')) ?? !isList;
  const useActivation = isList && reader.boolean('raw_scores') === true ? false : undefined;
  const pairs = documents.map((document) => ({ query, document }));
  const { settings, ...rest } = finish(reader, engine, pairs);
  return {
    settings: { ...settings, ...withoutUndefined({ useActivation }) },
    ...rest,
    topCount,
    returnsDocuments,
    isList,
  };
}

function finish(reader: FieldReader, engine: AsyncEngine, pairs: Pairs): ParsedScores {
  const model = reader.name('model');
  const settings = withoutUndefined({
    useActivation: reader.boolean('use_activation'),
    truncation: readTruncation(reader, engine),
    cacheSalt: readCacheSalt(reader),
    priority: readPriority(reader),
  });
  const { maxModelLen } = engine.model;
  for (const name of ['max_tokens_per_query', 'max_tokens_per_doc'])
    reader.refuse(name, (value) => value === 0 || (Number.isInteger(value) && (value as number) >= maxModelLen));
  for (const name of ['instruction', 'chat_template_kwargs', 'rank_fields', 'mm_processor_kwargs'])
    reader.refuse(name, (value) => value === null);
  ignoreSmall(reader, ['user', 'request_id']);
  reader.finish();
  return { model, pairs, settings };
}

/** A text, or a list of texts. */
function readTexts(reader: FieldReader, name: string): readonly string[] {
  const value = reader.required(name, reader.raw(name, shapes.text, shapes.list), 'a text or a list of texts');
  if (!Array.isArray(value)) return [readText(reader, name, value)];
  if (value.length === 0) throw promptEmpty();
  if (value.length > inputsMax)
    throw tooManyChoices({ asked: `${value.length} items of \`${name}\``, limit: inputsMax });
  return value.map((item: unknown, i) => readText(reader, `${name}[${i}]`, item));
}

/** Jina and Cohere have documents as objects with a text too. */
function readText(reader: FieldReader, name: string, value: unknown): string {
  const isObject = typeof value === 'object' && value !== null && 'text' in value;
  const text = reader.wellFormed(name, isObject ? value.text : value);
  if (text === '') throw promptEmpty();
  return text;
}

/** vLLM's `/score`, and the rerank API under the paths of Jina and Cohere. */
export function registerScoreRoutes(app: FastifyInstance, engine: AsyncEngine, options: EmbeddingsOptions): void {
  const ofScores = {
    summary: 'How relevant texts are for other texts.',
    body: {
      example: scoreExample,
      others: scoreOthers,
      reads: [(body: object, given: ParseLimits) => parseScore(body, given, engine)],
    },
  };
  const ofRerank = {
    summary: 'Documents by their relevance for a query.',
    body: {
      example: rerankExample,
      others: rerankOthers,
      reads: [(body: object, given: ParseLimits) => parseRerank(body, given, engine)],
    },
  };
  app.post('/v1/score', { config: { about: ofScores } }, (request, reply) =>
    answerScore(engine, request, reply, options),
  );
  for (const path of ['/v1/rerank', '/v2/rerank'])
    app.post(path, { config: { about: ofRerank } }, (request, reply) => answerRerank(engine, request, reply, options));
}

const answerScore = (
  served: AsyncEngine,
  request: FastifyRequest,
  reply: FastifyReply,
  options: EmbeddingsOptions,
): Promise<FastifyReply> =>
  answer(served, { request, reply, options }, parseScore, (scores, { model }, usage) => ({
    id: `score-${randomUUID().replaceAll('-', '')}`,
    object: 'list',
    created: Math.floor(Date.now() / 1000),
    model: model ?? served.model.name,
    data: new LazyList(function* () {
      for (const [index, score] of scores.entries()) yield { index, object: 'score', score };
    }),
    usage,
  }));

const answerRerank = (
  served: AsyncEngine,
  request: FastifyRequest,
  reply: FastifyReply,
  options: EmbeddingsOptions,
): Promise<FastifyReply> =>
  answer(served, { request, reply, options }, parseRerank, (scores, parsed, usage) => {
    const { model, topCount, returnsDocuments, pairs, isList } = parsed;
    // Equal scores stay in the order of the documents.
    const sorted = [...scores.keys()].sort((a, b) => scores[b]! - scores[a]!);
    const order = topCount === 0 ? sorted : sorted.slice(0, topCount);
    if (isList)
      return new LazyList(function* () {
        for (const index of order) {
          const text = returnsDocuments ? { text: pairs[index]!.document } : {};
          yield { index, ...text, score: scores[index] };
        }
      });
    return {
      id: `score-${randomUUID().replaceAll('-', '')}`,
      model: model ?? served.model.name,
      usage: { prompt_tokens: usage.prompt_tokens, total_tokens: usage.total_tokens },
      results: new LazyList(function* () {
        for (const index of order) {
          const document = returnsDocuments ? { document: { text: pairs[index]!.document, multi_modal: null } } : {};
          yield { index, ...document, relevance_score: scores[index] };
        }
      }),
    };
  });

interface Exchange {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly options: EmbeddingsOptions;
}

async function answer<Parsed extends ParsedScores>(
  served: AsyncEngine,
  { request, reply, options }: Exchange,
  parse: (body: unknown, limits: ParseLimits, engine: AsyncEngine) => Parsed,
  render: (scores: readonly number[], parsed: Parsed, usage: ReturnType<typeof usageOf>) => object,
): Promise<FastifyReply> {
  const { limits, memory, clientTimeoutMs } = options;
  if (!options.isAccepting()) throw engineClosed();
  const parsed = parse(request.body, limits, served);
  request.body = undefined;
  const { caller } = request;
  using place = caller.place();
  const engine = engineFor(served, parsed.model);
  if (engine.model.scores === undefined) poolingFor(engine.model);
  const { pairs, settings } = parsed;
  const atOnce = place.enter(pairs.length);
  const { signal } = abortWhenGone(reply);
  const held = await unlessGone(reply, signal, async () => {
    await place.turn(signal);
    // Tokens of a text are fewer than its characters.
    const lengths = pairs.map(({ query, document }) => ({ length: query.length + document.length }));
    return memory.hold(needsOfVectors(lengths, engine.model.embedding?.length ?? 1), signal, caller.tenant);
  });
  if (held === undefined) return reply;
  using _held = held;
  const body = await unlessGone(reply, signal, async () => {
    const tenant = caller.tenant === undefined ? {} : { tenant: caller.tenant };
    const requests = pairs.map((pair) => ({ ...settings, ...traceHeadersOf(request), ...tenant, ...pair }));
    try {
      const { scores, stats } = await scoreAll(engine, requests, { signal, atOnce });
      return render(scores, parsed, usageOf(stats.map((each) => ({ stats: each }))));
    } catch (error) {
      throw asInputError(error);
    }
  });
  return body === undefined ? reply : await sendJson(reply, body, { clientTimeoutMs });
}
