import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import { bounded } from '../../base/shown-text.ts';

/** nginx's status for a client that closed the connection before its response began. */
const CLIENT_GONE = 499;

/** What a request that generates has used so far. */
export interface RequestMeter {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly externalTokens: number;
  readonly recomputedTokens: number;
  readonly failedLoads: number;
  readonly outputTokens: number;
  readonly timeToFirstTokenMs: number | undefined;
  /** Of all choices. `otherwise`: of a choice that has not ended. */
  finishReasons(otherwise: 'running' | 'aborted'): string;
}

/** The log line of a request. It has no part of the prompt or of the text. */
export class RequestLog {
  readonly startMs: number;
  readonly #clock: Clock;
  /** Set when the request generates. */
  meter: RequestMeter | undefined;
  /** Fields of the request that had no effect. */
  ignored: readonly string[] | undefined;
  /** The process of a model has answered, and has logged the request. */
  isForwarded: boolean = false;
  /** The output is shorter than the request allows, because of the context. */
  maxTokensCut: { readonly from: number; readonly to: number } | undefined;
  /** The code of the error in the answer, if any. */
  errorCode: string | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.startMs = clock.nowMs();
  }

  /**
   * Called when the response has ended for any reason. Requests that generate and requests that failed are logged at
   * level info; the others, such as health probes every second, at level debug.
   */
  write(request: FastifyRequest, reply: FastifyReply): void {
    const isGone = !reply.raw.writableFinished;
    // The status of a response that has not begun is 200.
    const status = isGone && !reply.raw.headersSent ? CLIENT_GONE : reply.raw.statusCode;
    const line = {
      method: request.method,
      // Without the query, which can contain anything.
      path: request.url.split('?', 1)[0],
      status,
      ...(isGone ? { clientGone: true } : {}),
      ...(this.errorCode === undefined ? {} : { code: this.errorCode }),
      ...(this.ignored === undefined ? {} : { ignored: bounded(this.ignored.join(', '), ignoredLengthMax) }),
      ...(this.maxTokensCut === undefined
        ? {}
        : { maxTokensCut: `${this.maxTokensCut.from} to ${this.maxTokensCut.to}` }),
      ...(this.meter === undefined ? {} : meterFields(this.meter, isGone)),
      durationMs: round(this.#clock.nowMs() - this.startMs),
    };
    // A server that loads its model or recovers gives probes this status, every second.
    const isExpected = status === 503 && request.routeOptions.config?.isPublic === true;
    const isLogged = this.isForwarded && this.errorCode === undefined;
    if (this.meter !== undefined || (status >= 400 && !isExpected && !isLogged)) request.log.info(line, 'request');
    else request.log.debug(line, 'request');
  }
}

/** The engine aborts the choices of a client that is gone. */
function meterFields(meter: RequestMeter, isGone: boolean): Record<string, string | number> {
  const ttftMs = meter.timeToFirstTokenMs;
  return {
    promptTokens: meter.promptTokens,
    cachedTokens: meter.cachedTokens,
    ...(meter.externalTokens === 0 ? {} : { externalTokens: meter.externalTokens }),
    ...(meter.recomputedTokens === 0 ? {} : { recomputedTokens: meter.recomputedTokens }),
    ...(meter.failedLoads === 0 ? {} : { failedLoads: meter.failedLoads }),
    outputTokens: meter.outputTokens,
    ...(ttftMs === undefined ? {} : { ttftMs: round(ttftMs) }),
    finish: meter.finishReasons(isGone ? 'aborted' : 'running'),
  };
}

/** Clients choose the names. */
const ignoredLengthMax = 1000;

const round = (ms: number): number => Math.round(ms * 10) / 10;
