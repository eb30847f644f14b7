import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { FastifyPluginAsync, FastifyPluginCallback, FastifyReply, FastifyRequest, RequestPayload } from 'fastify';
import { packageVersion } from '../base/package-files.ts';
import { checkIsEngine, checkIsObject } from '../engine/check-arguments.ts';
import type { AsyncEngine } from '../engine/contract.ts';
import { Connections } from './http/connections.ts';
import { answerNotFound, configureHttp, createHttp } from './http/http.ts';
import type { LogLevel } from './http/log-format.ts';
import { type WebHandler, webHandler } from './http/web-fetch.ts';
import { createHttpMetrics } from './metrics/http-metrics.ts';
import { mountEngine, withDefaults } from './mount.ts';
import type { ServerOptions } from './server-options.ts';

export type { LogLevel, WebHandler };

/** Options of `createServer`: those of `kvasir serve` for an application's own server. */
export interface CreateServerOptions extends Omit<ServerOptions, 'version' | 'clock' | 'tls'> {
  /** For `handler` and `fetch`: the path under which the application calls it, if the application leaves this path in `url`. */
  readonly prefix?: string;
}

/** The API of one engine, for an application that has its own HTTP server. */
export interface MountedServer {
  /**
   * A Fastify plugin: `app.register(server.plugin, { prefix: '/llm' })`. Its logger is the application's; its format of
   * errors, its API key and its limit of bodies concern its own endpoints only.
   */
  readonly plugin: FastifyPluginAsync;
  /** A request listener for `node:http`, and a middleware for Express: `app.use('/llm', server.handler)`. */
  readonly handler: (request: IncomingMessage, response: ServerResponse) => void;
  /** A function of web standards, for Next, Hono and others: `app.all('/llm/*', (c) => server.fetch(c.req.raw))`. */
  readonly fetch: WebHandler;
}

/**
 * Mounts an engine's API into an application: all endpoints but the page at `/`. The caller owns the engine. It stays open
 * when the application closes, and requests whose connections close are aborted.
 *
 * ```ts
 * const engine = await createEngine({ model: 'model.gguf' });
 * const app = fastify();
 * await app.register(createServer(engine).plugin, { prefix: '/llm' });
 * await app.listen({ port: 3000 });
 * ```
 */
export function createServer(engine: AsyncEngine, options: CreateServerOptions = {}): MountedServer {
  checkIsEngine(engine);
  checkIsObject('options', options);
  const { prefix = '', ...others } = options;
  const defaults = withDefaults({ ...others, version: packageVersion() });
  const httpMetrics = createHttpMetrics(defaults);
  const full = { ...defaults, httpMetrics, hasPage: false, isAccepting: () => true };
  let made: MountedServer['handler'] | undefined;
  const handler: MountedServer['handler'] = (request, response) => {
    made ??= createHandler(engine, full, prefix);
    made(request, response);
  };
  return {
    plugin: async (app) => {
      configureHttp(app, { ...full, connections: new Connections(), prefix: app.prefix });
      // Without a prefix, the application answers for paths without an endpoint.
      if (app.prefix !== '') app.setNotFoundHandler(answerNotFound);
      mountEngine(app, engine, full);
    },
    handler,
    fetch: webHandler(handler),
  };
}

function createHandler(
  engine: AsyncEngine,
  options: Parameters<typeof mountEngine>[2],
  prefix: string,
): MountedServer['handler'] {
  const app = createHttp({ ...options, connections: new Connections(), prefix });
  app.addHook('preParsing', takeParsedBody);
  const mount: FastifyPluginCallback = (context, _, done) => {
    mountEngine(context, engine, options);
    done();
  };
  app.register(mount, { prefix });
  const ready = app.ready();
  return (request, response) => {
    ready.then(
      () => app.routing(request, response),
      (error: Error) => response.destroy(error),
    );
  };
}

/** A body that a middleware of Express, such as `express.json()`, has read before this server. */
type ParsedRequest = IncomingMessage & { readonly body?: unknown };

/** A hook `preParsing`: gives the server the bytes of a body that was read already. Without it, the request would hang. */
function takeParsedBody(
  request: FastifyRequest,
  _: FastifyReply,
  payload: RequestPayload,
  done: (error: Error | null, payload: RequestPayload) => void,
): void {
  const { body, readableEnded } = request.raw as ParsedRequest;
  if (!readableEnded || body === undefined) {
    done(null, payload);
    return;
  }
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  const length = Number(request.headers['content-length'] ?? bytes.length);
  done(null, Object.assign(Readable.from([bytes]), { receivedEncodedLength: length }));
}
