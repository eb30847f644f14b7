import { trace } from '@opentelemetry/api';
import type { ReadableSpan, SpanExporter } from '@opentelemetry/sdk-trace-base';
import { describe, expect, it } from 'vitest';
import { OtlpReceiver } from '../../test/support/otlp-receiver.ts';
import { SilentServer } from '../../test/support/silent-server.ts';
import type { EngineEvent } from '../engine/contract.ts';
import { loadTracePackage } from '../engine/tracing/trace-api.ts';
import { OtlpTraces, otlpEndpoint, ReportingExporter } from './otlp-traces.ts';

const span = (name: string, { provider }: OtlpTraces): void => provider.getTracer('test').startSpan(name).end();
const version = '1.2.3';

async function opened(endpoint: string) {
  const events: EngineEvent[] = [];
  const onEvent = (event: EngineEvent): void => void events.push(event);
  return { events, traces: await OtlpTraces.open({ endpoint, version, environment: {}, onEvent }) };
}

describe('--otlp-traces-endpoint', () => {
  it('is an address for HTTP; without a path it gets that of the standard', () => {
    expect(otlpEndpoint('http://localhost:4318')).toBe('http://localhost:4318/v1/traces');
    expect(otlpEndpoint('https://user:key@host/')).toBe('https://user:key@host/v1/traces');
    expect(otlpEndpoint('http://host/api/otlp')).toBe('http://host/api/otlp');
    for (const wrong of ['grpc://localhost:4317', 'localhost:4318', 'file:///tmp', '', 'http://'])
      expect(() => otlpEndpoint(wrong)).toThrow(/http:\/\/localhost:4318\/v1\/traces/);
  });

  it('needs packages; a message names the command that installs them', async () => {
    const missing = Object.assign(new Error('Cannot find package'), { code: 'ERR_MODULE_NOT_FOUND' });
    const load = loadTracePackage(() => Promise.reject(missing), ['@opentelemetry/api', '@opentelemetry/resources']);
    await expect(load).rejects.toMatchObject({
      code: 'KVASIR_TRACING_PACKAGE_MISSING',
      message: expect.stringMatching(
        /npm install @opentelemetry\/api@1\.\d+\.\d+ @opentelemetry\/resources@2\.\d+\.\d+$/,
      ),
    });
  });

  it.each(['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'OTEL_EXPORTER_OTLP_PROTOCOL'])(
    'refuses a protocol that is not supported, which %s names',
    async (name) => {
      const open = (protocol: string) =>
        OtlpTraces.open({
          endpoint: 'http://127.0.0.1:1/v1/traces',
          version,
          environment: { [name]: protocol },
          onEvent: () => undefined,
        });
      await expect(open('grpc')).rejects.toMatchObject({ code: 'KVASIR_TRACES_PROTOCOL_NOT_SUPPORTED' });
      await (await open('http/protobuf')).close(1);
    },
  );
});

describe('spans at the end', () => {
  it('are sent, with the name and version of the service', async () => {
    const receiver = await OtlpReceiver.start();
    const { traces, events } = await opened(`${receiver.url}/v1/traces`);
    span('last', traces);
    await traces.close(60_000);
    expect(receiver.spans).toMatchObject([{ name: 'last', resource: { 'service.name': 'kvasir' } }]);
    expect(events).toEqual([]);
    await receiver.stop();
  });

  it('are given up if the receiver hangs', async () => {
    const silent = await SilentServer.start();
    const { traces } = await opened(`http://127.0.0.1:${silent.port}/v1/traces`);
    span('last', traces);
    await traces.close(1);
    await silent.stop();
  });
});

describe('failures of the receiver', () => {
  it('are reported once, and then how many spans were lost', () => {
    let error: Error | undefined = new Error('connect ECONNREFUSED');
    const exporter: SpanExporter = {
      export: (_, done) => done(error === undefined ? { code: 0 } : { code: 1, error }),
      shutdown: () => Promise.resolve(),
    };
    const events: EngineEvent[] = [];
    const endpoint = 'http://user:key@host:4317/v1/traces';
    const reporting = new ReportingExporter(exporter, endpoint, (event) => void events.push(event));
    const codes: number[] = [];
    const send = (count: number): void =>
      reporting.export(new Array<ReadableSpan>(count), ({ code }) => void codes.push(code));
    send(2);
    send(3);
    error = undefined;
    send(1);
    send(1);
    expect(codes).toEqual([1, 1, 0, 0]);
    const receiver = 'http://host:4317/v1/traces';
    const hint = expect.stringContaining('4318');
    expect(events.map(({ fields }) => fields)).toEqual([
      { receiver, reason: 'connect ECONNREFUSED', hint },
      { receiver, lostSpans: 5 },
    ]);
  });

  it('leave the global provider of the process as it is', async () => {
    const before = trace.getTracerProvider();
    const { traces } = await opened('http://127.0.0.1:1/v1/traces');
    expect(trace.getTracerProvider()).toBe(before);
    await traces.close(1);
  });
});
