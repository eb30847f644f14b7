import { afterAll, beforeAll, expect, it } from 'vitest';
import { LetterEngine } from '../../../../test/support/letter-engine.ts';
import { Server } from '../../server.ts';

/** Requests for responses that are refused. One server answers all of them and still serves. */
const engine = new LetterEngine({ answer: 'Sunny.' });
const server = new Server(engine, { version: '1', logLevel: 'silent', bodyMaxBytes: 200_000, strictFields: true });
let origin = '';
beforeAll(async () => {
  origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
});
afterAll(() => server.app.close());

async function send(body: string) {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(`${origin}/v1/responses`, { method: 'POST', headers, body });
  const { error } = JSON.parse(await response.text());
  return { status: response.status, param: error?.param as string | null, message: error?.message as string };
}

const input = 'Rome?';
const item = (fields: object) => ({ input: [fields] });
const tool = { type: 'function', name: 'f' };
const custom = (format: object) => ({ type: 'custom', name: 'c', format: { type: 'grammar', ...format } });
const group = (inside: object) => ({ type: 'namespace', name: 'g', description: '', tools: [inside] });

const cases: [name: string, body: unknown, param: string | null, message: RegExp][] = [
  ['no input', {}, 'input', /`input` is required/],
  ['no items', { input: [] }, 'input', /got 0 items/],
  ['more items than the model has tokens', { input: Array(257).fill(1) }, 'input', /from 1 to 256, got 257 items/],
  ['an input of the wrong type', { input: 7 }, 'input', /a string, or a list of items/],
  ['half a character', { input: 'a\ud800' }, 'input', /well-formed Unicode/],
  ['an item that is no object', { input: ['Rome?'] }, 'input[0]', /must be an object/],
  ['an unknown type of items', item({ type: 'computer_call' }), 'input[0]', /an item of type "computer_call"/],
  ['a type that is a prototype', item({ type: '__proto__' }), 'input[0]', /an item of type "__proto__"/],
  ['a type that is a method', item({ type: 'constructor' }), 'input[0]', /an item of type "constructor"/],
  ['a strange role', item({ role: 'king', content: '' }), 'input[0].role', /one of system/],
  ['a message without content', item({ role: 'user' }), 'input[0].content', /is required/],
  [
    'a misspelt field',
    item({ role: 'user', content: '', statu: 'a' }),
    'input[0].statu',
    /Did you mean `input\[0\].status`/,
  ],
  ['an image', item({ role: 'user', content: [{ type: 'input_image' }] }), 'input[0].content[0]', /reads text only/],
  [
    'more parts than the model has tokens',
    item({ role: 'user', content: Array(257).fill({ type: 'input_text', text: '' }) }),
    'input[0].content',
    /at most 256 of them in all items together/,
  ],
  ['a call without a name', item({ type: 'function_call', call_id: 'c', arguments: '' }), 'input[0].name', /required/],
  ['a result without its call', item({ type: 'function_call_output', output: '' }), 'input[0].call_id', /required/],
  ['a reference to no item', item({ type: 'item_reference', id: 'msg_1' }), 'input', /no stored item `msg_1`/],
  [
    'an unknown earlier response',
    { input, previous_response_id: 'resp_1' },
    'previous_response_id',
    /There is no response `resp_1`/,
  ],
  ['a long id', { input, previous_response_id: 'x'.repeat(1000) }, 'previous_response_id', /`x{80}\.\.\.`/],
  ['an unknown tool', { input, tools: [{ type: 'functon' }] }, 'tools[0]', /runs no tools.*did you mean "function"/],
  [
    'a choice of a tool that is left out',
    { input, tools: [{ type: 'web_search' }], tool_choice: 'required' },
    'tool_choice',
    /without `tools`/,
  ],
  [
    'a grammar in another language',
    { input, tools: [custom({ syntax: 'peg', definition: '' })] },
    'tools[0].format.syntax',
    /"lark"/,
  ],
  [
    'a grammar without its text',
    { input, tools: [custom({ syntax: 'lark' })] },
    'tools[0].format.definition',
    /required/,
  ],
  ['a group without a name', { input, tools: [{ type: 'namespace', tools: [tool] }] }, 'tools[0].name', /required/],
  [
    'a group in a group',
    { input, tools: [group({ type: 'namespace' })] },
    'tools[0].tools[0]',
    /a tool of type "namespace"/,
  ],
  [
    'two tools of a group with one name',
    { input, tools: [group(tool), group(tool)] },
    'tools[1].tools[0].name',
    /no other/,
  ],
  [
    'arguments with too many levels',
    item({ type: 'function_call', call_id: 'c', name: 'f', arguments: '['.repeat(90_000) }),
    'input[0].arguments',
    /nested levels/,
  ],
  ['an unknown verbosity', { input, text: { verbosity: 'chatty' } }, 'text.verbosity', /one of low/],
  ['a tool as in chats', { input, tools: [{ type: 'function', function: tool }] }, 'tools[0].name', /is required/],
  ['a tool with a wrong name', { input, tools: [{ ...tool, name: 'a b' }] }, 'tools[0].name', /1 to 128 letters/],
  ['two tools with one name', { input, tools: [tool, tool] }, 'tools[1].name', /no other tool/],
  ['a choice of a hosted tool', { input, tool_choice: { type: 'mcp' } }, 'tool_choice', /with type "mcp"/],
  [
    'a choice of an unknown tool',
    { input, tools: [tool], tool_choice: { type: 'function', name: 'g' } },
    'tool_choice.name',
    /one of f/,
  ],
  [
    'an unknown allowed tool',
    { input, tools: [tool], tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ name: 'g' }] } },
    'tool_choice.tools[0].name',
    /one of f, got "g"/,
  ],
  ['max_output_tokens 0', { input, max_output_tokens: 0 }, 'max_output_tokens', /at least 1/],
  [
    'a response beyond the context',
    { input, max_output_tokens: 300 },
    null,
    /324 tokens \(24 in the prompt, 300 in the completion/,
  ],
  ['max_tokens', { input, max_tokens: 5 }, 'max_tokens', /use `max_output_tokens`/],
  ['messages', { messages: [] }, 'messages', /use `input`/],
  ['a temperature in words', { input, temperature: 'hot' }, 'temperature', /got "hot"/],
  [
    'too much metadata',
    { input, metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [i, ''])) },
    'metadata',
    /17 fields/,
  ],
  ['a long text as metadata', { input, metadata: { a: 'x'.repeat(513) } }, 'metadata', /at most 512 characters/],
  ['a background without store', { input, background: true, store: false }, 'background', /false if `store` is false/],
  ['a conversation', { input, conversation: 'conv_1' }, 'conversation', /not supported/],
  ['an unknown effort', { input, reasoning: { effort: 'much' } }, 'reasoning.effort', /one of none/],
  ['an unknown format', { input, text: { format: { type: 'xml' } } }, 'text.format.type', /"json_schema"/],
  ['a format that is no object', { input, text: { format: 'json' } }, 'text.format', /must be an object/],
  ['a misspelt top-level field', { input, instruction: '' }, 'instruction', /Did you mean `instructions`/],
  ['a list', [1], null, /must be a JSON object/],
];

it.each(cases)('%s', async (_, body, param, message) => {
  const answer = await send(JSON.stringify(body));
  expect(answer).toEqual({ status: 400, param, message: expect.stringMatching(message) });
  expect(engine.stats().running).toBe(0);
});

it('malformed JSON, nested JSON and large bodies are refused, and the server still serves', async () => {
  expect(await send('{"input": "secret')).toMatchObject({
    status: 400,
    message: expect.not.stringContaining('secret'),
  });
  expect((await send(`{"input": ${'['.repeat(100)}${']'.repeat(100)}}`)).message).toMatch(/nested levels/);
  expect((await send(JSON.stringify({ input: 'x'.repeat(300_000) }))).status).toBe(413);
  expect((await send(JSON.stringify({ input }))).status).toBe(200);
});

it.each(['resp_none', '%2e%2e', 'x'.repeat(90)])('the response %j does not exist', async (id) => {
  for (const [method, path] of [
    ['GET', ''],
    ['DELETE', ''],
    ['POST', '/cancel'],
  ] as const) {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${origin}/v1/responses/${id}${path}`, { method, headers });
    expect([method, response.status]).toEqual([method, 404]);
  }
});
