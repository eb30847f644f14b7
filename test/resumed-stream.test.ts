import fc from 'fast-check';
import { expect, it } from 'vitest';
import { ResumedStream } from '../examples/disaggregated/resumed-stream.ts';
import { fuzzRuns } from './support/long-form.ts';

/** The router's streams of several servers, which cut the same completion into other chunks. */
const head = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'm' };
const text = 'Once upon a time there was a fox 🦊 who lived in the garden.';
const reasoning = 'The user wants a story.';
const calls = ['{"city": "Rome"}', '{"city": "Oslo", "days": 3}'];

/** Cuts a text at these places. */
function pieces(whole: string, cuts: readonly number[]): string[] {
  const letters = [...whole];
  const at = [0, ...cuts.map((cut) => cut % letters.length).sort((a, b) => a - b), letters.length];
  return at.slice(1).map((end, i) => letters.slice(at[i], end).join(''));
}

/** A chat of two choices as a server streams it; the second calls two tools. */
function chunksOf(cuts: readonly number[], serial: number): object[] {
  const chunk = (choice: object, rest: object = {}) => ({
    ...head,
    id: `chatcmpl-${serial}`,
    choices: [{ logprobs: null, finish_reason: null, ...choice }],
    usage: null,
    ...rest,
  });
  const ids = (piece: string) => [...piece].map((letter) => letter.codePointAt(0)!);
  return [
    chunk({ index: 0, delta: { role: 'assistant', content: '' } }),
    ...pieces(reasoning, cuts).map((piece) => chunk({ index: 0, delta: { reasoning: piece } })),
    chunk({ index: 1, delta: { role: 'assistant', content: '' } }),
    ...pieces(text, cuts).map((content) =>
      chunk({
        index: 0,
        delta: { content },
        token_ids: ids(content),
        logprobs: { content: [...content].map((token) => ({ token })) },
      }),
    ),
    ...calls.flatMap((json, index) => [
      chunk({
        index: 1,
        delta: {
          tool_calls: [{ index, id: `call-${serial}`, type: 'function', function: { name: 'f', arguments: '' } }],
        },
      }),
      ...pieces(json, cuts).map((piece) =>
        chunk({ index: 1, delta: { tool_calls: [{ index, function: { arguments: piece } }] } }),
      ),
    ]),
    chunk(
      { index: 0, delta: {}, finish_reason: 'stop', stop_reason: 7 },
      { kv_transfer_params: { computed_tokens: 3 } },
    ),
    chunk({ index: 1, delta: {}, finish_reason: 'tool_calls' }),
    { ...head, id: `chatcmpl-${serial}`, choices: [], usage: { total_tokens: 9, details: { cached_tokens: 1 } } },
  ];
}

/** What a client has after these chunks: texts and lists joined, other fields as often as they came. */
function joined(chunks: readonly object[]): unknown {
  const known = new Map<string, unknown>();
  const add = (path: string, value: unknown): void => {
    if (value === null || value === '') return;
    const before = known.get(path);
    if (typeof value === 'string' && /content|reasoning|arguments/.test(path))
      known.set(path, `${before ?? ''}${value}`);
    else if (Array.isArray(value) && /token_ids|logprobs/.test(path))
      known.set(path, [...((before as unknown[] | undefined) ?? []), ...value]);
    else if (Array.isArray(value)) for (const element of value) add(`${path}.${element.index}`, element);
    else if (typeof value === 'object')
      for (const [name, field] of Object.entries(value!)) add(`${path}.${name}`, field);
    else known.set(path, [...((before as unknown[] | undefined) ?? []), value]);
  };
  for (const chunk of chunks) {
    const { id, object, created, model, ...rest } = chunk as Record<string, unknown>;
    expect({ id, object, created, model }).toEqual({ ...head, id: 'chatcmpl-0' });
    add('', Object.fromEntries(Object.entries(rest)));
  }
  // How often an index came depends on the cuts alone.
  return Object.fromEntries([...known].filter(([path]) => !path.endsWith('index')));
}

it('a client gets each part of a completion once, wherever servers cut it and wherever they die', () => {
  const cuts = fc.array(fc.nat(1000), { maxLength: 12 });
  const servers = fc.array(fc.record({ cuts, diesAfter: fc.nat(60) }), { minLength: 1, maxLength: 4 });
  fc.assert(
    fc.property(servers, cuts, (dying, lastCuts) => {
      const resumed = new ResumedStream();
      const received: object[] = [];
      const take = (chunks: readonly object[]): void => {
        resumed.restart();
        for (const chunk of chunks) {
          const fresh = resumed.take(JSON.parse(JSON.stringify(chunk)));
          if (fresh !== undefined) received.push(fresh);
        }
      };
      for (const [serial, { cuts, diesAfter }] of dying.entries()) take(chunksOf(cuts, serial).slice(0, diesAfter));
      take(chunksOf(lastCuts, dying.length));
      const whole = chunksOf([], 0).map((chunk) => ({ ...chunk, id: 'chatcmpl-0' }));
      const first = (received[0] as { id: string }).id;
      const normal = JSON.parse(
        JSON.stringify(received)
          .replaceAll(first, 'chatcmpl-0')
          .replaceAll(/call-\d/g, 'call-0'),
      );
      expect(joined(normal)).toEqual(joined(JSON.parse(JSON.stringify(whole))));
      for (const { choices } of normal) for (const choice of choices) expect(choice).toHaveProperty('delta');
    }),
    { numRuns: fuzzRuns(240) },
  );
});

it('the chunks of the only server pass unchanged', () => {
  const resumed = new ResumedStream();
  resumed.restart();
  for (const chunk of chunksOf([3, 9], 0)) expect(resumed.take(JSON.parse(JSON.stringify(chunk)))).toEqual(chunk);
});
