import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { JsonObject } from '../../base/json.ts';
import { engineClosed } from '../../core/errors.ts';
import { showModel } from '../apis/ollama/describe-model.ts';
import { endsModel } from '../apis/ollama/keep-alive.ts';
import { isOllamaPath } from '../apis/ollama/ollama-paths.ts';
import { responseNotFound } from '../apis/responses/response-errors.ts';
import { type StoredHandler, type StoredRoute, storedRoutes } from '../apis/responses/response-routes.ts';
import { abortWhenGone, unlessGone } from '../http/client-connection.ts';
import { fieldMissing } from '../http/server-errors.ts';
import { addShortPaths } from '../http/short-paths.ts';
import type { HttpMetrics } from '../metrics/http-metrics.ts';
import type { MountOptions } from '../mount.ts';
import { registerPage } from '../operator/page-routes.ts';
import { askAll } from './ask-all.ts';
import { describeApi } from './describe-api.ts';
import { modelNotLoaded, modelSilent, modelUnknown } from './errors.ts';
import { forward, isUnsent, passOn } from './forward.ts';
import { type ForwardedRoute, forwardedRoutes } from './forwarded-routes.ts';
import { registerModelLists } from './model-lists.ts';
import type { ModelPool } from './model-pool.ts';
import { describeReport, isUnloadOf, registerOllamaLists, unloadAnswer } from './ollama-lists.ts';
import { poolHealth } from './pool-health.ts';
import { registerPoolMetrics } from './pool-metrics.ts';

/** A body that is sent on as it was received. */
export interface ForwardedBody {
  readonly bytes: Buffer;
  readonly fields: JsonObject;
}

export interface RouterOptions extends MountOptions {
  readonly httpMetrics: HttpMetrics;
}

/**
 * The endpoints of a server with several models. It has no engine: the process of a model gets its requests as they were received, checks
 * them and answers.
 */
export function registerRouter(app: FastifyInstance, pool: ModelPool, options: RouterOptions): void {
  options.httpMetrics.watch(app);
  addShortPaths(app);
  const isPublic = { config: { isPublic: true } };
  const answerHealth = (_: unknown, reply: FastifyReply): FastifyReply => {
    if (!options.isAccepting()) return reply.status(503).send({ status: 'shutting down' });
    return reply.send(poolHealth(pool));
  };
  app.get('/health', isPublic, answerHealth);
  app.get('/ping', isPublic, answerHealth);
  app.post('/ping', isPublic, answerHealth);
  app.get('/health/live', isPublic, () => ({ status: 'ok' }));
  app.get('/version', () => ({ version: options.version }));
  let description: Promise<string> | undefined;
  app.get('/openapi.json', isPublic, async (_, reply) => {
    description ??= describeApi(options);
    return reply.type('application/json').send(await description);
  });
  if (options.hasPage) registerPage(app);
  registerModelLists(app, pool);
  registerOllamaLists(app, pool, options);
  registerPoolMetrics(app, pool, options.httpMetrics);
  const router = new Router(pool, options);
  for (const { method, url, by, config = {} } of forwardedRoutes)
    app.route({
      method,
      url,
      config,
      exposeHeadRoute: false,
      handler: (...pair) => router[by](...pair, `${method} ${url}`),
    });
}

class Router
  implements Record<ForwardedRoute['by'], (request: FastifyRequest, reply: FastifyReply, route: string) => unknown>
{
  readonly #pool: ModelPool;
  readonly #options: RouterOptions;

  constructor(pool: ModelPool, options: RouterOptions) {
    this.#pool = pool;
    this.#options = options;
  }

  async body(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | object> {
    if (!this.#options.isAccepting()) throw engineClosed();
    const given = request.body as ForwardedBody | undefined;
    const name = await this.#nameOf(request);
    // A model serves the requests of all keys: only an administrator's `keep_alive` ends it.
    const { isAdmin } = request.caller;
    if (isUnloadOf(request, given?.fields)) {
      await (isAdmin ? this.#pool.unload(name) : this.#pool.nameOf(name));
      return unloadAnswer(request, name);
    }
    request.body = undefined;
    for (let tries = 1; ; tries++) {
      const lease = await unlessGone(reply, abortWhenGone(reply).signal, (signal) => this.#pool.acquire(name, signal));
      if (lease === undefined) return reply;
      using _held = lease;
      try {
        await forward(request, reply, { ...lease, ...bodyOf(given), ...this.#options });
        break;
      } catch (error) {
        if (tries === 2 || !isUnsent(error)) throw error;
        // The sockets of a process that ends are closed before its end is known. The model is loaded again.
        await lease.gone;
      }
    }
    if (isAdmin && endsModel(given?.fields.keep_alive)) await this.#pool.unload(name);
    return reply;
  }

  async query(request: FastifyRequest, reply: FastifyReply, route: string): Promise<FastifyReply> {
    if (!this.#options.isAccepting()) throw engineClosed();
    const name = await this.#nameOf(request);
    const loaded = await this.#pool.peek(name);
    if (loaded === undefined) throw modelNotLoaded({ model: name.slice(0, 100) });
    const given = request.body as ForwardedBody | undefined;
    await forward(request, reply, { ...loaded, ...bodyOf(given), ...this.#options });
    const adapter = given?.fields.lora_name;
    if (reply.raw.statusCode !== 200 || typeof adapter !== 'string') return reply;
    const isLoad = route === 'POST /v1/load_lora_adapter';
    if (isLoad || route === 'POST /v1/unload_lora_adapter') this.#pool.adapterChanged(loaded.model, adapter, isLoad);
    return reply;
  }

  /** A model that is not loaded is described by its file: clients ask this of each model in a list. */
  async file(request: FastifyRequest, reply: FastifyReply, route: string): Promise<FastifyReply | object> {
    const name = await this.#nameOf(request);
    const found = await this.#pool.find(name);
    if (found === undefined) throw modelUnknown({ parameter: 'model', requested: name.slice(0, 100) });
    return found.state === 'loaded' ? this.query(request, reply, route) : showModel(await describeReport(found));
  }

  /**
   * The server keeps ended responses itself. Another one is in one process: all are asked at once, so that one that hangs does not delay the
   * answer of another.
   */
  async every(request: FastifyRequest, reply: FastifyReply, route: string): Promise<unknown> {
    const { id } = request.params as StoredRoute['Params'];
    const { tenant } = request.caller;
    const kept = this.#pool.kept.find(tenant, id);
    if (kept !== undefined) {
      const handler: StoredHandler = storedRoutes[route as keyof typeof storedRoutes];
      const answer = await handler(kept.responses, request as FastifyRequest<StoredRoute>, reply, this.#options);
      if (request.method === 'DELETE') this.#pool.forget(kept.model, tenant, id);
      return answer;
    }
    const targets = this.#pool.loaded.map(({ name: model, socketPath }) => {
      return { model, socketPath, ...bodyOf(request.body as ForwardedBody | undefined), ...this.#options };
    });
    const found = await askAll(request, targets);
    if (found === undefined) return reply.hijack();
    if ('answer' in found) {
      await passOn(found.answer, request, reply, found.target);
      return reply;
    }
    const [silent] = found.silent;
    if (silent !== undefined) throw modelSilent({ model: silent });
    throw responseNotFound({ id: id.slice(0, 100) });
  }

  /** The model that a request asks for. @throws fieldMissing if it does not say, and there are several */
  async #nameOf(request: FastifyRequest): Promise<string> {
    const fields = (request.body as ForwardedBody | undefined)?.fields;
    const isOllama = isOllamaPath(request.endpointPath);
    // Older clients of Ollama call it `name`.
    const { model = fields?.model || (isOllama ? fields?.name : undefined) } = request.query as {
      readonly model?: unknown;
    };
    if (typeof model === 'string' && model !== '') return isOllama ? model.replace(/:latest$/, '') : model;
    const [only, ...others] = await this.#pool.reports();
    if (only !== undefined && others.length === 0) return only.entry.name;
    throw fieldMissing({ parameter: 'model', expected: 'this server has several models, which GET /v1/models lists' });
  }
}

const bodyOf = (given: ForwardedBody | undefined): { readonly body?: Buffer } =>
  given === undefined ? {} : { body: given.bytes };
