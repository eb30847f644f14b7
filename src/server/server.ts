import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import type { AsyncEngine } from '../engine/contract.ts';
import { Connections } from './connections.ts';
import { createHttp } from './http.ts';
import { mountEngine, withDefaults } from './mount.ts';
import type { ServerOptions } from './server-options.ts';

export type { ServerOptions };

/** The result of a shutdown. `aborted`: the number of requests that were aborted at the timeout. */
export type DrainOutcome = { readonly how: 'drained' } | { readonly how: 'cut'; readonly aborted: number };

/** How long the connections stay open after the requests are aborted, so that clients can read the last events. */
const abortAnswerMs = 250;

/**
 * Serves an engine over HTTP. The caller owns the engine and closes it; `drain` closes it only after the timeout.
 *
 *     listen -> beginDrain (`/health` and new requests: 503; running requests continue) -> drain (no connection is left)
 */
export class Server {
  readonly app: FastifyInstance;
  readonly #engine: AsyncEngine;
  readonly #connections = new Connections();
  #isAccepting = true;

  constructor(engine: AsyncEngine, options: ServerOptions) {
    const full = { ...withDefaults(options), connections: this.#connections };
    this.#engine = engine;
    this.app = createHttp(full);
    this.#connections.watch(this.app.server);
    mountEngine(this.app, engine, { ...full, hasPage: true, isAccepting: () => this.#isAccepting });
  }

  /** @returns the port; the system chooses one if `port` is 0. @throws the system's error (`EADDRINUSE`, ...). */
  async listen(port: number, host: string): Promise<number> {
    await this.app.listen({ port, host, listenTextResolver: (address) => `listening on ${address}` });
    return (this.app.server.address() as AddressInfo).port;
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
      this.#engine.close().catch(() => undefined);
      await within(abortAnswerMs, this.#connections.sent());
    }
    const closing = this.app.close();
    this.#connections.close();
    await closing;
    return hasFinished ? { how: 'drained' } : { how: 'cut', aborted };
  }

  async #finish(): Promise<void> {
    await this.#engine.drain();
    await this.#connections.sent();
  }
}

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
