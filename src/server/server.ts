import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { systemClock } from '../base/clock.ts';
import type { AsyncEngine } from '../engine/contract.ts';
import { Connections } from './connections.ts';
import { createHttp } from './http.ts';
import { readableLog } from './log-format.ts';
import { registerRoutes } from './routes.ts';
import { type ServerOptions, serverDefaults } from './server-options.ts';

export type { ServerOptions };

/** How a shutdown went. `aborted`: requests that were cut off because the time was over. */
export type DrainOutcome = { readonly how: 'drained' } | { readonly how: 'cut'; readonly aborted: number };

/** How long clients get to read that their requests were aborted. */
const lastWordsMs = 250;

/**
 * An engine behind HTTP. The engine stays its maker's: `close` ends connections, not the engine.
 *
 *     listen -> beginDrain (health 503, new work 503, running work goes on) -> close (no connection is left)
 */
export class Server {
  readonly app: FastifyInstance;
  readonly #engine: AsyncEngine;
  readonly #connections = new Connections();
  #isAccepting = true;

  constructor(engine: AsyncEngine, options: ServerOptions) {
    const full = { ...serverDefaults, logDestination: readableLog(process.stderr), clock: systemClock, ...options };
    this.#engine = engine;
    this.app = createHttp({ ...full, connections: this.#connections });
    this.#connections.watch(this.app.server);
    registerRoutes(this.app, engine, { ...full, isAccepting: () => this.#isAccepting });
  }

  /** @returns the port, which the system has chosen if `port` was 0. @throws the system's error (`EADDRINUSE`, ...). */
  async listen(port: number, host: string): Promise<number> {
    await this.app.listen({ port, host, listenTextResolver: (address) => `listening on ${address}` });
    return (this.app.server.address() as AddressInfo).port;
  }

  /** Requests that are not answered to the last byte. */
  get requestCount(): number {
    return this.#connections.requestCount;
  }

  /**
   * Takes no new work, and closes connections that have no request. New connections stay possible, so that probes see the
   * 503 and routers look elsewhere.
   */
  beginDrain(): void {
    this.#isAccepting = false;
    this.#connections.beginDrain();
  }

  /**
   * Waits for the running requests and their last bytes. After `timeoutMs` the requests that are left are aborted: the engine
   * is closed then, or is closing. No connection is left afterwards.
   */
  async drain(timeoutMs: number): Promise<DrainOutcome> {
    this.beginDrain();
    const hasFinished = await within(timeoutMs, this.#finish());
    const aborted = hasFinished ? 0 : this.requestCount;
    if (!hasFinished) {
      // A step that hangs delays the end of the engine. It must not delay the end of the connections.
      this.#engine.close().catch(() => undefined);
      await within(lastWordsMs, this.#connections.sent());
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

/** Whether `work` was done in time. What it throws after that is dropped. */
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
