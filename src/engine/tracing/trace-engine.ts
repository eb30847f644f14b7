import type { TracerProvider } from '@opentelemetry/api';
import { packageVersion } from '../../base/package-files.ts';
import { reasonOf } from '../broken-warning.ts';
import type { AsyncEngine } from '../contract.ts';
import { RequestTracer } from './request-tracer.ts';
import { loadTraceApi } from './trace-api.ts';

export type { TraceHeaders } from '../observer.ts';

/** Options of `traceEngine`. */
export interface TraceOptions {
  /** Default: the global provider of `@opentelemetry/api`, which an SDK registers. */
  readonly tracerProvider?: TracerProvider;
}

/**
 * Makes OpenTelemetry spans of the engine's requests from now on (`docs/tracing.md`). A span belongs to the span that is active when
 * `generate`, `chat` or `embed` is called. Returns the function that ends the tracing; the provider stays open.
 *
 * ```ts
 * const engine = await createEngine({ model: 'model.gguf' });
 * const stop = await traceEngine(engine);
 * ```
 * @throws KvasirError `tracingPackageMissing` if `@opentelemetry/api` is not installed.
 */
export async function traceEngine(engine: AsyncEngine, { tracerProvider }: TraceOptions = {}): Promise<() => void> {
  const api = await loadTraceApi();
  const tracer = (tracerProvider ?? api.trace.getTracerProvider()).getTracer('kvasir', packageVersion());
  let hasWarned = false;
  const onError = (error: unknown): void => {
    if (hasWarned) return;
    hasWarned = true;
    process.emitWarning(`spans of requests are lost, because the tracer failed: ${reasonOf(error)}`, 'KvasirTracing');
  };
  return engine.observe(new RequestTracer({ api, tracer, modelName: engine.model.name, onError }));
}
