/** `kvasir serve --otlp-traces-endpoint` with real receivers: one that answers, one that is not there, and one that hangs. */
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { buildCommand, killCommands, serve } from '../support/cli-process.ts';
import { inLongForm } from '../support/long-form.ts';
import { OtlpReceiver, type OtlpSpan } from '../support/otlp-receiver.ts';
import { freePort } from '../support/redis-server.ts';
import { runHere } from '../support/run-here.ts';
import { SilentServer } from '../support/silent-server.ts';

const receivers: { stop(): Promise<void> }[] = [];

beforeAll(buildCommand, 60_000);
afterEach(async () => {
  killCommands();
  for (const receiver of receivers.splice(0)) await receiver.stop();
});

const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
const spanId = '00f067aa0ba902b7';
const greedy = { max_tokens: 5, temperature: 0, ignore_eos: true };

describe('kvasir serve with --otlp-traces-endpoint', () => {
  it('sends the spans of requests in batches, and the last ones at its end', async () => {
    const receiver = await OtlpReceiver.start();
    receivers.push(receiver);
    const server = await serve(['--otlp-traces-endpoint', receiver.url, '--shutdown-timeout', '86400'], {
      // A request has four spans: three are sent as a full batch, and the last is sent at the end.
      OTEL_BSP_SCHEDULE_DELAY: '86400000',
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '3',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment=test',
      OTEL_EXPORTER_OTLP_HEADERS: 'x-key=secret',
    });
    const headers = { traceparent: `00-${traceId}-${spanId}-01` };
    const { id } = (await (await server.complete(greedy, headers)).json()) as { id: string };
    await expect.poll(() => receiver.spans.length).toBe(3);
    await server.stop();
    expect((await server.exited)[0]).toBe(0);
    const { spans } = receiver;
    expect(new Set(spans.map(({ name }) => name))).toEqual(new Set(['queue', 'prefill', 'decode', 'llm_request']));
    const root = spans.find(({ name }) => name === 'llm_request') as OtlpSpan;
    expect(root).toMatchObject({ traceId, parentSpanId: spanId });
    expect(root.attributes).toMatchObject({
      'gen_ai.request.id': id,
      'gen_ai.usage.completion_tokens': 5,
      'gen_ai.response.finish_reasons': ['length'],
    });
    expect(root.resource).toMatchObject({
      'service.name': 'kvasir',
      'service.version': expect.stringMatching(/^\d/),
      'deployment.environment': 'test',
    });
    for (const child of spans.filter(({ name }) => name !== 'llm_request')) {
      expect(child).toMatchObject({ traceId, parentSpanId: root.spanId });
      expect(child.startMs).toBeGreaterThanOrEqual(root.startMs);
      expect(child.endMs).toBeLessThanOrEqual(root.endMs);
    }
    expect(root.endMs - root.startMs).toBeCloseTo(Number(root.attributes['gen_ai.latency.e2e']) * 1e3, 1);
    expect(receiver.paths).toEqual(['/v1/traces', '/v1/traces']);
    expect(receiver.headers[0]).toMatchObject({ 'content-type': 'application/x-protobuf', 'x-key': 'secret' });
  });

  const failing: [string, () => Promise<string>][] = [
    ['is not there', async () => `http://127.0.0.1:${await freePort()}/v1/traces`],
    [
      'hangs',
      async () => {
        const silent = await SilentServer.start();
        receivers.push(silent);
        return `http://127.0.0.1:${silent.port}/v1/traces`;
      },
    ],
  ];
  it.each(inLongForm(failing, []))(
    'serves as without it if the receiver %s, warns once, and ends with exit code 0',
    async (_, start) => {
      const server = await serve(['--otlp-traces-endpoint', await start(), '--shutdown-timeout', '86400'], {
        OTEL_BSP_SCHEDULE_DELAY: '1',
        OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: '200',
      });
      const textOf = async (): Promise<unknown> =>
        ((await (await server.complete(greedy)).json()) as { choices: { text: string }[] }).choices[0]!.text;
      const first = await textOf();
      await server.logged(/traces cannot be sent/);
      for (let i = 0; i < 5; i++) expect(await textOf()).toBe(first);
      const log = await server.stop();
      expect((await server.exited)[0]).toBe(0);
      expect(log.match(/traces cannot be sent/g)).toHaveLength(1);
    },
  );

  it('is refused with an address of gRPC', async () => {
    const { code, stderr } = await runHere(['serve', '--otlp-traces-endpoint', 'grpc://localhost:4317']);
    expect(code).toBe(2);
    expect(stderr).toContain('like http://localhost:4318/v1/traces');
  });
});
