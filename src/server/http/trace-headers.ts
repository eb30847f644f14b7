import type { FastifyRequest } from 'fastify';
import type { TraceHeaders } from '../../engine/observer.ts';

/** W3C Trace Context of a request, as a field of `GenerateRequest`. The engine ignores it without a tracer. */
export function traceHeadersOf({ headers }: FastifyRequest): { readonly traceHeaders?: TraceHeaders } {
  const { traceparent, tracestate } = headers;
  if (typeof traceparent !== 'string') return {};
  return { traceHeaders: typeof tracestate === 'string' ? { traceparent, tracestate } : { traceparent } };
}
