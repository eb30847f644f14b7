import { createHash } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { KvasirError } from '../../../base/errors.ts';
import { type BodyOptions, bodyReader } from '../../http/body-reader.ts';
import { abortWhenGone } from '../../http/client-connection.ts';
import { noteError } from '../../http/http.ts';
import { errorAnswer, fieldMissing, modelsReadOnly } from '../../http/server-errors.ts';
import { EventStream, eventStreamDefaults } from '../../http/sse.ts';
import { ollamaPullExample } from '../../openapi/examples.ts';
import { ollamaError } from './ollama-paths.ts';
import type { OllamaError, OllamaProgress } from './ollama-types.ts';
import { modelIn } from './read-ollama-request.ts';

/**
 * The release of Ollama whose API this is: clients compare it with the one that they need, such as 0.6.4. Its client for Go and the answers
 * of its server are what the tests compare with.
 */
const ollamaVersion = '0.17.4';

export function registerOllamaVersion(app: FastifyInstance): void {
  const about = { summary: 'The version of Ollama whose API the server has.' };
  app.get('/api/version', { config: { about } }, () => ({ version: ollamaVersion }));
}

/**
 * Finds out whether the server may download the model. The result downloads what is missing, which may be nothing.
 * @throws pullOff
 */
export type PullModel = (name: string) => Promise<Download>;
export type Download = (options: {
  onProgress(doneBytes: number, totalBytes: number): void;
  readonly signal: AbortSignal;
}) => Promise<unknown>;

type AskedPull = ReturnType<typeof pullOfOllama>;

/**
 * Orders that concern the models of a server: it obeys `/api/pull`, whose body `read` reads, and refuses the others before it reads their
 * bodies.
 */
export function registerModelOrders(app: FastifyInstance, read: (body: unknown) => AskedPull, pull: PullModel): void {
  const about = {
    summary: 'Downloads a model, if the server may.',
    body: { example: ollamaPullExample, reads: [pullOfOllama] },
    answer: 'OllamaProgress',
    chunk: 'OllamaProgress',
    media: 'application/x-ndjson',
    error: 'OllamaError',
  } as const;
  app.post('/api/pull', { config: { about } }, (request, reply) =>
    answerPull(request, reply, read(request.body), pull),
  );
  const refused = [
    ['POST', '/api/create'],
    ['POST', '/api/copy'],
    ['POST', '/api/push'],
    ['DELETE', '/api/delete'],
    ['POST', '/api/blobs/:digest'],
    ['HEAD', '/api/blobs/:digest'],
  ] as const;
  for (const [method, url] of refused)
    app.route({
      method,
      url,
      config: { about: { summary: 'Refused: the server does not change models.', error: 'OllamaError' } },
      onRequest: (_request, _reply, done) => done(modelsReadOnly({ path: url })),
      handler: () => undefined,
    });
}

export function pullOfOllama(body: unknown, options?: BodyOptions) {
  const reader = bodyReader(body, options);
  const model = modelIn(reader);
  if (model === undefined) throw fieldMissing({ parameter: 'model', expected: 'the name of a model' });
  const stream = reader.boolean('stream') ?? true;
  reader.ignore(['insecure', 'username', 'password']);
  reader.finish();
  return { model, stream };
}

async function answerPull(
  request: FastifyRequest,
  reply: FastifyReply,
  { model, stream }: AskedPull,
  pull: PullModel,
): Promise<FastifyReply | OllamaProgress> {
  const download = await pull(model);
  const { signal } = abortWhenGone(reply);
  const events = new EventStream(reply.raw, reply.getHeaders() as OutgoingHttpHeaders, {
    ...eventStreamDefaults,
    isLines: true,
  });
  const send = async (line: OllamaProgress | OllamaError): Promise<void> => {
    if (stream) await events.send(JSON.stringify(line));
  };
  try {
    await send({ status: 'pulling manifest' });
    await download({ signal, onProgress: progressLines(model, (line) => void send(line)) });
    if (!stream) return { status: 'success' };
    await send({ status: 'success' });
  } catch (error) {
    if (signal.aborted) return reply.hijack();
    const { status, body } = pullError(error, request);
    if (!stream) return reply.status(status).send(body);
    await send(body);
  } finally {
    events.close();
  }
  return reply.hijack();
}

/** Lines of progress of one download, at most. */
const progressSteps = 1000;

function progressLines(model: string, send: (line: OllamaProgress) => void) {
  // Clients show a bar for each digest. That of a file is not known before it is whole.
  const digest = `sha256:${createHash('sha256').update(model).digest('hex')}`;
  const status = `pulling ${digest.slice(7, 19)}`;
  let last = -1;
  return (completed: number, total: number): void => {
    const step = Math.floor((completed / Math.max(1, total)) * progressSteps);
    if (step !== last) send({ status, digest, total, completed });
    last = step;
  };
}

/** The client has asked for this download, so it is told what the hub has answered (status 502), unlike other faults of servers. */
function pullError(error: unknown, request: FastifyRequest): { readonly status: number; readonly body: OllamaError } {
  noteError(error, request);
  if (error instanceof KvasirError && error.httpStatus === 502) return { status: 502, body: { error: error.message } };
  const answer = errorAnswer(error);
  return { status: answer.status, body: ollamaError(answer) };
}
