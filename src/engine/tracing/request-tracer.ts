import type { Context, SpanContext, Tracer } from '@opentelemetry/api';
import type { RequestId } from '../../core/ids.ts';
import type { RequestStats } from '../../core/request.ts';
import type { EndedCompletion, EngineObserver, PhaseReport, RequestArrival, TraceHeaders } from '../observer.ts';
import { completionAttributes, phaseAttributes } from './span-attributes.ts';
import type { TraceApi } from './trace-api.ts';

export interface RequestTracerParts {
  readonly api: TraceApi;
  readonly tracer: Tracer;
  readonly modelName: string;
  /** Called with errors of the tracer, which the user may have written. They must not reach the engine. */
  onError(error: unknown): void;
}

/** Where the spans of a request belong. */
interface Origin {
  readonly context: Context;
  /** Milliseconds since 1970 at time 0 of the engine's clock. Read at each arrival, because the system's clock is corrected. */
  readonly epochMs: number;
}

/** Phases of one completion that become spans of their own; later ones are only counted. */
const PHASES_MAX = 128;

/**
 * Makes the spans of a completion when it ends. Their times are those of the engine.
 *
 *   llm_request  |--------------------------------------------------------------------|
 *   queue        |------|
 *   load                |------|
 *   prefill                    |---------|
 *   decode                               |---------|           |----------------------|
 *   recompute                                      |-----------|
 */
export class RequestTracer
  implements Required<Pick<EngineObserver, 'requestArrived' | 'phaseBegan' | 'completionEnded'>>
{
  readonly #parts: RequestTracerParts;
  readonly #origins = new WeakMap<RequestArrival, Origin>();
  /** Of the completions that have not ended. */
  readonly #phases = new Map<RequestId, { readonly reports: PhaseReport[]; dropped: number }>();

  constructor(parts: RequestTracerParts) {
    this.#parts = parts;
  }

  requestArrived(arrival: RequestArrival): void {
    this.#guarded(() => {
      this.#origins.set(arrival, { context: this.#contextOf(arrival), epochMs: Date.now() - arrival.arrivedMs });
    });
  }

  phaseBegan(report: PhaseReport): void {
    const { id } = report.request;
    const phases = this.#phases.get(id);
    if (phases === undefined) this.#phases.set(id, { reports: [report], dropped: 0 });
    else if (phases.reports.length < PHASES_MAX) phases.reports.push(report);
    else phases.dropped++;
  }

  completionEnded(completion: EndedCompletion): void {
    const { request, arrival } = completion;
    const { reports, dropped } = this.#phases.get(request.id) ?? { reports: [], dropped: 0 };
    this.#phases.delete(request.id);
    const origin = arrival && this.#origins.get(arrival);
    if (origin !== undefined) this.#guarded(() => this.#trace(completion, origin, reports, dropped));
  }

  /** An active span of the caller is nearer than the headers (as in vLLM): it may be the span of an instrumented HTTP server. */
  #contextOf({ traceHeaders }: RequestArrival): Context {
    const { api } = this.#parts;
    const active = api.context.active();
    const span = api.trace.getSpanContext(active);
    if (span !== undefined && api.isSpanContextValid(span)) return active;
    const remote = readTraceHeaders(api, traceHeaders);
    return remote === undefined ? active : api.trace.setSpanContext(active, remote);
  }

  #trace(completion: EndedCompletion, origin: Origin, phases: readonly PhaseReport[], dropped: number): void {
    const { api, tracer, modelName } = this.#parts;
    const { context, epochMs } = origin;
    const { times, finishReason, stats } = completion;
    const { arrivedMs = 0, endedMs = arrivedMs } = times;
    const attributes = completionAttributes(completion, modelName);
    const kind = api.SpanKind.SERVER;
    const root = tracer.startSpan('llm_request', { kind, startTime: epochMs + arrivedMs, attributes }, context);
    if (finishReason === 'error') root.setStatus({ code: api.SpanStatusCode.ERROR, message: 'the request failed' });
    if (dropped > 0) root.setAttribute('kvasir.dropped_phases', dropped);
    if (root.isRecording()) {
      const inRoot = api.trace.setSpan(context, root);
      const spans = spansOf(phases, { startMs: arrivedMs, endMs: endedMs, stats });
      for (const { name, startMs, endMs, before, after } of spans) {
        const startTime = epochMs + startMs;
        const span = tracer.startSpan(name, { startTime, attributes: phaseAttributes(before, after) }, inRoot);
        span.end(epochMs + endMs);
      }
    }
    root.end(epochMs + endedMs);
  }

  #guarded(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#parts.onError(error);
    }
  }
}

interface Whole {
  readonly startMs: number;
  readonly endMs: number;
  readonly stats: RequestStats | undefined;
}

interface PhaseSpan {
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly before: RequestStats | undefined;
  readonly after: RequestStats | undefined;
}

const names = { queued: 'queue', loading: 'load', prefill: 'prefill', decode: 'decode', recovering: 'recompute' };

/** The spans of the phases of a completion: each ends where the next begins. The last may stand for phases that were dropped. */
function spansOf(phases: readonly PhaseReport[], { startMs, endMs, stats }: Whole): PhaseSpan[] {
  const queued = { phase: 'queued', startMs, stats: undefined } as const;
  let hasDecoded = false;
  return [queued, ...phases].map(({ phase, startMs: start, stats: before }, i) => {
    const next = phases[i];
    // After a preemption of a completion that has tokens, its KV is computed again.
    const name = phase === 'prefill' && hasDecoded ? 'recompute' : names[phase];
    hasDecoded ||= phase === 'decode';
    return { name, startMs: start, endMs: next?.startMs ?? endMs, before, after: next?.stats ?? stats };
  });
}

/** Version, trace id, span id and flags. Ids of zeros are invalid; later versions may append fields. */
const traceParentForm = /^(?!ff)([\da-f]{2})-(?!0{32})([\da-f]{32})-(?!0{16})([\da-f]{16})-([\da-f]{2})(-.*)?$/;

/**
 * The span that the headers name (W3C Trace Context). Undefined if there is none, or if `traceparent` is malformed: the standard asks
 * servers to start a new trace then.
 */
function readTraceHeaders({ createTraceState }: TraceApi, headers: TraceHeaders = {}): SpanContext | undefined {
  const { traceparent, tracestate } = headers;
  if (typeof traceparent !== 'string') return undefined;
  const [, version, traceId, spanId, flags, further] = traceParentForm.exec(traceparent.trim()) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  if (version === '00' && further !== undefined) return undefined;
  return {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags, 16) & 1,
    isRemote: true,
    ...(typeof tracestate === 'string' ? { traceState: createTraceState(tracestate) } : {}),
  };
}
