import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { systemClock } from '../base/clock.ts';
import type { AsyncEngine } from '../engine/contract.ts';
import { createHttp } from './http.ts';
import { readableLog } from './log-format.ts';
import { OpenResponses } from './open-responses.ts';
import { registerRoutes } from './routes.ts';
import { type ServerOptions, serverDefaults } from './server-options.ts';

export type { ServerOptions };

/** How a shutdown went: whether every request ended by itself. */
export type DrainOutcome = 'drained' | 'cut';

/**
 * An engine behind HTTP. The engine stays its maker's: `close` ends connections, not the engine.
 *
 *     listen -> beginDrain (health 503, new work 503, running work goes on) -> close (no connection is left)
 */
export class Server {
  readonly app: FastifyInstance;
  readonly #engine: AsyncEngine;
  readonly #responses = new OpenResponses();
  #isAccepting = true;

  constructor(engine: AsyncEngine, options: ServerOptions) {
    const full = { ...serverDefaults, logDestination: readableLog(process.stderr), clock: systemClock, ...options };
    this.#engine = engine;
    this.app = createHttp({ ...full, responses: this.#responses });
    registerRoutes(this.app, engine, { ...full, isAccepting: () => this.#isAccepting });
  }

  /** @returns the port, which the system has chosen if `port` was 0. @throws the system's error (`EADDRINUSE`, ...). */
  async listen(port: number, host: string): Promise<number> {
    await this.app.listen({ port, host, listenTextResolver: (address) => `listening on ${address}` });
    return (this.app.server.address() as AddressInfo).port;
  }

  /** Takes no new work. Connections stay possible, so that probes see the 503 and routers look elsewhere. */
  beginDrain(): void {
    this.#isAccepting = false;
  }

  /** Waits for the engine's requests and their last bytes; what is left at the deadline, or at `cut`, is cut off. */
  async drain(timeoutMs: number, cut: AbortSignal): Promise<DrainOutcome> {
    this.beginDrain();
    let deadline: NodeJS.Timeout | undefined;
    const cutOff = new Promise<'cut'>((resolve) => {
      // Not AbortSignal.any over AbortSignal.timeout: on Node 20 such a signal may be collected before it fires.
      deadline = setTimeout(() => resolve('cut'), timeoutMs);
      if (cut.aborted) resolve('cut');
      cut.addEventListener('abort', () => resolve('cut'), { once: true });
    });
    const finished = this.#finish();
    const outcome = await Promise.race([finished.then(() => 'drained' as const), cutOff]);
    clearTimeout(deadline);
    if (outcome === 'cut') {
      // What it still finds out after the cut is of no interest.
      finished.catch(() => {});
      await this.#engine.close();
      this.app.server.closeAllConnections();
      await this.app.close();
    }
    return outcome;
  }

  async #finish(): Promise<void> {
    await this.#engine.drain();
    await this.#responses.sent();
    await this.app.close();
  }
}
