import { describe, expect, it } from 'vitest';
import { type ToyOptions, toyEngine, untilIdle } from '../../test/support/toy-model.ts';
import type { AsyncEngine, GenerateRequest, OutputDelta } from './contract.ts';

/** Long enough for background tokenization, and short enough for the toy engine. */
const long = 'a bird '.repeat(2400);
const params = { maxTokens: 5, seed: 1n, ignoreEos: true };
const withLargeQueue: ToyOptions = {
  blockCount: 20_000,
  tokenBytesMax: 1,
  scheduler: { maxModelLen: 20_000, maxNumBatchedTokens: 20_000 },
};

async function withEngine<T>(options: ToyOptions, use: (toy: ReturnType<typeof toyEngine>) => Promise<T>): Promise<T> {
  const toy = toyEngine(options);
  try {
    return await use(toy);
  } finally {
    await toy.engine.close();
    await untilIdle(toy.scheduler);
    expect(toy.engine.stats().waiting).toBe(0);
    expect(toy.scheduler.stats().blocks.referenced).toBe(0);
  }
}

async function collect(stream: AsyncIterable<OutputDelta>): Promise<OutputDelta[]> {
  const deltas: OutputDelta[] = [];
  for await (const delta of stream) deltas.push(delta);
  return deltas;
}

const generate = (engine: AsyncEngine, request: GenerateRequest) => collect(engine.generate(request));
const reasons = (deltas: readonly OutputDelta[]) => deltas.flatMap(({ finish }) => finish?.reason ?? []);

/** Delays every background encoding until the returned function is called. */
function delayEncoding({ tokenizer }: ReturnType<typeof toyEngine>): () => void {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  tokenizer.beforeEncoding = () => opened;
  return () => open();
}

describe('a long prompt', () => {
  it('gives the same output as its tokens, and its tokenization starts at the call', () =>
    withEngine(withLargeQueue, async ({ engine, tokenizer }) => {
      const request = { params: { ...params, n: 2, logprobs: 1 } };
      const stream = engine.generate({ ...request, prompt: long });
      expect(tokenizer.backgroundTexts).toEqual([long]);
      const deltas = await collect(stream);
      const longPrompt = await generate(engine, { ...request, prompt: tokenizer.encode(long) });
      const essence = (all: OutputDelta[]) =>
        all.map(({ index, text, tokenIds, finish }) => ({ index, text, tokenIds, finish }));
      expect(essence(deltas)).toEqual(essence(longPrompt));
      expect(tokenizer.backgroundTexts).toHaveLength(1);
    }));

  it('that is short is not tokenized in the background', () =>
    withEngine({}, async ({ engine, tokenizer }) => {
      await generate(engine, { prompt: 'x', params });
      expect(await engine.tokenizePrompt('x')).toEqual(Int32Array.from(engine.tokenize('x')));
      expect(tokenizer.backgroundTexts).toEqual([]);
    }));

  it('is refused before tokenization if its length alone shows that it cannot fit', () =>
    withEngine({ tokenBytesMax: 5 }, async ({ engine, tokenizer }) => {
      const encoded: string[] = [];
      const encode = tokenizer.encode.bind(tokenizer);
      tokenizer.encode = (text, options) => {
        encoded.push(text);
        return encode(text, options);
      };
      const refusal = {
        code: 'KVASIR_PROMPT_TOO_LONG',
        message: /length is 128 tokens.* at least 129 tokens \(128 in the prompt/,
      };
      const overlong = ['x'.repeat(128 * 5), 'é'.repeat(64 * 5), 'x'.repeat(1_500_000)];
      for (const prompt of overlong) {
        const expected =
          prompt.length > 1000
            ? { code: refusal.code }
            : { ...refusal, message: expect.stringMatching(refusal.message) };
        await expect(generate(engine, { prompt })).rejects.toMatchObject(expected);
        await expect(engine.tokenizePrompt(prompt)).rejects.toMatchObject(expected);
      }
      expect([encoded, tokenizer.backgroundTexts]).toEqual([[], []]);
      // A text of one token less is tokenized. The toy's tokens are bytes, so it is refused after that.
      await expect(generate(engine, { prompt: 'x'.repeat(127 * 5) })).rejects.toMatchObject({
        message: expect.stringContaining('(636 in the prompt'),
      });
      expect(encoded).toHaveLength(1);
    }));

  it('is aborted if the engine closes when its tokens exist and the request has not started', () =>
    withEngine(withLargeQueue, async ({ engine, tokenizer }) => {
      let finish = (): void => undefined;
      tokenizer.encodeInBackground = (text) =>
        new Promise((resolve) => (finish = () => resolve(tokenizer.encode(text))));
      const deltas = generate(engine, { prompt: long, params });
      finish();
      const closed = engine.close();
      expect(reasons(await deltas)).toEqual(['abort']);
      await closed;
    }));

  it('is refused after its beginning is tokenized, if the beginning alone is twice too long', () =>
    withEngine({ tokenBytesMax: 1000 }, async ({ engine, tokenizer }) => {
      await expect(engine.tokenizePrompt('x'.repeat(100_000))).rejects.toMatchObject({
        message: expect.stringContaining('you requested at least'),
      });
      expect(tokenizer.backgroundTexts.map(({ length }) => length)).toEqual([128 * 16]);
    }));

  it.each(['generate', 'tokenizePrompt'] as const)('of %s counts as a waiting request while it is tokenized', (how) => {
    const scheduler = { ...withLargeQueue.scheduler, maxNumSeqs: 1 };
    return withEngine({ ...withLargeQueue, scheduler, settings: { maxWaiting: 1 } }, async (toy) => {
      const { engine, tokenizer } = toy;
      const open = delayEncoding(toy);
      const start = (): Promise<unknown> =>
        how === 'generate' ? generate(engine, { prompt: long, params }) : engine.tokenizePrompt(long);
      const accepted = [start(), start()];
      expect(engine.stats().waiting).toBe(2);
      await expect(start()).rejects.toMatchObject({ code: 'KVASIR_QUEUE_FULL' });
      await expect(generate(engine, { prompt: 'x', params })).rejects.toMatchObject({ code: 'KVASIR_QUEUE_FULL' });
      expect(tokenizer.backgroundTexts).toHaveLength(2);
      open();
      await Promise.all(accepted);
      expect((await generate(engine, { prompt: 'x', params })).length).toBeGreaterThan(0);
    });
  });

  it('does not delay short requests, and long prompts keep their order', () =>
    withEngine(withLargeQueue, async (toy) => {
      const { engine, tokenizer } = toy;
      const open = delayEncoding(toy);
      const order: string[] = [];
      const run = (name: string, prompt: string) =>
        generate(engine, { prompt, params }).then((deltas) => {
          order.push(name);
          return deltas;
        });
      const first = run('first', long);
      const second = run('second', `${long}b`);
      await run('short', 'x');
      expect(order).toEqual(['short']);
      open();
      expect(reasons((await Promise.all([first, second])).flat())).toEqual(['length', 'length']);
      expect(tokenizer.backgroundTexts).toEqual([long, `${long}b`]);
    }));

  it('ends with `abort` when its signal aborts before, while and after it is tokenized', () =>
    withEngine(withLargeQueue, async (toy) => {
      const { engine } = toy;
      const open = delayEncoding(toy);
      const controller = new AbortController();
      const request = { prompt: long, params: { ...params, maxTokens: 1000, n: 2 } };
      const stream = collect(engine.generate(request, { signal: controller.signal }));
      controller.abort();
      expect(reasons(await stream)).toEqual(['abort', 'abort']);
      expect(reasons(await collect(engine.generate(request, { signal: controller.signal })))).toEqual([
        'abort',
        'abort',
      ]);
      await expect(engine.tokenizePrompt(long, { signal: controller.signal })).rejects.toBe(controller.signal.reason);
      expect(engine.stats()).toMatchObject({ waiting: 0, aborts: 4 });
      open();
      const late = new AbortController();
      const deltas: OutputDelta[] = [];
      for await (const delta of engine.generate(request, { signal: late.signal })) {
        deltas.push(delta);
        late.abort();
      }
      expect(reasons(deltas)).toEqual(['abort', 'abort']);
      expect(engine.stats().aborts).toBe(6);
    }));

  it('is aborted when its reader closes the stream', () =>
    withEngine(withLargeQueue, async (toy) => {
      delayEncoding(toy);
      const stream = toy.engine.generate({ prompt: long, params });
      expect(await stream.return!()).toEqual({ value: undefined, done: true });
      expect(await stream.next()).toEqual({ value: undefined, done: true });
      expect(toy.engine.stats()).toMatchObject({ waiting: 0, aborts: 1 });
    }));

  it('ends with `abort` when the engine closes', () =>
    withEngine(withLargeQueue, async (toy) => {
      delayEncoding(toy);
      const stream = generate(toy.engine, { prompt: long, params });
      const tokens = toy.engine.tokenizePrompt(long);
      const refused = expect(tokens).rejects.toMatchObject({ code: 'KVASIR_ENGINE_CLOSED' });
      await toy.engine.close();
      expect(reasons(await stream)).toEqual(['abort']);
      await refused;
    }));

  it('ends before drain resolves', () =>
    withEngine(withLargeQueue, async (toy) => {
      const open = delayEncoding(toy);
      const stream = generate(toy.engine, { prompt: long, params });
      let isDrained: boolean = false;
      const drained = toy.engine.drain().then(() => {
        isDrained = true;
      });
      for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
      expect(isDrained).toBe(false);
      open();
      expect(reasons(await stream)).toEqual(['length']);
      await drained;
    }));

  it('ends with `error` when the engine breaks, and drain resolves', async () => {
    const toy = toyEngine({ ...withLargeQueue, failAtStep: 1, settings: { onBroken: () => undefined } });
    delayEncoding(toy);
    const stream = generate(toy.engine, { prompt: long, params });
    const other = generate(toy.engine, { prompt: 'x', params });
    const draining = toy.engine.drain();
    expect(reasons(await other)).toEqual(['error']);
    expect(reasons(await stream)).toEqual(['error']);
    await draining;
    await toy.engine.close();
  });

  it('gets its seed and its parameters at the time of the call', () => {
    let drawn = 0n;
    const settings = { drawSeed: () => drawn++ };
    return withEngine({ ...withLargeQueue, settings }, async ({ engine, tokenizer }) => {
      const own = { maxTokens: 20, temperature: 1, ignoreEos: true };
      const changing = { ...own };
      const first = generate(engine, { prompt: long, params: changing });
      changing.maxTokens = 1;
      await generate(engine, { prompt: 'x', params: own });
      const tokensOf = (deltas: OutputDelta[]) => deltas.flatMap(({ tokenIds }) => tokenIds);
      const longPrompt = await generate(engine, { prompt: tokenizer.encode(long), params: { ...own, seed: 0n } });
      expect(tokensOf(await first)).toEqual(tokensOf(longPrompt));
    });
  });

  it.each([
    ['an invalid parameter', { params: { n: 0 } }, 'KVASIR_INVALID_PARAMETER'],
    ['an invalid priority', { priority: Number.NaN }, 'KVASIR_INVALID_PARAMETER'],
  ])('is refused for %s before it is tokenized', (_, fields, code) =>
    withEngine(withLargeQueue, async ({ engine, tokenizer }) => {
      await expect(generate(engine, { prompt: long, ...fields })).rejects.toMatchObject({ code });
      expect(tokenizer.backgroundTexts).toEqual([]);
    }),
  );

  it.each([
    ['maxTokens beyond the rest of the context', { maxTokens: 19_000 }, 'KVASIR_PROMPT_TOO_LONG'],
    ['minTokens beyond the rest of the context', { minTokens: 19_000 }, 'KVASIR_INVALID_PARAMETER'],
  ])('is refused for %s when it is tokenized', (_, fields, code) =>
    withEngine(withLargeQueue, async ({ engine }) => {
      await expect(generate(engine, { prompt: long, params: fields })).rejects.toMatchObject({ code });
      expect(engine.stats().waiting).toBe(0);
    }),
  );
});

describe('a burst of short prompts', () => {
  const prompts = Array.from({ length: 40 }, (_, i) => `${i} `.padEnd(1000, 'a bird '));

  it('is tokenized in the background, but for the first 16,384 characters of a turn', () =>
    withEngine(withLargeQueue, async ({ engine, tokenizer }) => {
      const all = await Promise.all(prompts.map((prompt) => engine.tokenizePrompt(prompt)));
      expect(all).toEqual(prompts.map((prompt) => Int32Array.from(engine.tokenize(prompt))));
      expect(tokenizer.backgroundTexts).toEqual(prompts.slice(16));
      await engine.tokenizePrompt(prompts[0]!);
      expect(tokenizer.backgroundTexts).toHaveLength(24);
    }));

  it('gives the same outputs as each prompt alone', () =>
    withEngine(withLargeQueue, async ({ engine, tokenizer }) => {
      const texts = (all: OutputDelta[][]) => all.map((deltas) => deltas.map(({ text }) => text).join(''));
      const together = await Promise.all(prompts.map((prompt) => generate(engine, { prompt, params })));
      expect(tokenizer.backgroundTexts).toEqual(prompts.slice(16));
      const alone: OutputDelta[][] = [];
      for (const prompt of prompts) alone.push(await generate(engine, { prompt: tokenizer.encode(prompt), params }));
      expect(texts(together)).toEqual(texts(alone));
    }));
});
