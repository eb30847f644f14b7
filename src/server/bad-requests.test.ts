import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LetterEngine } from '../../test/support/letter-engine.ts';
import { Server } from './server.ts';

const lines: string[] = [];
const engine = new LetterEngine();
const server = new Server(engine, {
  strictFields: true,
  version: '1.2.3',
  apiKey: 'sesame',
  bodyMaxBytes: 100_000,
  choicesMax: 8,
  logDestination: { write: (line) => void lines.push(line) },
});
let port = 0;
beforeAll(async () => {
  port = await server.listen(0, '127.0.0.1');
});
afterAll(() => server.app.close());

const AUTHORIZED = { authorization: 'Bearer sesame', 'content-type': 'application/json' };

async function send(
  method: string,
  path: string,
  body?: string | Buffer,
  headers: Record<string, string> = AUTHORIZED,
) {
  const request = httpRequest({ host: '127.0.0.1', port, method, path, headers });
  request.end(body);
  const [response] = await once(request, 'response');
  const text = await readText(response);
  return { status: response.statusCode as number, headers: response.headers, error: JSON.parse(text).error };
}

const complete = (body: unknown) => send('POST', '/v1/completions', JSON.stringify(body));
const chat = (body: unknown) => send('POST', '/v1/chat/completions', JSON.stringify(body));

/** A valid request is still answered. */
async function expectAlive(): Promise<void> {
  expect((await complete({ prompt: 'abc', max_tokens: 1 })).status).toBe(200);
  expect(engine.stats().running).toBe(0);
}

const nested = (levels: number): unknown => (levels === 0 ? 1 : [nested(levels - 1)]);
const prompt = 'abc';
const messages = [{ role: 'user', content: 'hi' }];

describe('completions with a wrong field', () => {
  const cases: [name: string, body: unknown, param: string | null, message: RegExp][] = [
    ['no prompt', {}, 'prompt', /`prompt` is required/],
    ['an empty prompt', { prompt: '' }, null, /prompt is empty/],
    ['an empty list of prompts', { prompt: [] }, null, /prompt is empty/],
    ['an empty list of tokens', { prompt: [[1], []] }, null, /prompt is empty/],
    ['a prompt of the wrong type', { prompt: { text: 'a' } }, 'prompt', /must be a string, a list/],
    ['mixed prompts', { prompt: ['a', [1]] }, 'prompt[1]', /must be a string/],
    ['other mixed prompts', { prompt: [[1], 'a'] }, 'prompt[1]', /must be a list of token ids/],
    ['a token outside the vocabulary', { prompt: [1, 258] }, 'prompt[1]', /from 0 to 257, got 258/],
    ['a negative token', { prompt: [-1] }, 'prompt[0]', /from 0 to 257, got -1/],
    ['half a token', { prompt: [1.5] }, 'prompt[0]', /from 0 to 257, got 1.5/],
    ['half a character', { prompt: 'a\ud800b' }, 'prompt', /well-formed Unicode/],
    [
      'an over-long prompt',
      { prompt: 'x'.repeat(300) },
      null,
      /maximum context length is 256 tokens\. However, you requested 301 tokens \(300 in the prompt, 1 in the completion\)/,
    ],
    ['an absurd prompt', { prompt: 'x'.repeat(256 * 256 + 1) }, null, /you requested 65538 tokens/],
    [
      'a prompt and max_tokens beyond the context',
      { prompt, max_tokens: 254 },
      null,
      /you requested 257 tokens \(3 in the prompt, 254 in the completion\)/,
    ],
    ['max_tokens 0', { prompt, max_tokens: 0 }, 'max_tokens', /an integer of at least 1, got 0/],
    ['huge max_tokens', { prompt, max_tokens: 1e300 }, 'max_tokens', /must be an integer/],
    ['a long cache salt', { prompt, cache_salt: 'x'.repeat(1025) }, 'cache_salt', /at most 1024 characters, got 1025/],
    ['a long name of the model', { prompt, model: 'x'.repeat(1025) }, 'model', /at most 1024 characters, got 1025/],
    ['a long user', { prompt, user: 'x'.repeat(16_385) }, 'user', /at most 16384 characters of JSON, got 16385/],
    [
      'much metadata',
      { prompt, metadata: { a: ['x'.repeat(16_384)] } },
      'metadata',
      /at most 16384 characters of JSON/,
    ],
    ['a long stop string', { prompt, stop: ['x'.repeat(4097)] }, 'stop', /at most 4096 characters, got 4097/],
    ['a negative temperature', { prompt, temperature: -1 }, 'temperature', /at least 0, got -1/],
    ['a temperature in words', { prompt, temperature: 'hot' }, 'temperature', /got "hot"/],
    ['a negative top_p', { prompt, top_p: -0.1 }, 'top_p', /greater than 0/],
    ['top_k -2', { prompt, top_k: -2 }, 'top_k', /`top_k` must be/],
    ['min_p 2', { prompt, min_p: 2 }, 'min_p', /from 0 to 1, got 2/],
    ['repetition_penalty 0', { prompt, repetition_penalty: 0 }, 'repetition_penalty', /greater than 0/],
    ['presence_penalty 3', { prompt, presence_penalty: 3 }, 'presence_penalty', /from -2 to 2, got 3/],
    ['n 0', { prompt, n: 0 }, 'n', /`n` must be/],
    ['a huge n', { prompt, n: 1_000_000_000 }, 'n', /`n` must be/],
    ['n above the server limit', { prompt, n: 9 }, null, /1 prompt times `n` = 9 completions; the limit is 8/],
    ['too many prompts', { prompt: Array(9).fill('a') }, null, /9 items of `prompt`/],
    ['integers that are not exact', { prompt, max_tokens: 2 ** 60 }, 'max_tokens', /from 1 to 9007199254740991, got/],
    ['n times prompts above the limit', { prompt: ['a', 'b', 'c'], n: 3 }, null, /3 prompts times `n` = 3/],
    ['a fractional seed', { prompt, seed: 1.5 }, 'seed', /`seed` must be/],
    ['a seed as a text', { prompt, seed: '5' }, 'seed', /an integer from -2\^63 to 2\^64 - 1, got "5"/],
    ['a seed beyond 64 bits', { prompt, seed: 1e30 }, 'seed', /`seed` must be/],
    ['an empty stop', { prompt, stop: '' }, 'stop', /not empty/],
    ['too many stops', { prompt, stop: Array(99).fill('a') }, 'stop', /`stop` must be/],
    ['min_tokens above max_tokens', { prompt, max_tokens: 2, min_tokens: 3 }, 'min_tokens', /at most max_tokens \(2\)/],
    ['a bias for no token', { prompt, logit_bias: { x: 1 } }, 'logit_bias', /`logit_bias` must be/],
    ['a bias beyond the range', { prompt, logit_bias: { 1: 101 } }, 'logit_bias', /`logit_bias` must be/],
    [
      'too many biases, before any is read',
      { prompt, logit_bias: Object.fromEntries(Array.from({ length: 1025 }, (_, i) => [`x${i}`, 1])) },
      'logit_bias',
      /at most 1024 entries, got 1025 entries/,
    ],
    ['a long stop string', { prompt, stop: ['a', 'x'.repeat(4097)] }, 'stop', /at most 4096 characters, got 4097/],
    ['deep nesting', { prompt, metadata: nested(64) }, 'metadata', /more than 64 nested levels/],
    [
      'too many field names',
      { prompt, ...Object.fromEntries(Array.from({ length: 4096 }, (_, i) => [`x${i}`, 1])) },
      'x4095',
      /more than 4096 different field names/,
    ],
    ['too many logprobs', { prompt, logprobs: 21 }, 'logprobs', /from 0 to 20/],
    ['too many prompt logprobs', { prompt, prompt_logprobs: 21 }, 'prompt_logprobs', /from 0 to 20/],
    ['all prompt logprobs', { prompt, prompt_logprobs: -1 }, 'prompt_logprobs', /from 0 to 20, got -1/],
    ['prompt logprobs in words', { prompt, prompt_logprobs: 'all' }, 'prompt_logprobs', /must be an integer/],
    [
      'prompt logprobs in a stream',
      { prompt, prompt_logprobs: 1, stream: true },
      'prompt_logprobs',
      /absent if `stream` is true, got 1/,
    ],
    ['max_tokens -1 with echo', { prompt, max_tokens: -1, echo: true }, 'max_tokens', /an integer of at least 0/],
    ['an empty salt', { prompt, cache_salt: '' }, 'cache_salt', /non-empty/],
    ['stream in words', { prompt, stream: 'yes' }, 'stream', /true or false/],
    ['stream options without a stream', { prompt, stream_options: {} }, 'stream_options', /unless `stream` is true/],
    [
      'an unknown stream option',
      { prompt, stream: true, stream_options: { usage: true } },
      'stream_options.usage',
      /no field/,
    ],
    ['a suffix', { prompt, suffix: 'x' }, 'suffix', /no tokens for filling in the middle/],
    ['beam search', { prompt, use_beam_search: true }, 'use_beam_search', /not supported/],
    ['a typo', { prompt, temprature: 1 }, 'temprature', /Did you mean `temperature`\?/],
    ['another typo', { prompt, maxTokens: 1 }, 'maxTokens', /Did you mean `max_tokens`\?/],
    ['an unknown field', { prompt, zzzzzzzz: 1 }, 'zzzzzzzz', /There is no field `zzzzzzzz`\.$/],
    ['a prototype', JSON.parse('{"prompt":"a","__proto__":{"stream":true}}'), '__proto__', /no field/],
    ['a list', [1], null, /must be a JSON object, got an array/],
    ['a number', 7, null, /must be a JSON object, got 7/],
  ];
  it.each(cases)('%s', async (_, body, param, message) => {
    const { status, error } = await complete(body);
    expect(error).toEqual({
      message: expect.stringMatching(message),
      type: 'invalid_request_error',
      param: param === null ? null : param.replace('maxTokens', 'max_tokens'),
      code: expect.any(String),
    });
    expect(status).toBe(400);
    await expectAlive();
  });
});

const tool = (name: string, parameters: unknown = {}) => ({ type: 'function', function: { name, parameters } });

describe('chats with a wrong field', () => {
  const cases: [name: string, body: unknown, param: string, message: RegExp][] = [
    ['no messages', {}, 'messages', /`messages` is required/],
    ['no message', { messages: [] }, 'messages', /got 0 items/],
    ['a message that is a string', { messages: ['hi'] }, 'messages[0]', /must be an object/],
    ['no role', { messages: [{ content: 'hi' }] }, 'messages[0].role', /is required/],
    ['a strange role', { messages: [{ role: 'king', content: 'hi' }] }, 'messages[0].role', /one of system/],
    ['no content', { messages: [{ role: 'user' }] }, 'messages[0].content', /is required/],
    ['an unknown field', { messages: [{ role: 'user', content: 'a', x: 1 }] }, 'messages[0].x', /no field/],
    [
      'more parts than tokens, before any is read',
      {
        messages: [
          { role: 'user', content: Array(200).fill({ type: 'text', text: '' }) },
          { role: 'user', content: Array(57).fill(1) },
        ],
      },
      'messages[1].content',
      /at most 256 of them in all messages together, got 57 parts, which makes 257/,
    ],
    [
      'an image',
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:' } }] }] },
      'messages[0].content[0]',
      /"image_url" \(the model reads text only\)/,
    ],
    [
      'tool calls',
      { messages: [{ role: 'assistant', content: 'a', tool_calls: [{}] }] },
      'messages[0].tool_calls[0].id',
      /required.*a string/,
    ],
    [
      'a tool without a function',
      { messages, tools: [{ type: 'function' }] },
      'tools[0].function',
      /name and parameters/,
    ],
    ['a tool of another type', { messages, tools: [{ type: 'web_search' }] }, 'tools[0].type', /"function"/],
    ['a tool with a wrong name', { messages, tools: [tool('a b')] }, 'tools[0].function.name', /1 to 128 letters/],
    ['two tools with one name', { messages, tools: [tool('f'), tool('f')] }, 'tools[1].function.name', /no other tool/],
    ['wrong parameters', { messages, tools: [tool('f', [])] }, 'tools[0].function.parameters', /JSON schema/],
    ['a choice without tools', { messages, tool_choice: 'required' }, 'tool_choice', /without `tools`/],
    ['another choice', { messages, tools: [tool('f')], tool_choice: 'any' }, 'tool_choice', /"none", "auto"/],
    [
      'a choice of an unknown tool',
      { messages, tools: [tool('f')], tool_choice: { type: 'function', function: { name: 'g' } } },
      'tool_choice.function.name',
      /one of f/,
    ],
    ['an older name', { messages, guided_json: {} }, 'guided_json', /use `structured_outputs`/],
    ['another format', { messages, response_format: { type: 'xml' } }, 'response_format.type', /"json_schema"/],
    ['tags', { messages, response_format: { type: 'structural_tag' } }, 'response_format', /"structural_tag"/],
    [
      'a format without a schema',
      { messages, response_format: { type: 'json_schema', json_schema: { name: 'a' } } },
      'response_format.json_schema.schema',
      /`response_format.json_schema.schema` is required.*a JSON schema/,
    ],
    [
      'a schema that is a list',
      { messages, response_format: { type: 'json_object', schema: [] } },
      'response_format.schema',
      /must be a JSON schema.*got an array/,
    ],
    [
      'two formats',
      { messages, response_format: { type: 'json_object' }, structured_outputs: { regex: 'a' } },
      'structured_outputs',
      /absent if `response_format` is set/,
    ],
    ['no structure', { messages, structured_outputs: {} }, 'structured_outputs', /exactly one of json, .*json_object/],
    [
      'an unknown structure',
      { messages, structured_outputs: { jsn: {} } },
      'structured_outputs.jsn',
      /`structured_outputs.json`/,
    ],
    [
      'a wrong regular expression',
      { messages, structured_outputs: { regex: 7 } },
      'structured_outputs.regex',
      /a string/,
    ],
    ['top_logprobs alone', { messages, top_logprobs: 2 }, 'top_logprobs', /unless `logprobs` is true/],
    ['logprobs as a number', { messages, logprobs: 2 }, 'logprobs', /true or false/],
    ['a template', { messages, chat_template: '{{ 1 }}' }, 'chat_template', /--chat-template/],
  ];
  it.each(cases)('%s', async (_, body, param, message) => {
    const { status, error } = await chat(body);
    expect(error).toMatchObject({ message: expect.stringMatching(message), type: 'invalid_request_error', param });
    expect(status).toBe(400);
  });

  it('accepts unsupported fields whose values request nothing', async () => {
    const nothing = { tools: [], tool_choice: 'auto', response_format: { type: 'text' }, n: null, stop: null };
    expect((await chat({ messages, max_tokens: 1, ...nothing, modalities: ['text'], user: 'me' })).status).toBe(200);
  });
});

describe('HTTP', () => {
  it('refuses a body that is not JSON without quoting it', async () => {
    for (const [body, message] of [
      ['{"prompt": "my secret', /ends too early|cannot be parsed/],
      ['{"temperature": NaN}', /cannot be parsed/],
      ['', /ends too early|must be a JSON object|valid JSON/],
    ] as const) {
      const { status, error } = await send('POST', '/v1/completions', body);
      expect(status).toBe(400);
      expect(error.message).toMatch(message);
      expect(error.message).not.toContain('secret');
    }
    await expectAlive();
  });

  it('refuses JSON numbers that are infinite in JavaScript', async () => {
    for (const field of ['"temperature":1e999', '"max_tokens":1e999', '"logit_bias":{"1":1e999}', '"seed":1e999']) {
      expect((await send('POST', '/v1/completions', `{"prompt":"a",${field}}`)).status).toBe(400);
    }
  });

  it('refuses bytes that are not UTF-8', async () => {
    const body = Buffer.concat([Buffer.from('{"prompt":"'), Buffer.from([0xc3, 0x28, 0xff]), Buffer.from('"}')]);
    const { status, error } = await send('POST', '/v1/completions', body);
    expect(status).toBe(400);
    expect(error.message).toBe('The body is not valid UTF-8.');
    await expectAlive();
  });

  it('refuses a body that is too large, with and without Content-Length', async () => {
    const body = JSON.stringify({ prompt: 'x'.repeat(200_000) });
    const announced = await send('POST', '/v1/completions', body, {
      ...AUTHORIZED,
      'content-length': String(body.length),
    });
    const chunked = await send('POST', '/v1/completions', body, { ...AUTHORIZED, 'transfer-encoding': 'chunked' });
    for (const { status, error } of [announced, chunked]) {
      expect(status).toBe(413);
      expect(error.message).toContain('100000 bytes');
    }
    await expectAlive();
  });

  it('refuses other content types', async () => {
    for (const type of ['application/x-www-form-urlencoded', 'text/plain', 'nonsense']) {
      const { status, error } = await send('POST', '/v1/completions', '{}', { ...AUTHORIZED, 'content-type': type });
      expect(status).toBe(415);
      expect(error.message).toContain('Content-Type: application/json');
    }
    const { status } = await send('POST', '/v1/completions', '{}', { authorization: AUTHORIZED.authorization });
    expect(status).toBe(415);
  });

  it('refuses compressed bodies', async () => {
    for (const encoding of ['gzip', 'br', 'nonsense']) {
      const { status, error } = await send('POST', '/v1/completions', '\u001f\u008b', {
        ...AUTHORIZED,
        'content-encoding': encoding,
      });
      expect(status).toBe(415);
      expect(error.message).toContain(`content encoding ${encoding} is not supported`);
    }
  });

  it('answers 404 for unknown routes and 405 with `Allow` for wrong methods', async () => {
    expect(await send('GET', '/v1/nothing')).toMatchObject({ status: 404, error: { type: 'invalid_request_error' } });
    const { status, headers } = await send('GET', '/v1/completions');
    expect(status).toBe(405);
    expect(headers.allow).toBe('POST');
    expect((await send('POST', '/health', '{}')).headers.allow).toBe('GET');
    expect((await send('GET', '/v1/%zz')).status).toBe(404);
    // What the body has is of no interest then, and a client with a wrong path often has a wrong type too.
    for (const type of ['application/json', 'application/x-www-form-urlencoded', 'text/plain']) {
      const headers = { ...AUTHORIZED, 'content-type': type };
      expect((await send('POST', '/v1/chat/completion', '{', headers)).status).toBe(404);
      expect((await send('POST', '/v1/models', '{', headers)).status).toBe(405);
    }
  });

  it('answers 400 to bytes that are not HTTP', async () => {
    const socket = connect(port, '127.0.0.1');
    socket.end('HELLO\r\n\r\n');
    const text = await readText(socket);
    expect(text).toMatch(/^HTTP\/1\.1 400 /);
    expect(JSON.parse(text.split('\r\n\r\n')[1]!).error.type).toBe('invalid_request_error');
    await expectAlive();
  });

  it.each([
    ['ends', (socket: Socket) => socket.end()],
    ['is destroyed', (socket: Socket) => socket.destroy()],
    ['is reset', (socket: Socket) => socket.resetAndDestroy()],
  ])('logs one line and no internal error for a client whose connection %s within the body', async (_, leave) => {
    lines.length = 0;
    const socket = connect(port, '127.0.0.1');
    const fields = {
      ...AUTHORIZED,
      host: 'localhost',
      'content-length': 100,
      'x-request-id': 'gone',
      expect: '100-continue',
    };
    const head = Object.entries(fields).map((field) => `${field.join(': ')}\r\n`);
    socket.write(`POST /v1/completions HTTP/1.1\r\n${head.join('')}\r\n`);
    // The server has read the head and reads the body.
    await once(socket, 'data');
    socket.write('{"prompt":', () => leave(socket));
    while (lines.length === 0) await new Promise((resolve) => setImmediate(resolve));
    await expectAlive();
    const logged = lines.map((line) => JSON.parse(line)).filter(({ reqId }) => reqId === 'gone');
    expect(logged).toMatchObject([{ level: 30, msg: 'request', status: 499, clientGone: true }]);
    expect(lines.join('')).not.toContain('request failed');
  });

  it('answers 404 for another model and names its own', async () => {
    const { status, error } = await complete({ model: 'gpt-9', prompt });
    expect(status).toBe(404);
    expect(error).toMatchObject({ code: 'model_not_found', param: 'model' });
    expect(error.message).toContain('`letters`');
  });

  it('requires the API key on all routes except health', async () => {
    const json = { 'content-type': 'application/json' };
    for (const headers of [json, { ...json, authorization: 'Bearer wrong' }, { ...json, authorization: 'sesame' }]) {
      const { status, error } = await send('POST', '/v1/completions', '{"prompt":"a"}', headers);
      expect(status).toBe(401);
      expect(error.code).toBe('invalid_api_key');
      expect((await send('GET', '/v1/models', undefined, headers)).status).toBe(401);
      expect((await send('GET', '/unknown', undefined, headers)).status).toBe(401);
    }
    expect((await send('GET', '/health', undefined, {})).status).toBe(200);
  });

  it("keeps a client's request id if it is plain", async () => {
    const ask = async (id: string) =>
      (await send('GET', '/health', undefined, { 'x-request-id': id })).headers['x-request-id'];
    expect(await ask('trace-1')).toBe('trace-1');
    expect(await ask('a b')).toMatch(/^req-/);
  });

  it('logs each generation and each error in one line without the prompt', async () => {
    lines.length = 0;
    const secret = 'swordfish';
    await complete({ prompt: secret, max_tokens: 2 });
    await complete({ prompt: secret, temperature: -1 });
    await chat({ messages: [{ role: 'user', content: secret }], max_tokens: 1, stream: false });
    await send('GET', '/health');
    expect(lines.join('')).not.toContain(secret);
    const logged = lines.map((line) => JSON.parse(line));
    expect(logged).toHaveLength(3);
    expect(logged[0]).toMatchObject({
      reqId: expect.stringMatching(/^req-/),
      path: '/v1/completions',
      status: 200,
      promptTokens: 9,
      cachedTokens: 0,
      outputTokens: 2,
      finish: 'length',
      ttftMs: expect.any(Number),
      durationMs: expect.any(Number),
    });
    expect(logged[1]).toMatchObject({ status: 400, code: 'invalid_value' });
  });
});
