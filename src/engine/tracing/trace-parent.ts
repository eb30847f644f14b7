import type { SpanContext } from '@opentelemetry/api';
import type { TraceHeaders } from '../observer.ts';
import type { TraceApi } from './trace-api.ts';

/** Version, trace id, span id and flags. Ids of zeros are invalid; later versions may append fields. */
const form = /^(?!ff)([\da-f]{2})-(?!0{32})([\da-f]{32})-(?!0{16})([\da-f]{16})-([\da-f]{2})(-.*)?$/;

/**
 * The span that the headers name (W3C Trace Context). Undefined if there is none, or if `traceparent` is malformed: the standard asks
 * servers to start a new trace then.
 */
export function readTraceHeaders({ createTraceState }: TraceApi, headers: TraceHeaders = {}): SpanContext | undefined {
  const { traceparent, tracestate } = headers;
  if (typeof traceparent !== 'string') return undefined;
  const [, version, traceId, spanId, flags, further] = form.exec(traceparent.trim()) ?? [];
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
