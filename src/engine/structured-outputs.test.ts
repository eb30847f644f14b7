import { describe, expect, it } from 'vitest';
import { eos, type ToyOptions, toyEngine, untilIdle } from '../../test/support/toy-model.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import type { StructuredOutputs } from '../core/structured-outputs.ts';
import type { AsyncEngine, EngineEvent, OutputDelta } from './contract.ts';

interface Completion {
  text: string;
  tokens: number[];
  tops: number[];
  finish: OutputDelta['finish'];
}

async function complete(engine: AsyncEngine, structuredOutputs: StructuredOutputs, params: SamplingOptions = {}) {
  const completions: Completion[] = [];
  const given = { seed: 1n, maxTokens: 60, ...params, structuredOutputs };
  for await (const delta of engine.generate({ prompt: 'a bird', params: given })) {
    completions[delta.index] ??= { text: '', tokens: [], tops: [], finish: undefined };
    const completion = completions[delta.index]!;
    completion.text += delta.text;
    completion.tokens.push(...delta.tokenIds);
    completion.tops.push(...(delta.logprobs ?? []).map(({ top }) => top.length));
    completion.finish = delta.finish;
  }
  return completions;
}

async function withEngine<T>(options: ToyOptions, use: (engine: AsyncEngine) => Promise<T>): Promise<T> {
  const { engine, scheduler } = toyEngine(options);
  try {
    return await use(engine);
  } finally {
    await engine.close();
    await untilIdle(scheduler);
    scheduler.checkInvariants();
  }
}

const person = {
  type: 'object',
  properties: { name: { type: 'string', maxLength: 8 }, age: { type: 'integer', minimum: 1, maximum: 9 } },
  required: ['name', 'age'],
};
const kinds: [string, StructuredOutputs, RegExp][] = [
  ['a JSON schema', { json: person }, /^\{"name": ?"[^\n]{0,40}", ?"age": ?[1-9]\}$/],
  ['a JSON schema as a text', { json: JSON.stringify({ enum: ['bird', 2] }) }, /^("bird"|2)$/],
  [
    'JSON with free white space',
    { json: person, disableAnyWhitespace: false },
    /^\{\s*"name":\s*".{0,40}",\s*"age":\s*[1-9]\s*\}$/s,
  ],
  ['JSON without white space', { json: person, disableAnyWhitespace: true }, /^\{"name": "[^\n]*", "age": [1-9]\}$/],
  [
    'JSON with own white space',
    { json: { type: 'array', minItems: 2, maxItems: 2, items: { const: 1 } }, whitespacePattern: '_?' },
    /^\[_?1,_?1_?\]$/,
  ],
  ['a regular expression', { regex: '(bird|the ){2}[0-9]{3}' }, /^(bird|the ){2}[0-9]{3}$/],
  ['a choice', { choice: ['the bird', 'the fox', 'é'] }, /^(the bird|the fox|é)$/],
  ['a grammar', { grammar: 'root ::= "(" root ")" | word\nword ::= [a-c]{2,4} # end' }, /^\(*[a-c]{2,4}\)*$/],
];

describe('structured outputs', () => {
  it.each(kinds)('match %s', (_, outputs, expected) =>
    withEngine({}, async (engine) => {
      const completions = await complete(engine, outputs, { n: 4, temperature: 1.5, minTokens: 0, maxTokens: 100 });
      for (const { text, finish, tokens } of completions) {
        if (finish?.reason === 'length') continue;
        expect(text).toMatch(expected);
        expect(finish).toEqual({ reason: 'stop' });
        expect(tokens.at(-1)).toBe(eos);
      }
      expect(completions.some(({ finish }) => finish?.reason === 'stop')).toBe(true);
    }),
  );

  it('are a JSON object with `jsonObject`, and are cut by maxTokens', () =>
    withEngine({}, async (engine) => {
      const [long] = await complete(engine, { json: { type: 'object', minProperties: 1 } }, { maxTokens: 5 });
      expect(long).toMatchObject({ text: expect.stringMatching(/^\{/), finish: { reason: 'length' } });
      const [short] = await complete(engine, { jsonObject: true });
      expect(short!.text).toMatch(/^\{/);
    }));

  it('have the same tokens alone, in a batch, after preemptions, and when the caches of grammars are cold', async () => {
    const cases = kinds.flatMap(([, outputs]) => [1n, 2n].map((seed) => [outputs, { seed, logprobs: 3 }] as const));
    const alone: unknown[] = [];
    for (const [outputs, params] of cases) {
      alone.push(await withEngine({}, (engine) => complete(engine, outputs, params)));
    }
    const run = (options: ToyOptions) =>
      withEngine(options, async (engine) => {
        const results = await Promise.all(cases.map(([outputs, params]) => complete(engine, outputs, params)));
        return { results, preemptions: engine.stats().preemptions };
      });
    expect((await run({ scheduler: { maxNumSeqs: 16, maxNumBatchedTokens: 64 } })).results).toEqual(alone);
    const crowded = await run({ blockCount: 34, scheduler: { maxNumSeqs: 16, enablePrefixCaching: false } });
    expect(crowded.results).toEqual(alone);
    expect(crowded.preemptions).toBeGreaterThan(0);
  });

  it('of a schema that is not strict warn of keywords that are left out, once', async () => {
    const events: EngineEvent[] = [];
    await withEngine({ settings: { onEvent: (event) => void events.push(event) } }, async (engine) => {
      for (let i = 0; i < 2; i++) await complete(engine, { json: { type: 'array', uniqueItems: true, maxItems: 3 } });
    });
    expect(events).toEqual([
      {
        level: 'warn',
        message: expect.stringMatching(/^Outputs may not match `structuredOutputs.json`, .* at #\/uniqueItems\.$/),
        fields: { parameter: 'structuredOutputs.json' },
      },
    ]);
  });

  it('end when the grammar is complete, also with minTokens and ignoreEos', () =>
    withEngine({}, async (engine) => {
      const regex = 'the [a-c]{1,3}';
      const [early] = await complete(engine, { regex: 'the ' }, { minTokens: 20, ignoreEos: true });
      expect(early).toMatchObject({ text: 'the ', finish: { reason: 'stop' } });
      for (const params of [{ minTokens: 50 }, { ignoreEos: true }]) {
        for (const { text } of await complete(engine, { regex }, { ...params, n: 4 }))
          expect(text).toMatch(/^the [a-c]{3}$/);
      }
    }));

  it('keep to the grammar with a bias for other tokens, and with stop strings', () =>
    withEngine({}, async (engine) => {
      const logitBias = new Map([
        [0x7a, 100],
        [eos, 100],
      ]);
      const [biased] = await complete(engine, { regex: '[ab]{3}' }, { logitBias });
      expect(biased!.text).toMatch(/^[ab]{3}$/);
      const [stopped] = await complete(engine, { regex: 'aabb' }, { stop: 'ab' });
      expect(stopped).toMatchObject({ text: 'a', finish: { reason: 'stop', stopReason: 'ab' } });
    }));

  it('have logprobs among the allowed tokens only', () =>
    withEngine({}, async (engine) => {
      const [sure] = await complete(engine, { regex: '[ab]' }, { logprobs: 5 });
      // One of two letters, then EOS.
      expect(sure!.tops).toEqual([2, 1]);
    }));

  it.each<[string, unknown, RegExp]>([
    ['two kinds', { regex: 'a', choice: ['b'] }, /exactly one of .*, got regex and choice/],
    ['no kind', { disableAnyWhitespace: true }, /got none/],
    ['an unknown field', { schema: {} }, /`structuredOutputs.schema` must be absent/],
    ['a text', 'json', /must be an object/],
    [
      'an unsupported keyword',
      { json: { properties: { a: { type: 'array', uniqueItems: true } } }, strict: true },
      /`uniqueItems` is supported .* at #\/properties\/a\/uniqueItems/,
    ],
    ['a schema of no value', { json: false }, /no output matches it/],
    ['a schema that is not JSON', { json: '{"a' }, /JSON schema/],
    ['a look-ahead that nothing matches', { regex: '(?=a)b' }, /no output matches it/],
    ['a back reference', { regex: '(a)\\1' }, /a back reference at position/],
    ['a rule that begins with itself', { grammar: 'root ::= root "a" | "b"' }, /`root` begins with itself/],
    ['an unknown rule', { grammar: 'root ::= foo' }, /no rule `foo`/],
    ['a wrong grammar', { grammar: 'root ::= "a"\nb = "c"' }, /line 2/],
    ['an empty choice', { choice: [] }, /list of strings/],
    ['a schema that is too large', { json: { description: 'x'.repeat(300_000) } }, /at most 262144 characters/],
    ['too many states', { regex: 'é'.repeat(20_000) }, /more than 30000 states/],
  ])('are refused with %s', (_, outputs, message) =>
    withEngine({}, async (engine) => {
      const failing = complete(engine, outputs as StructuredOutputs);
      await expect(failing).rejects.toThrow(message);
      await expect(failing).rejects.toMatchObject({ httpStatus: 400 });
      expect(engine.stats()).toMatchObject({ running: 0, waiting: 0 });
    }),
  );

  it('wait for the vocabulary: a request that is aborted meanwhile ends with abort, and drain waits for the others', () =>
    withEngine({}, async (engine) => {
      const controller = new AbortController();
      const params = { structuredOutputs: { choice: ['the bird'] } };
      const gone = engine.generate({ prompt: 'x', params }, { signal: controller.signal });
      const other = complete(engine, params.structuredOutputs);
      expect(engine.stats().waiting).toBe(2);
      controller.abort();
      expect((await gone.next()).value).toMatchObject({ finish: { reason: 'abort' } });
      await engine.drain();
      expect((await other)[0]!.text).toBe('the bird');
    }));
});
