import type { ReadableSpan, SpanExporter } from '@opentelemetry/sdk-trace-base';
import { InvalidArgumentError } from 'commander';
import type { AsyncEngine, EngineEvent } from '../engine/contract.ts';
import { loadTracePackage } from '../engine/tracing/trace-api.ts';
import { traceEngine } from '../engine/tracing/trace-engine.ts';
import { tracesProtocolNotSupported } from './cli-errors.ts';

type ExportDone = Parameters<SpanExporter['export']>[1];

const protocol = 'http/protobuf';

/** `--otlp-traces-endpoint`. An address without a path gets the path of the standard. */
export function otlpEndpoint(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:') {
    throw new InvalidArgumentError(
      'It must be the address of an OTLP receiver for HTTP, like http://localhost:4318/v1/traces.',
    );
  }
  if (url.pathname === '/' && url.search === '') url.pathname = '/v1/traces';
  return url.href;
}

export interface OtlpTracesOptions {
  readonly endpoint: string;
  readonly version: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
  onEvent(event: EngineEvent): void;
}

/**
 * Sends spans to an OTLP receiver in batches, beside the engine's steps. A receiver that fails or hangs loses spans and nothing else: the queue
 * has a bound, and no request waits for it. The variables of OpenTelemetry (`OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`,
 * `OTEL_EXPORTER_OTLP_HEADERS`, ...) are those of the SDK.
 */
export class OtlpTraces {
  readonly #provider: Awaited<ReturnType<typeof createProvider>>;

  private constructor(provider: OtlpTraces['provider']) {
    this.#provider = provider;
  }

  /** For tests. */
  get provider() {
    return this.#provider;
  }

  /** @throws KvasirError `tracingPackageMissing` or `tracesProtocolNotSupported`. */
  static async open(options: OtlpTracesOptions): Promise<OtlpTraces> {
    const { environment } = options;
    const asked = environment.OTEL_EXPORTER_OTLP_TRACES_PROTOCOL ?? environment.OTEL_EXPORTER_OTLP_PROTOCOL ?? protocol;
    if (asked !== protocol) throw tracesProtocolNotSupported({ protocol: asked });
    return new OtlpTraces(await createProvider(options));
  }

  async follow(engine: AsyncEngine): Promise<void> {
    await traceEngine(engine, { tracerProvider: this.#provider });
  }

  /** Sends the last spans. After `limitMs` they are given up. */
  async close(limitMs: number): Promise<void> {
    let limit: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      limit = setTimeout(resolve, limitMs);
    });
    // The exporter has reported a failure.
    await Promise.race([this.#provider.shutdown().catch(() => undefined), late]);
    clearTimeout(limit);
  }
}

/** @throws as `OtlpTraces.open`. */
export async function openTraces(
  endpoint: string | undefined,
  version: string,
  onEvent: (event: EngineEvent) => void,
): Promise<OtlpTraces | undefined> {
  if (endpoint === undefined) return undefined;
  return OtlpTraces.open({ endpoint, version, environment: process.env, onEvent });
}

const packages = ['api', 'sdk-trace-base', 'resources', 'exporter-trace-otlp-proto'].map(
  (name) => `@opentelemetry/${name}`,
);

async function createProvider({ endpoint, version, onEvent }: OtlpTracesOptions) {
  const [sdk, resources, { OTLPTraceExporter }] = await loadTracePackage(
    () =>
      Promise.all([
        import('@opentelemetry/sdk-trace-base'),
        import('@opentelemetry/resources'),
        import('@opentelemetry/exporter-trace-otlp-proto'),
        import('@opentelemetry/api'),
      ]),
    packages,
  );
  const exporter = new ReportingExporter(new OTLPTraceExporter({ url: endpoint }), endpoint, onEvent);
  return new sdk.BasicTracerProvider({
    resource: resources
      .defaultResource()
      .merge(resources.resourceFromAttributes({ 'service.name': 'kvasir', 'service.version': version }))
      .merge(resources.detectResources({ detectors: [resources.envDetector] })),
    spanProcessors: [new sdk.BatchSpanProcessor(exporter)],
  });
}

/** Reports the first failure of the receiver, and the first success after failures. */
export class ReportingExporter implements SpanExporter {
  readonly #exporter: SpanExporter;
  readonly #receiver: URL;
  readonly #onEvent: (event: EngineEvent) => void;
  #lostSpans = 0;

  constructor(exporter: SpanExporter, endpoint: string, onEvent: (event: EngineEvent) => void) {
    this.#exporter = exporter;
    this.#receiver = new URL(endpoint);
    this.#onEvent = onEvent;
  }

  export(spans: ReadableSpan[], done: ExportDone): void {
    this.#exporter.export(spans, (result) => {
      // SUCCESS is 0.
      if (result.code === 0) this.#sent();
      else this.#failed(spans.length, result.error);
      done(result);
    });
  }

  shutdown(): Promise<void> {
    return this.#exporter.shutdown();
  }

  async forceFlush(): Promise<void> {
    await this.#exporter.forceFlush?.();
  }

  #sent(): void {
    if (this.#lostSpans === 0) return;
    this.#onEvent({
      level: 'warn',
      message: 'traces are sent again',
      fields: { receiver: this.#address, lostSpans: this.#lostSpans },
    });
    this.#lostSpans = 0;
  }

  #failed(spans: number, error: Error | undefined): void {
    const isFirst = this.#lostSpans === 0;
    this.#lostSpans += spans;
    if (!isFirst) return;
    const { code } = (error ?? {}) as { code?: unknown };
    const reason = error?.message || String(code ?? 'unknown');
    const hint = this.#receiver.port === '4317' ? 'port 4317 is that of gRPC; the port for HTTP is 4318' : undefined;
    this.#onEvent({
      level: 'warn',
      message: 'traces cannot be sent; spans are lost until the receiver answers',
      fields: { receiver: this.#address, reason, ...(hint === undefined ? {} : { hint }) },
    });
  }

  /** Without a user and a password. */
  get #address(): string {
    return `${this.#receiver.origin}${this.#receiver.pathname}`;
  }
}
