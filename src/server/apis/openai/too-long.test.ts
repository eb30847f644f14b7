import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { tooManyTokens } from '../../../core/errors.ts';
import { closeServers, serveLetters } from '../responses/served-letters.suite.ts';

/** A prompt that is too long must be an error that agents know: they then shorten the conversation. */
closeServers();

interface Program {
  readonly program: string;
  readonly apis: readonly ('openai' | 'anthropic')[];
  readonly reads: 'message' | 'body';
  readonly any: readonly string[];
  readonly none: readonly string[];
  readonly numbers?: { readonly pattern: string };
}
const file = new URL('../../../../test/data/too-long-words.json', import.meta.url);
const { programs } = JSON.parse(readFileSync(file, 'utf8')) as { readonly programs: readonly Program[] };

const maxModelLen = 500;
const content = 'x'.repeat(600);
const messages = [{ role: 'user', content }];
const model = 'letters';
const matches = (pattern: string, text: string): boolean => new RegExp(pattern, 'i').test(text);

/** Requests of 600 characters, which are as many tokens, and of so many that they are not tokenized. */
const requests: readonly (readonly [path: string, body: object])[] = [
  ['/v1/chat/completions', { messages }],
  ['/v1/chat/completions', { messages, max_tokens: 100 }],
  ['/v1/chat/completions', { messages, stream: true }],
  ['/v1/completions', { prompt: content }],
  ['/v1/completions', { prompt: content, stream: true }],
  ['/v1/completions', { prompt: new Array<number>(600).fill(7) }],
  ['/v1/responses', { input: content }],
  ['/v1/responses', { input: content, stream: true }],
  ['/v1/responses', { input: content, background: true }],
  ['/v1/responses', { input: content, truncation: 'auto' }],
  ['/v1/messages', { messages, model, max_tokens: 100 }],
  ['/v1/messages', { messages, model, max_tokens: 100, stream: true }],
];

describe.each(requests)('%s %j', (path, body) => {
  it('says that the prompt is too long in words that every agent knows', async () => {
    const { post } = await serveLetters({ template: 'plain', maxModelLen });
    const api = path.startsWith('/v1/messages') ? 'anthropic' : 'openai';
    const answer = await post(body, path);
    const { message, type, code } = answer.body.error as unknown as Record<string, string>;
    expect([answer.status, type, code]).toEqual([
      400,
      'invalid_request_error',
      api === 'openai' ? 'context_length_exceeded' : undefined,
    ]);
    expect(message).toMatch(
      api === 'openai'
        ? /^This model's maximum context length is 500 tokens\. /
        : /^prompt is too long: \d+ tokens > 500 maximum\. /,
    );
    expect(message).toContain('--max-model-len');
    expectKnown(api, message!, JSON.stringify(answer.body));
  });
});

/** Each program knows it. */
function expectKnown(api: 'openai' | 'anthropic', message: string, body: string): void {
  for (const { program, apis, reads, any, none, numbers } of programs) {
    if (!apis.includes(api)) continue;
    const text = reads === 'message' ? message : body;
    expect(
      any.filter((pattern) => matches(pattern, text)),
      `${program}: ${text}`,
    ).not.toEqual([]);
    expect(
      none.filter((pattern) => matches(pattern, text)),
      `${program}: ${text}`,
    ).toEqual([]);
    if (numbers === undefined) continue;
    const read = new RegExp(numbers.pattern, 'i').exec(text)?.groups;
    expect(Number(read?.request), `${program}: ${text}`).toBeGreaterThan(Number(read?.context));
  }
}

describe('an output without room', () => {
  const strict = { strictFields: true };
  const short = [{ role: 'user', content: 'x'.repeat(300) }];

  it('is an error in the same words, if the server is strict', async () => {
    const { post } = await serveLetters({ template: 'plain', maxModelLen }, strict);
    const { status, body } = await post({ messages: short, max_tokens: 300 }, '/v1/chat/completions');
    const { message } = body.error as unknown as { message: string };
    expect(status).toBe(400);
    expect(message).toMatch(
      /^This model's maximum context length is 500 tokens\. However, you requested (\d+) tokens \((\d+) in the prompt, 300 in the completion\)\. Reduce the length of the messages or completion, or start with a larger --max-model-len\.$/,
    );
    expectKnown('openai', message, JSON.stringify(body));
  });

  it("tells Claude Code by Anthropic's other words that a smaller max_tokens helps", async () => {
    const { post } = await serveLetters({ template: 'plain', maxModelLen }, strict);
    const request = { messages: short, model, max_tokens: 300 };
    const { body } = await post(request, '/v1/messages');
    const { message } = body.error as unknown as { message: string };
    const read = /input length and `max_tokens` exceed context limit: (\d+) \+ (\d+) > (\d+)/.exec(message);
    expect(read?.slice(2)).toEqual(['300', '500']);
    expectKnown('anthropic', message, JSON.stringify(body));
    const room = 500 - Number(read![1]);
    expect((await post({ ...request, max_tokens: room }, '/v1/messages')).status).toBe(200);
  });

  it('has these words for a prompt that leaves no room for one token', async () => {
    const { post } = await serveLetters({ template: 'plain', maxModelLen });
    const lengths = await post({ messages: [{ role: 'user', content: '' }] }, '/v1/chat/completions/input_tokens');
    const content = 'x'.repeat(maxModelLen - Number(lengths.body.input_tokens));
    const { body } = await post({ messages: [{ role: 'user', content }], model, max_tokens: 9 }, '/v1/messages');
    expect((body.error as unknown as { message: string }).message).toMatch(/^prompt is too long: 500 tokens > 499 max/);
  });
});

it('says so when tokens are only counted, and for a text that is too long to be tokenized', async () => {
  const { post, engine } = await serveLetters({ template: 'plain', maxModelLen });
  engine.tokenizePrompt = () => Promise.reject(tooManyTokens({ promptTokens: 9000, isLeast: true, maxModelLen }));
  for (const path of ['/v1/messages', '/v1/messages/count_tokens', '/v1/chat/completions/input_tokens']) {
    const api = path.startsWith('/v1/messages') ? 'anthropic' : 'openai';
    const { body } = await post({ messages, model, max_tokens: 9 }, path);
    const { message } = body.error as unknown as { message: string };
    expect(message).toMatch(
      api === 'openai' ? /you requested at least 9001 tokens/ : /^prompt is too long: 9000 tokens > 500/,
    );
    // Qwen Code reads no number after "at least".
    expectKnown(api, message.replace('at least ', ''), JSON.stringify(body));
  }
});
