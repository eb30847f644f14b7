import { describe, expect, it } from 'vitest';
import { bos, eos, type ToyOptions, toyEngine, toyVocabSize, untilIdle } from '../../test/support/toy-model.ts';
import { AssertionError, assert } from '../base/assert.ts';
import type { BlockId } from '../core/ids.ts';
import type { AsyncEngine, GenerateRequest, OutputDelta } from './contract.ts';

interface Completion {
  text: string;
  tokens: number[];
  logprobs: unknown[];
  finish: OutputDelta['finish'];
}

async function collect(stream: AsyncIterable<OutputDelta>): Promise<Completion[]> {
  const completions: Completion[] = [];
  for await (const delta of stream) {
    completions[delta.index] ??= { text: '', tokens: [], logprobs: [], finish: undefined };
    const completion = completions[delta.index]!;
    expect(completion.finish).toBeUndefined();
    completion.text += delta.text;
    completion.tokens.push(...delta.tokenIds);
    completion.logprobs.push(...(delta.logprobs ?? []));
    completion.finish = delta.finish;
    if (delta.stats.outputTokens > 0) expect(delta.stats.outputTokens).toBe(completion.tokens.length);
  }
  return completions;
}

async function withEngine<T>(options: ToyOptions, use: (toy: ReturnType<typeof toyEngine>) => Promise<T>): Promise<T> {
  const toy = toyEngine(options);
  try {
    return await use(toy);
  } finally {
    await toy.engine.close();
    toy.scheduler.checkInvariants();
    await untilIdle(toy.scheduler);
    expect(toy.scheduler.stats().blocks.referenced).toBe(0);
    expect(toy.executor.isClosed && toy.tokenizer.isClosed).toBe(true);
  }
}

const generate = (engine: AsyncEngine, request: GenerateRequest, signal?: AbortSignal) =>
  collect(engine.generate(request, signal === undefined ? {} : { signal }));

/** Steps wait for `opened` until the test calls `open`. */
function gate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open, opened };
}

describe('generate', () => {
  it('streams the text of its tokens and ends at maxTokens', () =>
    withEngine({}, async ({ engine, tokenizer }) => {
      const params = { maxTokens: 40, seed: 1n, ignoreEos: true };
      const [completion] = await generate(engine, { prompt: 'a bird', params });
      expect(completion!.finish).toEqual({ reason: 'length' });
      expect(completion!.tokens.length).toBe(40);
      expect(completion!.text).toBe(tokenizer.decode(completion!.tokens));
    }));

  it('ends at the EOS token, which is an output token without text', () =>
    withEngine({}, async ({ engine, tokenizer }) => {
      const bias = { logitBias: new Map([[eos, 100]]) as never };
      const [plain] = await generate(engine, { prompt: 'x', params: { temperature: 0, ...bias, minTokens: 3 } });
      expect(plain!.finish).toEqual({ reason: 'stop' });
      expect(plain!.tokens.length).toBe(4);
      expect(plain!.tokens.at(-1)).toBe(eos);
      expect(plain!.text).toBe(tokenizer.decode(plain!.tokens.slice(0, 3)));
      const params = { temperature: 0, ...bias, includeStopStrInOutput: true, skipSpecialTokens: false };
      const [shown] = await generate(engine, { prompt: 'x', params });
      expect(shown!.text).toBe('<eos>');
    }));

  it('ends at a stop token of the caller and returns it as stopReason', () =>
    withEngine({}, async ({ engine }) => {
      const bias = { logitBias: new Map([[0x61, 100]]) as never };
      const params = { temperature: 0, ...bias, stopTokenIds: [0x61 as never] };
      const [completion] = await generate(engine, { prompt: 'x', params });
      expect(completion).toMatchObject({ text: '', tokens: [0x61], finish: { reason: 'stop', stopReason: 0x61 } });
    }));

  it('reports a recovery while the next step is computed', async () => {
    const order: string[] = [];
    const beforeStep = async (step: number): Promise<void> => void order.push(`step ${step}`);
    const onEvent = ({ message }: { readonly message: string }): void => void order.push(message);
    await withEngine({ beforeStep, settings: { onEvent } }, async ({ engine, executor }) => {
      const execute = executor.execute.bind(executor);
      executor.execute = async (plan) => {
        const result = await execute(plan);
        const block = plan.sequences[0]!.blockTables[0]!.ids[0] as BlockId;
        return executor.steps === 2 ? { ...result, invalidBlocks: [block] } : result;
      };
      await generate(engine, { prompt: 'a bird', params: { maxTokens: 2, ignoreEos: true } });
    });
    const message = 'Recovered from KV load failure: 1 request(s) rescheduled (4 tokens affected).';
    expect(order).toEqual(['step 1', 'step 2', 'step 3', message]);
  });

  it('accepts a text, tokens, and a rendered chat', () =>
    withEngine({}, async ({ engine }) => {
      const params = { temperature: 0, maxTokens: 8, ignoreEos: true };
      const [text] = await generate(engine, { prompt: 'hi', params });
      const [tokens] = await generate(engine, { prompt: [bos, 0x68, 0x69], params });
      const [bare] = await generate(engine, { prompt: 'hi', addSpecial: false, params });
      expect(tokens!.tokens).toEqual(text!.tokens);
      expect(bare!.tokens).not.toEqual(text!.tokens);
      const prompt = engine.applyChatTemplate([{ role: 'cat', content: 'hi' }]);
      expect(`${prompt}`).toBe('cat: hi<eos>bird: ');
      const chatTokens = engine.tokenize('cat: hi<eos>bird: ', { addSpecial: false, parseSpecial: true });
      expect(chatTokens).toHaveLength('cat: hi'.length + 1 + 'bird: '.length);
      const [chat] = await generate(engine, { prompt: chatTokens, params });
      const [rendered] = await generate(engine, { prompt, params });
      expect(rendered!.tokens).toEqual(chat!.tokens);
      expect(engine.tokenize(prompt)).toEqual(chatTokens);
      expect(await engine.tokenizePrompt(prompt)).toEqual(Int32Array.from(chatTokens));
      const [asText] = await generate(engine, { prompt, addSpecial: true, parseSpecial: false, params });
      expect(asText!.tokens).not.toEqual(chat!.tokens);
    }));

  it('returns one logprobs entry per token if they are requested', () =>
    withEngine({}, async ({ engine }) => {
      const params = { maxTokens: 10, seed: 3n, logprobs: 2, ignoreEos: true };
      for await (const delta of engine.generate({ prompt: 'x', params })) {
        expect(delta.logprobs!.length).toBe(delta.tokenIds.length);
        for (const { top } of delta.logprobs!) expect(top.length).toBe(2);
      }
      const [plain] = await generate(engine, { prompt: 'x', params: { ...params, logprobs: undefined as never } });
      expect(plain!.logprobs).toEqual([]);
    }));

  it('ends a request whose reader leaves more unread than it may', () =>
    withEngine({}, async ({ engine }) => {
      const params = { n: 2, maxTokens: 100, seed: 3n, ignoreEos: true };
      const stream = engine.generate({ prompt: 'x', params, unreadMaxBytes: 20_000 });
      const first = await stream.next();
      expect(first.value?.tokenIds).toHaveLength(1);
      await expect.poll(() => engine.stats().running).toBe(0);
      expect(engine.stats().aborts).toBe(2);
      await expect(stream.next()).rejects.toMatchObject({ code: 'KVASIR_UNREAD_OVER_LIMIT' });
      expect(await stream.next()).toEqual({ value: undefined, done: true });
      const [read] = await generate(engine, { prompt: 'x', params, unreadMaxBytes: 20_000 });
      expect(read!.tokens).toHaveLength(100);
    }));

  it('refuses a cache salt that is too long', () =>
    withEngine({}, async ({ engine }) => {
      const request = { prompt: 'x', cacheSalt: 'x'.repeat(1025), params: { maxTokens: 1 } };
      await expect(generate(engine, request)).rejects.toThrow(
        /cacheSalt.*at most 1024 characters, got 1025 characters/,
      );
      await generate(engine, { ...request, cacheSalt: 'x'.repeat(1024) });
    }));

  it('counts steps, prompt tokens, cached tokens and generated tokens', () =>
    withEngine({}, async ({ engine }) => {
      const params = { maxTokens: 10, seed: 3n, ignoreEos: true };
      const prompt = 'a prompt of some length';
      await generate(engine, { prompt, params });
      await generate(engine, { prompt, params });
      const stats = engine.stats();
      expect(stats).toMatchObject({ running: 0, waiting: 0, generatedTokens: 20, promptTokens: 48, aborts: 0 });
      // All six blocks of the second prompt are cached; only its last token is computed, for its logits.
      expect(stats.cachedTokens).toBe(23);
      expect(stats.steps).toBe(20);
      expect(stats.blocks.free + stats.blocks.cached).toBe(stats.blocks.total);
    }));
});

describe('stop strings', () => {
  it('end a completion across token boundaries and free its blocks at once', () =>
    withEngine({}, async ({ engine, tokenizer }) => {
      let crossed = 0;
      for (let seed = 0n; seed < 30n; seed++) {
        const params = { maxTokens: 60, seed, ignoreEos: true };
        const [free] = await generate(engine, { prompt: 'tell', params });
        for (const stop of ['singsEND', 'bird the ', '. ##', 'd sing', '🐦']) {
          const [stopped] = await generate(engine, { prompt: 'tell', params: { ...params, stop: [stop] } });
          const at = free!.text.indexOf(stop);
          if (at < 0) {
            expect(stopped).toEqual(free);
            continue;
          }
          crossed++;
          expect(stopped!.finish).toEqual({ reason: 'stop', stopReason: stop });
          expect(stopped!.text).toBe(free!.text.slice(0, at));
          expect(tokenizer.decode(stopped!.tokens)).toContain(stop);
          expect(tokenizer.decode(stopped!.tokens.slice(0, -1))).not.toContain(stop);
          const shown = { ...params, stop: [stop], includeStopStrInOutput: true };
          const [included] = await generate(engine, { prompt: 'tell', params: shown });
          expect(included!.text).toBe(free!.text.slice(0, at + stop.length));
          expect(engine.stats().running).toBe(0);
        }
      }
      expect(crossed).toBeGreaterThan(5);
    }));

  it('are ignored in the first minTokens tokens', () =>
    withEngine({}, async ({ engine }) => {
      const bias = { logitBias: new Map([[0x61, 100]]) as never };
      const params = { temperature: 0, ...bias, stop: ['aa'], minTokens: 5, maxTokens: 20 };
      const [completion] = await generate(engine, { prompt: 'x', params });
      expect(completion).toMatchObject({ text: 'aaaaa', finish: { reason: 'stop', stopReason: 'aa' } });
      expect(completion!.tokens.length).toBe(7);
    }));
});

describe('n completions', () => {
  it('equal those of n requests with seeds seed, seed + 1, ...', () =>
    withEngine({}, async ({ engine }) => {
      const params = { maxTokens: 20, seed: 2n ** 64n - 1n };
      const together = await generate(engine, { prompt: 'three', params: { ...params, n: 3 } });
      const seeds = [2n ** 64n - 1n, 0n, 1n];
      const alone = await Promise.all(
        seeds.map((seed) => generate(engine, { prompt: 'three', params: { ...params, seed } })),
      );
      expect(together).toEqual(alone.flat());
      expect(new Set(together.map(({ text }) => text)).size).toBe(3);
    }));

  it('differ in each call without a seed, and repeat if drawSeed repeats', async () => {
    const request = { prompt: 'x', params: { maxTokens: 20, ignoreEos: true } };
    const twice = () =>
      withEngine({}, ({ engine }) => Promise.all([generate(engine, request), generate(engine, request)]));
    const [first, second] = await twice();
    expect(first).not.toEqual(second);
    const drawn = () => withEngine({ settings: { drawSeed: () => 5n } }, ({ engine }) => generate(engine, request));
    expect(await drawn()).toEqual(await drawn());
  });
});

describe('invalid requests', () => {
  const bad: readonly (readonly [string, Partial<GenerateRequest>, string])[] = [
    ['an empty text', { prompt: '' }, 'KVASIR_PROMPT_EMPTY'],
    ['no tokens', { prompt: [] }, 'KVASIR_PROMPT_EMPTY'],
    ['no prompt', { prompt: undefined as never }, 'KVASIR_INVALID_PARAMETER'],
    ['a number', { prompt: 5 as never }, 'KVASIR_INVALID_PARAMETER'],
    ['a token beyond the vocabulary', { prompt: [1, toyVocabSize] }, 'KVASIR_INVALID_PARAMETER'],
    ['a negative token', { prompt: [-1] }, 'KVASIR_INVALID_PARAMETER'],
    ['half a token', { prompt: [1.5] }, 'KVASIR_INVALID_PARAMETER'],
    ['NaN as a token', { prompt: [NaN] }, 'KVASIR_INVALID_PARAMETER'],
    ['a hole', { prompt: { length: 3, 0: 1 } }, 'KVASIR_INVALID_PARAMETER'],
    ['a claim of a billion tokens', { prompt: { length: 1e9 } }, 'KVASIR_PROMPT_TOO_LONG'],
    ['a text that fills the model', { prompt: 'x'.repeat(127) }, 'KVASIR_PROMPT_TOO_LONG'],
    ['more maxTokens than fit', { prompt: 'xx', params: { maxTokens: 126 } }, 'KVASIR_PROMPT_TOO_LONG'],
    ['an invalid parameter', { prompt: 'x', params: { temperature: -1 } }, 'KVASIR_INVALID_PARAMETER'],
    ['an invalid priority', { prompt: 'x', priority: NaN }, 'KVASIR_INVALID_PARAMETER'],
    ['an empty salt', { prompt: 'x', cacheSalt: '' }, 'KVASIR_INVALID_PARAMETER'],
  ];
  it.each(bad)('%s is refused, and the engine serves the next request', (_, request, code) =>
    withEngine({}, async ({ engine }) => {
      const stream = engine.generate(request as GenerateRequest);
      await expect(stream.next()).rejects.toMatchObject({ code, httpStatus: 400 });
      expect(await stream.next()).toEqual({ value: undefined, done: true });
      expect(
        (await generate(engine, { prompt: 'x', params: { maxTokens: 2, ignoreEos: true } }))[0]!.tokens.length,
      ).toBe(2);
    }),
  );

  it('a prompt and maxTokens that exactly fit are accepted, and so is a prompt without maxTokens', () =>
    withEngine({}, async ({ engine }) => {
      const params = { ignoreEos: true, seed: 1n };
      const [given] = await generate(engine, { prompt: 'xx', params: { ...params, maxTokens: 125 } });
      const [filled] = await generate(engine, { prompt: 'xx', params });
      expect(given!.tokens.length).toBe(125);
      expect(filled).toEqual(given);
    }));

  it('a chat is refused if the model has no template', () =>
    withEngine({ chatTemplate: false }, async ({ engine }) => {
      expect(() => engine.applyChatTemplate([{ role: 'user', content: 'hi' }])).toThrow(
        expect.objectContaining({ code: 'KVASIR_CHAT_TEMPLATE_MISSING', httpStatus: 400 }),
      );
    }));
});

describe('the queue', () => {
  it('refuses requests beyond its limit and accepts requests again when there is room', async () => {
    const { open, opened } = gate();
    const options = { beforeStep: () => opened, scheduler: { maxNumSeqs: 2 }, settings: { maxWaiting: 1 } };
    await withEngine(options, async ({ engine }) => {
      const request = { prompt: 'x', params: { maxTokens: 3, ignoreEos: true } };
      const accepted = [1, 2, 3].map(() => generate(engine, request));
      await expect(generate(engine, request)).rejects.toMatchObject({
        code: 'KVASIR_QUEUE_FULL',
        httpStatus: 503,
        retryable: true,
        fields: { waiting: 1, limit: 1 },
      });
      open();
      await Promise.all(accepted);
      await generate(engine, { ...request, params: { ...request.params, n: 10 } });
    });
  });
});

describe('aborting a request', () => {
  it('by signal ends the stream with `abort` and the text kept back for a stop string', async () => {
    const controller = new AbortController();
    await withEngine({}, async ({ engine, scheduler }) => {
      const bias = { logitBias: new Map([[0x61, 100]]) as never };
      const params = { temperature: 0, ...bias, stop: ['a'.repeat(50)], n: 2 };
      const deltas: OutputDelta[] = [];
      for await (const delta of engine.generate({ prompt: 'x', params }, { signal: controller.signal })) {
        deltas.push(delta);
        if (deltas.length === 6) controller.abort();
      }
      const last = deltas.filter(({ finish }) => finish !== undefined);
      expect(last.map(({ finish }) => finish)).toEqual([{ reason: 'abort' }, { reason: 'abort' }]);
      for (const { text, stats } of last) expect(text).toBe('a'.repeat(stats.outputTokens));
      await untilIdle(scheduler);
      expect(engine.stats().aborts).toBe(2);
    });
  });

  it('before it starts runs no step', () =>
    withEngine({}, async ({ engine, executor }) => {
      const [completion] = await generate(engine, { prompt: 'x' }, AbortSignal.abort());
      expect(completion).toEqual({ text: '', tokens: [], logprobs: [], finish: { reason: 'abort' } });
      expect(executor.steps).toBe(0);
      expect(engine.stats().promptTokens).toBe(0);
    }));

  it('by leaving the loop frees the blocks, also while a step is in flight', () =>
    withEngine({}, async ({ engine, scheduler }) => {
      for await (const delta of engine.generate({ prompt: 'x', params: { n: 3, ignoreEos: true } })) {
        if (delta.stats.outputTokens > 2) break;
      }
      expect(scheduler.hasWork() && scheduler.stats().running > 0).toBe(false);
      await generate(engine, { prompt: 'y', params: { maxTokens: 2 } });
    }));

  it('leaves no listener on a signal that is used after the request', () =>
    withEngine({}, async ({ engine }) => {
      let listeners = 0;
      const { signal } = new AbortController();
      const add = signal.addEventListener.bind(signal);
      const remove = signal.removeEventListener.bind(signal);
      signal.addEventListener = (...args: Parameters<typeof add>) => {
        listeners++;
        add(...args);
      };
      signal.removeEventListener = (...args: Parameters<typeof remove>) => {
        listeners--;
        remove(...args);
      };
      await generate(engine, { prompt: 'x', params: { maxTokens: 2 } }, signal);
      const stream = engine.generate({ prompt: 'x' }, { signal });
      await stream.return();
      expect(listeners).toBe(0);
    }));

  it('by one signal for many requests causes no leak warning', async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning);
    process.on('warning', onWarning);
    try {
      await withEngine({}, async ({ engine }) => {
        const { signal } = new AbortController();
        const params = { maxTokens: 2 };
        await Promise.all(Array.from({ length: 12 }, () => generate(engine, { prompt: 'x', params }, signal)));
      });
      expect(warnings).toEqual([]);
    } finally {
      process.off('warning', onWarning);
    }
  });
});

describe('the end of an engine', () => {
  it('drain waits for accepted requests and refuses new ones', () =>
    withEngine({}, async ({ engine }) => {
      const params = { maxTokens: 30, ignoreEos: true };
      const accepted = [1, 2, 3].map(() => generate(engine, { prompt: 'x', params }));
      const drained = engine.drain();
      await expect(generate(engine, { prompt: 'x' })).rejects.toMatchObject({ code: 'KVASIR_ENGINE_CLOSED' });
      await drained;
      expect(engine.stats().running).toBe(0);
      expect(engine.isHealthy()).toBe(true);
      for (const [completion] of await Promise.all(accepted)) expect(completion!.tokens.length).toBe(30);
      await engine.drain();
    }));

  it('close aborts running requests, waits for the step in flight, and is idempotent', async () => {
    const { open, opened } = gate();
    const toy = toyEngine({ beforeStep: (step) => (step === 3 ? opened : Promise.resolve()) });
    const running = generate(toy.engine, { prompt: 'x', params: { n: 2, ignoreEos: true } });
    while (toy.executor.steps < 3 && toy.engine.isHealthy()) await new Promise(setImmediate);
    const closed = [toy.engine.close(), toy.engine.close()];
    expect(toy.engine.isHealthy()).toBe(false);
    for (const { finish } of await running) expect(finish).toEqual({ reason: 'abort' });
    expect(toy.executor.isClosed).toBe(false);
    open();
    await Promise.all(closed);
    expect(toy.executor.isClosed && toy.tokenizer.isClosed).toBe(true);
    toy.scheduler.checkInvariants();
    expect(toy.scheduler.stats().blocks.referenced).toBe(0);
    await expect(generate(toy.engine, { prompt: 'x' })).rejects.toMatchObject({ code: 'KVASIR_ENGINE_CLOSED' });
    expect(() => toy.engine.tokenize('x')).toThrow(expect.objectContaining({ code: 'KVASIR_ENGINE_CLOSED' }));
  });

  it('a rejected step ends every request with `error`, and later requests are refused as broken', async () => {
    const causes: unknown[] = [];
    const toy = toyEngine({ failAtStep: 4, settings: { onBroken: (cause) => causes.push(cause) } });
    const completions = await Promise.all(
      [1, 2, 3].map(() => generate(toy.engine, { prompt: 'x', params: { n: 2, ignoreEos: true } })),
    );
    for (const { finish, tokens } of completions.flat()) {
      expect(finish).toEqual({ reason: 'error' });
      expect(tokens.length).toBe(3);
    }
    expect(causes).toEqual([new Error('the toy model failed')]);
    expect(toy.engine.isHealthy()).toBe(false);
    await expect(generate(toy.engine, { prompt: 'x' })).rejects.toMatchObject({
      code: 'KVASIR_ENGINE_BROKEN',
      message: expect.stringContaining('the toy model failed'),
    });
    await toy.engine.drain();
    await toy.engine.close();
    expect(toy.executor.isClosed).toBe(true);
  });

  it('breaks if an invariant does not hold when it becomes idle', async () => {
    let toy!: ReturnType<typeof toyEngine>;
    const broken = new Promise((resolve) => {
      toy = toyEngine({ settings: { onBroken: resolve, invariants: 'counts' } });
    });
    const depths: unknown[] = [];
    toy.scheduler.checkInvariants = (depth) => {
      depths.push(depth);
      assert(false, 'I7: a block is leaked');
    };
    expect(await broken).toEqual(new AssertionError('I7: a block is leaked'));
    expect(depths).toEqual(['counts']);
    expect(toy.engine.isHealthy()).toBe(false);
    await toy.engine.close();
  });

  it('emits a warning of the process when it breaks without an onBroken callback', async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error) => warnings.push(warning);
    process.on('warning', onWarning);
    const toy = toyEngine({ failAtStep: 1 });
    await generate(toy.engine, { prompt: 'x' });
    await new Promise(setImmediate);
    process.off('warning', onWarning);
    expect(warnings).toEqual([
      expect.objectContaining({ name: 'KvasirEngineBroken', message: expect.stringContaining('the toy model failed') }),
    ]);
    await toy.engine.close();
  });

  it('is not created if one request of full length does not fit the pool', () => {
    expect(() => toyEngine({ blockCount: 30 })).toThrow(
      expect.objectContaining({ code: 'KVASIR_POOL_TOO_SMALL', fields: { blockCount: 29, maxModelLen: 128 } }),
    );
  });
});

describe('the event loop', () => {
  it('gets a turn between steps, even if the executor resolves at once', () =>
    withEngine({}, async ({ engine }) => {
      let turns = 0;
      let isDone: boolean = false;
      const count = () => {
        turns++;
        if (!isDone) setImmediate(count);
      };
      setImmediate(count);
      await generate(engine, { prompt: 'x', params: { maxTokens: 50, ignoreEos: true } });
      isDone = true;
      expect(turns).toBeGreaterThanOrEqual(49);
    }));
});
