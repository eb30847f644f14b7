import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import type { AsyncEngine } from '../engine/contract.ts';
import { Connections } from './http/connections.ts';
import { answerBrokenRequest, createHttp } from './http/http.ts';
import { Listener } from './http/listener.ts';
import type { TlsIdentity } from './http/tls.ts';
import { type LoadStatus, registerLoadingRoutes } from './loading-routes.ts';
import { createHttpMetrics, type HttpMetrics } from './metrics/http-metrics.ts';
import { type MountOptions, mountEngine, withDefaults } from './mount.ts';
import type { ServerOptions } from './server-options.ts';

export type { ServerOptions };

/** The result of a shutdown. `aborted`: the number of requests that were aborted at the timeout. */
export type DrainOutcome = { readonly how: 'drained' } | { readonly how: 'cut'; readonly aborted: number };

/** How long the connections stay open after the requests are aborted, so that clients can read the last events. */
export const abortAnswerMs = 250;

/** What answers the requests of a server: an engine, or several models. */
export interface ServedApp {
  register(app: FastifyInstance, options: MountOptions & { readonly httpMetrics: HttpMetrics }): void;
  /** Default: the body is JSON. */
  parseBody?(bytes: Buffer): unknown;
  /** Resolves when no request is running. */
  drain(): Promise<void>;
  /** Aborts the running requests. */
  close(): Promise<void>;
}

/**
 * Serves an engine over HTTP. The caller owns the engine and closes it; `drain` closes it only after the timeout.
 *
 *     listen -> serve (before it, only probes are answered) -> beginDrain (`/health` and new requests: 503; running
 *     requests continue) -> drain (no connection is left)
 */
export class Server {
  readonly #options: ReturnType<typeof withDefaults>;
  readonly #connections = new Connections();
  readonly #httpMetrics: HttpMetrics;
  readonly #listener: Listener;
  /** Answers the requests: without an engine, that of `registerLoadingRoutes`. */
  #app: FastifyInstance;
  #served: ServedApp | undefined;
  #isAccepting = true;
  /** Requests that wait until the server serves. */
  readonly #waiting = new Set<(isServed: boolean) => void>();

  /** @param source the engine, several models, or what the server says about the load until there is an engine */
  constructor(source: AsyncEngine | ServedApp | { loadStatus(): LoadStatus }, options: ServerOptions) {
    this.#options = withDefaults(options);
    this.#httpMetrics = createHttpMetrics(this.#options);
    const handlers = {
      onRequest: (request: IncomingMessage, response: ServerResponse) => this.#app.routing(request, response),
      onBrokenRequest: answerBrokenRequest,
      onConnection: (socket: Socket) => this.#connections.watch(socket),
      onHandshake: (socket: Socket) => this.#connections.watchHandshake(socket),
    };
    this.#listener = new Listener(handlers, options.tls);
    if ('loadStatus' in source) this.#app = this.#appWithout(source);
    else this.#app = this.#appOf('register' in source ? source : servedEngine(source));
  }

  get app(): FastifyInstance {
    return this.#app;
  }

  /** @returns the port; the system chooses one if `port` is 0. @throws the system's error (`EADDRINUSE`, ...). */
  async listen(port: number, host: string): Promise<number> {
    await this.#app.ready();
    const chosen = await this.#listener.listen(port, host);
    this.#app.log.info(`listening on ${this.#listener.scheme}://${host.includes(':') ? `[${host}]` : host}:${chosen}`);
    return chosen;
  }

  /** Listens on a Unix socket, or on a named pipe. */
  async listenAt(path: string): Promise<void> {
    await this.#app.ready();
    await this.#listener.listenAt(path);
  }

  /** From now on, requests go to the engine. Called once, by a server that was created without an engine. */
  async serve(engine: AsyncEngine): Promise<void> {
    await engine.warmUp();
    const app = this.#appOf(servedEngine(engine));
    await app.ready();
    this.#app = app;
    for (const settle of [...this.#waiting]) settle(true);
  }

  /** A new certificate for later connections of a server with TLS. Open connections continue. */
  renewTls(identity: TlsIdentity): void {
    this.#listener.renewTls(identity);
  }

  /** Requests whose responses are not sent completely. */
  get requestCount(): number {
    return this.#connections.requestCount;
  }

  /**
   * Refuses new requests and closes idle connections. New connections are still accepted, so that health probes get
   * status 503 and routers choose another server.
   */
  beginDrain(): void {
    this.#isAccepting = false;
    this.#connections.beginDrain();
  }

  /**
   * Waits until the running requests have ended and their responses are sent. After `timeoutMs` it closes the engine,
   * which aborts the remaining requests. No connection is left afterwards.
   */
  async drain(timeoutMs: number): Promise<DrainOutcome> {
    this.beginDrain();
    const hasFinished = await within(timeoutMs, this.#finish());
    const aborted = hasFinished ? 0 : this.requestCount;
    if (!hasFinished) {
      // A step that hangs delays the end of the engine, but must not delay the end of the connections.
      this.#served?.close().catch(() => undefined);
      await within(abortAnswerMs, this.#connections.sent());
    }
    await this.close();
    return hasFinished ? { how: 'drained' } : { how: 'cut', aborted };
  }

  /** Closes every connection at once. Idempotent. */
  async close(): Promise<void> {
    const closing = this.#app.close();
    this.#connections.close();
    await closing;
  }

  async #finish(): Promise<void> {
    await this.#served?.drain();
    await this.#connections.sent();
  }

  #appWithout(source: { loadStatus(): LoadStatus }): FastifyInstance {
    const app = this.#createApp();
    const { version } = this.#options;
    registerLoadingRoutes(app, {
      version,
      httpMetrics: this.#httpMetrics,
      loadStatus: () => source.loadStatus(),
      served: (signal) => this.#whenServed(signal),
      handOver: (request, response) => this.#app.routing(request, response),
    });
    return app;
  }

  #whenServed(signal: AbortSignal): Promise<boolean> {
    const { loadWaitMaxMs } = this.#options;
    if (loadWaitMaxMs === 0 || signal.aborted) return Promise.resolve(false);
    return new Promise((resolve) => {
      const settle = (isServed: boolean): void => {
        clearTimeout(limit);
        this.#waiting.delete(settle);
        resolve(isServed);
      };
      const limit = setTimeout(() => settle(false), loadWaitMaxMs).unref();
      signal.addEventListener('abort', () => settle(false), { once: true });
      this.#waiting.add(settle);
    });
  }

  #appOf(served: ServedApp): FastifyInstance {
    this.#served = served;
    const app = this.#createApp(served);
    served.register(app, {
      ...this.#options,
      httpMetrics: this.#httpMetrics,
      hasPage: true,
      isAccepting: () => this.#isAccepting,
    });
    return app;
  }

  #createApp(served?: ServedApp): FastifyInstance {
    const parseBody = served?.parseBody?.bind(served);
    const app = createHttp({ ...this.#options, connections: this.#connections, ...(parseBody && { parseBody }) });
    app.addHook('onClose', () => this.#listener.close());
    return app;
  }
}

const servedEngine = (engine: AsyncEngine): ServedApp => ({
  register: (app, options) => mountEngine(app, engine, options),
  drain: () => engine.drain(),
  close: () => engine.close(),
});

/** Whether `work` ended in time. Its later errors are ignored. */
async function within(timeoutMs: number, work: Promise<void>): Promise<boolean> {
  let deadline: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    deadline = setTimeout(() => resolve(false), timeoutMs);
  });
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    work.catch(() => undefined);
    clearTimeout(deadline);
  }
}
