import { describe, expect, it } from 'vitest';
import { closeServers, serveLetters } from '../apis/responses/served-letters.suite.ts';

closeServers();

const chat = '/v1/chat/completions';
const mark = { cache_control: { type: 'ephemeral' } };
/** As clients of other servers send them. */
const sent = {
  messages: [
    { role: 'user', content: [{ type: 'text', text: 'hi', ...mark }], ...mark },
    { role: 'assistant', content: 'a', reasoning: 'b', ...mark },
    { role: 'user', content: 'hi', reasoning: 'c' },
  ],
  tools: [{ type: 'function', function: { name: 'f', parameters: { type: 'object' }, ...mark }, ...mark }],
  thinking: { type: 'enabled' },
  reasoning: { effort: 'low' },
  num_ctx: 4096,
  verbosity: 'low',
  prediction: { type: 'content', content: 'a' },
};

describe('fields that no endpoint knows', () => {
  it('are ignored, named in the answer, counted, and logged once', async () => {
    const lines: string[] = [];
    const logDestination = { write: (line: string) => void lines.push(line) };
    const { post, origin } = await serveLetters({ answer: 'Sunny.' }, { logLevel: 'warn', logDestination });
    const answer = await post(sent, chat);
    expect([answer.status, answer.headers.get('warning')]).toEqual([
      200,
      '299 kvasir "ignored: prediction, verbosity, thinking, reasoning, num_ctx"',
    ]);
    expect((await post(sent, chat)).status).toBe(200);
    const named = lines.map((line) => /field `([^`]+)`/.exec(line)?.[1]).filter((name) => name !== undefined);
    expect(named.toSorted((a, b) => (a < b ? -1 : 1))).toEqual(
      ['messages[].cache_control', 'messages[].reasoning', 'num_ctx', 'reasoning', 'thinking'].concat([
        'tools[].cache_control',
        'tools[].function.cache_control',
      ]),
    );
    const metrics = await (await fetch(`${origin}/metrics`)).text();
    const [, count] = /^kvasir:unknown_fields_total (\d+)$/m.exec(metrics)!;
    expect(Number(count)).toBe(2 * 8);
  });

  it.each([
    ['/v1/completions', { prompt: 'a', zzz: 1 }],
    ['/v1/responses', { input: 'a', zzz: 1 }],
    ['/v1/messages', { messages: [{ role: 'user', content: 'a' }], max_tokens: 3, zzz: 1 }],
    ['/api/chat', { messages: [{ role: 'user', content: 'a' }], stream: false, zzz: 1 }],
    ['/api/generate', { prompt: 'a', stream: false, zzz: 1 }],
  ])('are ignored by %s, and refused with strictFields', async (path, body) => {
    const open = await serveLetters({ answer: 'Sunny.' });
    const { status, headers } = await open.post(body, path);
    expect([status, headers.get('warning')]).toEqual([200, '299 kvasir "ignored: zzz"']);
    const strict = await serveLetters({ answer: 'Sunny.' }, { strictFields: true });
    const refused = await strict.post(body, path);
    expect([refused.status, JSON.stringify(refused.body)]).toEqual([
      400,
      expect.stringContaining('There is no field `zzz`'),
    ]);
  });

  it('may have any names and be many: the header has what a header may have', async () => {
    const { post } = await serveLetters({ answer: 'Sunny.' });
    const named = { prompt: 'a', 'é"\\\n\u0000x': 1, '': 1 };
    const { status, headers } = await post(named, '/v1/completions');
    expect([status, headers.get('warning')]).toEqual([200, '299 kvasir "ignored: ?????x, "']);
    const fields = Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`field_${i}_${'x'.repeat(200)}`, 1]));
    const many = await post({ prompt: 'a', ...fields }, '/v1/completions');
    expect([many.status, many.headers.get('warning')]).toEqual([200, expect.stringMatching(/, and 450 more"$/)]);
  });

  it('do not hide fields that are known and would change the answer', async () => {
    const { post } = await serveLetters({ answer: 'Sunny.' });
    const messages = [{ role: 'user', content: 'a' }];
    for (const field of ['functions', 'bad_words', 'grammar', 'guided_json'])
      expect([field, (await post({ messages, [field]: ['a'] }, chat)).status]).toEqual([field, 400]);
    const legacy = { role: 'assistant', content: 'a', function_call: { name: 'f', arguments: '' } };
    expect((await post({ messages: [legacy] }, chat)).status).toBe(400);
  });
});
