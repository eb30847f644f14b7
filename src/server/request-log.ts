import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../base/clock.ts';
import type { GenerationMeter } from './generation.ts';

/** nginx's status for a client that went away before its response began. */
const CLIENT_GONE = 499;

/** What one line of the log says about a request; never a word of its prompt or its text. */
export class RequestLog {
  readonly startMs: number;
  readonly #clock: Clock;
  /** Set when the request generates. */
  meter: GenerationMeter | undefined;
  /** Code of the error that the client was told of, if any. */
  errorCode: string | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.startMs = clock.nowMs();
  }

  /**
   * Called when the connection of the response is done with, however it ended. Requests that generate and requests that
   * failed are worth a line; the rest (health probes every second) only when debugging.
   */
  write(request: FastifyRequest, reply: FastifyReply): void {
    const isGone = !reply.raw.writableFinished;
    // A response that has not begun says 200.
    const status = isGone && !reply.raw.headersSent ? CLIENT_GONE : reply.raw.statusCode;
    const line = {
      method: request.method,
      // Without the query: it may hold anything.
      path: request.url.split('?', 1)[0],
      status,
      ...(isGone ? { clientGone: true } : {}),
      ...(this.errorCode === undefined ? {} : { code: this.errorCode }),
      ...(this.meter === undefined ? {} : meterFields(this.meter)),
      durationMs: round(this.#clock.nowMs() - this.startMs),
    };
    if (this.meter !== undefined || status >= 400) request.log.info(line, 'request');
    else request.log.debug(line, 'request');
  }
}

function meterFields(meter: GenerationMeter): Record<string, string | number> {
  const ttftMs = meter.timeToFirstTokenMs;
  return {
    promptTokens: meter.promptTokens,
    cachedTokens: meter.cachedTokens,
    ...(meter.externalTokens === 0 ? {} : { externalTokens: meter.externalTokens }),
    ...(meter.recomputedTokens === 0 ? {} : { recomputedTokens: meter.recomputedTokens }),
    ...(meter.failedLoads === 0 ? {} : { failedLoads: meter.failedLoads }),
    outputTokens: meter.outputTokens,
    ...(ttftMs === undefined ? {} : { ttftMs: round(ttftMs) }),
    finish: meter.finishReasons,
  };
}

const round = (ms: number): number => Math.round(ms * 10) / 10;
