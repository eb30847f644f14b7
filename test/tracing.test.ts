/**
 * OpenTelemetry spans of a library user: his own provider, the global one, and his active span. The SDK and its in-memory exporter are
 * real. Changes global state of `@opentelemetry/api`, so this file needs its own process.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { type Context, type ContextManager, context, propagation, ROOT_CONTEXT, trace } from '@opentelemetry/api';
import {
  AlwaysOffSampler,
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { traceEngine } from '../src/engine/tracing/trace-engine.ts';
import { promptOf } from './support/drive.ts';
import { openEngineWithTier } from './support/engine-with-tier.ts';
import { ManualTime } from './support/manual-time.ts';
import { serveEngine } from './support/served-model.ts';
import { temporaryFolder } from './support/tiny-model.ts';
import { type ToyOptions, toyEngine } from './support/toy-model.ts';

const stepMs = 10;

function memory() {
  const exporter = new InMemorySpanExporter();
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  return { exporter, tracerProvider };
}

/** An engine whose steps take 10 ms each. */
async function traced(options: ToyOptions = {}) {
  const clock = new ManualTime();
  const toy = toyEngine({
    ...options,
    settings: { clock, ...options.settings },
    beforeStep: async () => clock.advance(stepMs),
  });
  const spans = memory();
  const stop = await traceEngine(toy.engine, { tracerProvider: spans.tracerProvider });
  return { ...toy, ...spans, clock, stop };
}

async function readAll(stream: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of stream);
}

const msOf = ([seconds, nanos]: readonly [number, number]): number => seconds * 1e3 + nanos / 1e6;
const rootOf = (spans: readonly ReadableSpan[]): ReadableSpan => {
  const roots = spans.filter(({ name }) => name === 'llm_request');
  expect(roots).toHaveLength(1);
  return roots[0]!;
};
/** The phases of a request: name, start and end in milliseconds since its arrival. */
function phasesOf(spans: readonly ReadableSpan[]): [string, number, number][] {
  const root = rootOf(spans);
  const since = (time: readonly [number, number]): number =>
    Math.round((msOf(time) - msOf(root.startTime)) * 1e3) / 1e3;
  const phases = spans.filter(({ name }) => name !== 'llm_request');
  for (const span of phases) expect(span.parentSpanContext?.spanId).toBe(root.spanContext().spanId);
  return phases.map(({ name, startTime, endTime }) => [name, since(startTime), since(endTime)]);
}

describe('the spans of a request', () => {
  it('have vLLM’s names and attributes, and the times of the engine’s steps', async () => {
    const { engine, clock, exporter } = await traced();
    const before = Date.now();
    clock.advance(123_456);
    // 41 tokens with BOS: two steps for the prompt, then two more tokens.
    const params = { maxTokens: 3, ignoreEos: true, temperature: 0.5, topP: 0.9, seed: 1n };
    await readAll(engine.generate({ prompt: 'x'.repeat(40), requestId: 'cmpl-1', params }));
    const after = Date.now();
    await engine.close();
    const spans = exporter.getFinishedSpans();
    const phases = phasesOf(spans);
    expect(phases.slice(0, 2)).toEqual([
      ['queue', 0, 0],
      ['prefill', 0, 2 * stepMs],
    ]);
    expect(phases.at(2)!.slice(0, 2)).toEqual(['decode', 2 * stepMs]);
    expect(phases).toHaveLength(3);
    const root = rootOf(spans);
    expect(root.kind).toBe(1);
    expect(root.instrumentationScope.name).toBe('kvasir');
    expect(msOf(root.startTime)).toBeGreaterThanOrEqual(before);
    expect(msOf(root.startTime)).toBeLessThanOrEqual(after);
    const e2e = (msOf(root.endTime) - msOf(root.startTime)) / 1e3;
    expect(phases.at(2)![2]).toBeCloseTo(e2e * 1e3, 2);
    expect(root.attributes).toMatchObject({
      'gen_ai.request.id': 'cmpl-1',
      'gen_ai.request.n': 1,
      'gen_ai.request.max_tokens': 3,
      'gen_ai.request.temperature': 0.5,
      'gen_ai.request.top_p': 0.9,
      'gen_ai.response.model': 'toy',
      'gen_ai.response.finish_reasons': ['length'],
      'gen_ai.usage.prompt_tokens': 41,
      'gen_ai.usage.completion_tokens': 3,
      'gen_ai.latency.time_in_queue': 0,
      'kvasir.computed_tokens': 43,
    });
    const { 'gen_ai.latency.e2e': seconds, ...attributes } = root.attributes as Record<string, number>;
    expect(seconds).toBeCloseTo(e2e, 5);
    const part = (name: string): number => attributes[`gen_ai.latency.${name}`]!;
    expect(part('time_to_first_token')).toBe(part('time_in_model_prefill'));
    expect(part('time_in_model_prefill') + part('time_in_model_decode')).toBeCloseTo(
      part('time_in_model_inference'),
      9,
    );
    expect(part('time_to_first_token')).toBeGreaterThanOrEqual((2 * stepMs) / 1e3);
    const prefill = spans.find(({ name }) => name === 'prefill');
    expect(prefill?.attributes).toEqual({ 'kvasir.computed_tokens': 41 });
  });

  it('show the wait for a running slot, and the KV that is computed again after a preemption', async () => {
    const { engine, exporter } = await traced({
      blockCount: 14,
      scheduler: { maxModelLen: 48, maxNumSeqs: 2, enablePrefixCaching: false },
    });
    const params = { maxTokens: 24, ignoreEos: true };
    const prompts = ['a'.repeat(15), 'b'.repeat(15), 'c'.repeat(15)];
    await Promise.all(prompts.map((prompt) => readAll(engine.generate({ prompt, requestId: prompt[0]!, params }))));
    expect(engine.stats().preemptions).toBeGreaterThan(0);
    await engine.close();
    const spans = exporter.getFinishedSpans();
    const ofRequest = (id: string): ReadableSpan[] => {
      const root = spans.find(({ attributes }) => attributes['gen_ai.request.id'] === id)!;
      return spans.filter((span) => span.spanContext().traceId === root.spanContext().traceId);
    };
    const names = prompts.map((prompt) => phasesOf(ofRequest(prompt[0]!)).map(([name]) => name));
    const preempted = names.find((phases) => phases.includes('recompute'));
    expect(preempted).toEqual(['queue', 'prefill', 'decode', 'queue', 'recompute', 'decode']);
    const [, , waited] = prompts.map((prompt) => phasesOf(ofRequest(prompt[0]!))[0]!);
    expect(waited![2]).toBeGreaterThan(0);
    const again = spans.filter(({ name }) => name === 'recompute');
    const roots = spans.filter(({ name }) => name === 'llm_request');
    const sum = (of: readonly ReadableSpan[], name: string): number =>
      of.reduce((total, { attributes }) => total + Number(attributes[name] ?? 0), 0);
    expect(sum(roots, 'kvasir.preemptions')).toBe(again.length);
    // Each phase has the tokens that it computed.
    const phases = spans.filter(({ name }) => name !== 'llm_request');
    expect(sum(phases, 'kvasir.computed_tokens')).toBe(sum(roots, 'kvasir.computed_tokens'));
    // Each phase ends where the next begins.
    for (const prompt of prompts) {
      const intervals = phasesOf(ofRequest(prompt[0]!));
      for (const [i, [, start]] of intervals.entries()) expect(start).toBe(i === 0 ? 0 : intervals[i - 1]![2]);
    }
  });

  it('end for every completion: of all n, aborted, failed, and before their first step', async () => {
    const { engine, exporter } = await traced();
    const params = { maxTokens: 20, ignoreEos: true };
    await readAll(engine.generate({ prompt: 'a', params: { ...params, n: 2 } }));
    for await (const _ of engine.generate({ prompt: 'b', params })) break;
    const aborted = new AbortController();
    aborted.abort();
    await readAll(engine.generate({ prompt: 'c', params }, { signal: aborted.signal }));
    await engine.close();
    const broken = await traced({ failAtStep: 1, settings: { onBroken: () => undefined } });
    await readAll(broken.engine.generate({ prompt: 'd', params }));
    await broken.engine.close();
    const roots = [...exporter.getFinishedSpans(), ...broken.exporter.getFinishedSpans()].filter(
      ({ name }) => name === 'llm_request',
    );
    const ended = roots.map(({ attributes, status }) => [
      attributes['kvasir.completion.index'],
      attributes['gen_ai.response.finish_reasons'],
      status.code,
    ]);
    expect(ended).toEqual([
      [0, ['length'], 0],
      [1, ['length'], 0],
      [0, ['abort'], 0],
      [0, ['abort'], 0],
      [0, ['error'], 2],
    ]);
    const last = exporter.getFinishedSpans().slice(-2);
    expect(last.map(({ name }) => name)).toEqual(['queue', 'llm_request']);
  });

  it('end with the tracing, and a sampler that drops them costs no child', async () => {
    const { engine, exporter, stop } = await traced();
    stop();
    await readAll(engine.generate({ prompt: 'a', params: { maxTokens: 2 } }));
    const exported = new InMemorySpanExporter();
    let started = 0;
    const tracerProvider = new BasicTracerProvider({
      sampler: new AlwaysOffSampler(),
      spanProcessors: [new SimpleSpanProcessor(exported)],
    });
    const { getTracer } = tracerProvider;
    const counting = {
      getTracer: (...args: Parameters<typeof getTracer>) => {
        const tracer = tracerProvider.getTracer(...args);
        const startSpan: typeof tracer.startSpan = (...span) => {
          started++;
          return tracer.startSpan(...span);
        };
        return { startSpan, startActiveSpan: tracer.startActiveSpan.bind(tracer) };
      },
    };
    await traceEngine(engine, { tracerProvider: counting });
    await readAll(engine.generate({ prompt: 'a', params: { maxTokens: 2 } }));
    await engine.close();
    expect(exporter.getFinishedSpans()).toEqual([]);
    expect(exported.getFinishedSpans()).toEqual([]);
    expect(started).toBe(1);
  });

  it('of a provider that throws do not disturb the request, and a warning says so once', async () => {
    const { engine } = toyEngine();
    const warnings: string[] = [];
    const onWarning = ({ message }: Error): void => void warnings.push(message);
    process.on('warning', onWarning);
    const failing = {
      getTracer: () => ({
        startSpan: () => {
          throw new Error('no room');
        },
        startActiveSpan: () => undefined as never,
      }),
    };
    await traceEngine(engine, { tracerProvider: failing });
    const texts: string[] = [];
    for (let i = 0; i < 2; i++) {
      let text = '';
      for await (const delta of engine.generate({ prompt: 'a', params: { maxTokens: 5, seed: 1n } }))
        text += delta.text;
      texts.push(text);
    }
    await engine.close();
    await expect.poll(() => warnings).toEqual([expect.stringContaining('the tracer failed: no room')]);
    process.off('warning', onWarning);
    expect(texts[0]).toBe(texts[1]);
  });
});

/** As `AsyncLocalStorageContextManager` of the SDK for Node. */
class LocalContexts implements ContextManager {
  readonly #storage = new AsyncLocalStorage<Context>();
  active = (): Context => this.#storage.getStore() ?? ROOT_CONTEXT;
  with<A extends unknown[], F extends (...args: A) => ReturnType<F>>(
    active: Context,
    call: F,
    _this?: ThisParameterType<F>,
    ...args: A
  ): ReturnType<F> {
    return this.#storage.run(active, () => call(...args));
  }
  bind = <T>(_: Context, target: T): T => target;
  enable = () => this;
  disable = () => this;
}

const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;

describe('the trace of a request', () => {
  afterEach(() => {
    context.disable();
    trace.disable();
    propagation.disable();
  });

  const parents = async (headers: Record<string, string> | undefined): Promise<ReadableSpan> => {
    const { engine, exporter } = await traced();
    const more = headers === undefined ? {} : { traceHeaders: headers };
    await readAll(engine.generate({ prompt: 'a', params: { maxTokens: 1 }, ...more }));
    await engine.close();
    return rootOf(exporter.getFinishedSpans());
  };

  it('is continued from traceparent and tracestate', async () => {
    const root = await parents({ traceparent, tracestate: 'vendor=value' });
    expect(root.spanContext().traceId).toBe(traceId);
    expect(root.parentSpanContext).toMatchObject({ spanId: '00f067aa0ba902b7', isRemote: true });
    expect(root.spanContext().traceState?.get('vendor')).toBe('value');
  });

  it('is not recorded if the caller did not sample it', async () => {
    const { engine, exporter } = await traced();
    const traceHeaders = { traceparent: `${traceparent.slice(0, -2)}00` };
    await readAll(engine.generate({ prompt: 'a', params: { maxTokens: 1 }, traceHeaders }));
    await engine.close();
    expect(exporter.getFinishedSpans()).toEqual([]);
  });

  const malformed: [string, Record<string, string> | undefined][] = [
    ['no headers', undefined],
    ['other headers', { tracestate: 'vendor=value' }],
    ['an id of zeros', { traceparent: `00-${'0'.repeat(32)}-00f067aa0ba902b7-01` }],
    ['a span id of zeros', { traceparent: `00-${traceId}-${'0'.repeat(16)}-01` }],
    ['capital letters', { traceparent: traceparent.toUpperCase() }],
    ['the forbidden version', { traceparent: `ff${traceparent.slice(2)}` }],
    ['more fields than its version has', { traceparent: `${traceparent}-extra` }],
    ['two values', { traceparent: `${traceparent}, ${traceparent}` }],
    ['nothing', { traceparent: '' }],
    ['a long text', { traceparent: `${traceparent}${'0'.repeat(10_000)}` }],
  ];
  it.each(malformed)('begins with the request if the headers have %s', async (_, headers) => {
    const root = await parents(headers);
    expect(root.parentSpanContext).toBeUndefined();
    expect(root.spanContext().traceId).not.toBe(traceId);
  });

  it('is read from later versions of the header', async () => {
    expect((await parents({ traceparent: `01${traceparent.slice(2)}-later` })).spanContext().traceId).toBe(traceId);
  });

  it('continues the caller’s active span, also for long prompts, chats and grammars, with the global provider', async () => {
    const { exporter, tracerProvider } = memory();
    trace.setGlobalTracerProvider(tracerProvider);
    context.setGlobalContextManager(new LocalContexts());
    const toy = toyEngine({ scheduler: { maxModelLen: 50_000, maxNumBatchedTokens: 50_000 }, blockCount: 20_000 });
    const { engine } = toy;
    await traceEngine(engine);
    const tracer = trace.getTracer('test');
    const params = { maxTokens: 1, ignoreEos: true };
    const calls: (() => Promise<void>)[] = [
      () => readAll(engine.generate({ prompt: 'a', params, traceHeaders: { traceparent } })),
      () => readAll(engine.generate({ prompt: 'x'.repeat(40_000), params })),
      () => readAll(engine.chat({ messages: [{ role: 'user', content: 'hello' }], params })),
      () => readAll(engine.generate({ prompt: 'a', params: { ...params, structuredOutputs: { regex: '[ab]+' } } })),
    ];
    const spans = await Promise.all(
      calls.map((call, i) =>
        tracer.startActiveSpan(`caller ${i}`, async (span) => {
          await call();
          span.end();
          return span.spanContext();
        }),
      ),
    );
    await engine.close();
    expect(toy.tokenizer.backgroundTexts).toHaveLength(1);
    const finished = exporter.getFinishedSpans();
    for (const { traceId: id, spanId } of spans) {
      const root = rootOf(finished.filter((span) => span.spanContext().traceId === id));
      expect(root.parentSpanContext?.spanId).toBe(spanId);
    }
  });

  it('is taken from the headers of every endpoint that generates', async () => {
    const { engine, exporter } = await traced();
    const { client, close } = await serveEngine(engine);
    const headers = { traceparent };
    const options = { headers };
    const body = { model: 'toy', max_tokens: 2 } as const;
    await client.completions.create({ ...body, prompt: 'a' }, options);
    await client.chat.completions.create({ ...body, messages: [{ role: 'user', content: 'a' }] }, options);
    await client.responses.create({ model: 'toy', max_output_tokens: 2, input: 'a' }, options);
    for await (const _ of await client.completions.create({ ...body, prompt: 'a', stream: true }, options));
    const background = { model: 'toy', max_output_tokens: 2, input: 'a', background: true };
    await client.responses.create(background, options);
    const roots = (): ReadableSpan[] => exporter.getFinishedSpans().filter(({ name }) => name === 'llm_request');
    await expect.poll(() => roots().length).toBe(5);
    for (const root of roots()) expect(root.spanContext().traceId).toBe(traceId);
    await close();
    await engine.close();
  });
});

describe('loads and lost KV, with real weights and host memory below a small pool', () => {
  const folder = temporaryFolder();
  afterAll(() => folder.remove());

  it('are spans of their own, with the tokens that they concern', async () => {
    const engine = await openEngineWithTier({ tier: { type: 'fs', root_dir: folder.file('tier') } });
    const { exporter, tracerProvider } = memory();
    await traceEngine(engine, { tracerProvider });
    const params = { maxTokens: 20, ignoreEos: true, temperature: 0 };
    const ask = async (seed: number, lossAfter?: number) => {
      exporter.reset();
      const tokens: number[] = [];
      for await (const delta of engine.generate({ prompt: promptOf(300, seed, 250), params })) {
        tokens.push(...delta.tokenIds);
        if (delta.stats.outputTokens === lossAfter) await engine.cache!.loseBlocks({ count: 5, seed: 1 });
      }
      const spans = [...exporter.getFinishedSpans()];
      const find = (wanted: string) => spans.find(({ name }) => name === wanted);
      return { tokens, find, names: phasesOf(spans).map(([name]) => name), stats: rootOf(spans).attributes };
    };
    const first = await ask(0);
    expect(first.names).toEqual(['queue', 'prefill', 'decode']);
    // The pool has no room for the first prompt beside these.
    for (let seed = 1; seed <= 8; seed++) await ask(seed);
    const again = await ask(0);
    expect(again.tokens).toEqual(first.tokens);
    expect(again.names).toEqual(['queue', 'load', 'prefill', 'decode']);
    const loaded = again.find('load')!.attributes;
    expect(loaded['kvasir.loaded_tokens.host']).toBeGreaterThan(0);
    expect(again.stats).toMatchObject(loaded);
    const hurt = await ask(0, 10);
    expect(hurt.tokens).toEqual(first.tokens);
    expect(hurt.names.slice(-2)).toEqual([expect.stringMatching(/load|recompute/), 'decode']);
    await engine.close();
  });

  it('show blocks that are computed again', async () => {
    const engine = await openEngineWithTier({ tier: undefined });
    const { exporter, tracerProvider } = memory();
    await traceEngine(engine, { tracerProvider });
    const params = { maxTokens: 20, ignoreEos: true, temperature: 0 };
    for await (const { stats } of engine.generate({ prompt: promptOf(300, 1, 250), params }))
      if (stats.outputTokens === 10) await engine.cache!.loseBlocks({ count: 5, seed: 1 });
    await engine.close();
    const spans = exporter.getFinishedSpans();
    expect(phasesOf(spans).map(([name]) => name)).toEqual(['queue', 'prefill', 'decode', 'recompute', 'decode']);
    const recompute = spans.find(({ name }) => name === 'recompute')!;
    const { attributes } = rootOf(spans);
    expect(attributes['kvasir.recomputed_tokens']).toBeGreaterThan(0);
    expect(recompute.attributes['kvasir.computed_tokens']).toBeGreaterThanOrEqual(
      Number(attributes['kvasir.recomputed_tokens']),
    );
    expect(attributes['kvasir.recovery_time']).toBeGreaterThan(0);
  });
});
