import { afterEach, describe, expect, it } from 'vitest';
import { LetterEngine, type LetterEngineOptions } from '../../test/support/letter-engine.ts';
import { contentText } from '../tools/template-messages.ts';
import { Server } from './server.ts';

/** Conversations whose last or earlier messages are answers, of this server or of others. */
const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.app.close();
});

const user = { role: 'user', content: 'Rome?' };

async function serve(options: LetterEngineOptions = {}) {
  const chatTemplate = '{{ tools }}<tool_call>{{ tool_calls }}{{ content.split("</think>") }}';
  const engine = new LetterEngine({ answer: 'Sunny.', chatTemplate, maxModelLen: 5000, ...options });
  const rendered: (readonly object[])[] = [];
  const { renderChat } = engine;
  engine.renderChat = (messages, given) => {
    rendered.push(messages);
    return renderChat.call(engine, messages, given);
  };
  const server = new Server(engine, { version: '1', logLevel: 'silent', strictFields: true });
  servers.push(server);
  const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  const ask = async (body: object, path = '/v1/chat/completions') => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(origin + path, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: response.status, ...JSON.parse(await response.text()) };
  };
  /** The text that the engine computed. */
  const promptOf = (index: number) =>
    engine.detokenize(engine.requests[index]!.prompt as number[], { skipSpecialTokens: false });
  return { ask, engine, rendered, promptOf };
}

describe('an earlier answer can be sent back', () => {
  const cases: [name: string, message: object, shown: object][] = [
    ['without content', { content: null }, { content: '' }],
    ['without any field', {}, { content: '' }],
    ['with a refusal', { content: null, refusal: 'No.' }, { content: 'No.' }],
    [
      'with parts',
      {
        content: [
          { type: 'text', text: 'a' },
          { type: 'refusal', refusal: 'b' },
        ],
      },
      {
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
      },
    ],
    ['with thoughts', { content: 'a', reasoning_content: 'Hm.' }, { content: 'a', reasoning_content: 'Hm.' }],
    ["with vLLM's thoughts", { content: 'a', reasoning: 'Hm.' }, { content: 'a', reasoning_content: 'Hm.' }],
    [
      "with OpenRouter's thoughts",
      {
        content: 'a',
        reasoning: null,
        reasoning_details: [
          { type: 'reasoning.text', text: 'Hm', signature: 's', format: 'x', index: 0 },
          { type: 'reasoning.summary', summary: '.' },
          { type: 'reasoning.encrypted', data: '...' },
        ],
      },
      { content: 'a', reasoning_content: 'Hm.' },
    ],
    [
      'with fields of clients and gateways',
      {
        content: 'a',
        refusal: null,
        annotations: [{ type: 'url_citation', url_citation: {} }],
        audio: null,
        function_call: null,
        tool_calls: null,
        provider_specific_fields: { a: 1 },
        thinking_blocks: [{ type: 'thinking' }],
        parsed: { x: 1 },
        images: [],
      },
      { content: 'a' },
    ],
  ];
  it.each(cases)('%s', async (_, message, shown) => {
    const { ask, rendered } = await serve();
    const { status, error } = await ask({ messages: [user, { role: 'assistant', ...message }, user] });
    expect([status, error]).toEqual([200, undefined]);
    expect(rendered[0]![1]).toEqual({ role: 'assistant', ...shown });
  });

  it('with calls that have fields of others', async () => {
    const { ask } = await serve();
    const called = { name: 'f', arguments: '{}', parsed_arguments: {}, provider_specific_fields: {} };
    const tool_calls = [{ id: 'c', type: 'function', index: 0, function: called, extra_content: { a: 1 } }];
    expect((await ask({ messages: [{ role: 'assistant', content: null, tool_calls }] })).status).toBe(200);
  });

  it('but messages of users need content, and misspelt fields are refused', async () => {
    const { ask } = await serve();
    expect((await ask({ messages: [{ role: 'user', content: null }] })).error.param).toBe('messages[0].content');
    expect((await ask({ messages: [{ ...user, reasoning: 'a' }] })).error.param).toBe('messages[0].reasoning');
    const misspelt = { role: 'assistant', content: 'a', reasonin: 'b' };
    expect((await ask({ messages: [misspelt] })).error.message).toContain('Did you mean `messages[0].reasoning`');
    const legacy = { role: 'assistant', content: 'a', function_call: { name: 'f', arguments: '' } };
    expect((await ask({ messages: [legacy] })).error.param).toBe('messages[0].function_call');
  });
});

describe('continue_final_message', () => {
  const begun = { role: 'assistant', content: 'It is ' };
  const continued = { messages: [user, begun], continue_final_message: true, add_generation_prompt: false };

  it('continues the text of the final message', async () => {
    const { ask, promptOf } = await serve();
    const { choices } = await ask(continued);
    expect(choices[0].message.content).toBe('Sunny.');
    expect(promptOf(0)).toBe('<|im_start|>user\nRome?<|im_end|>\n<|im_start|>assistant\nIt is ');
    await ask({ ...continued, add_generation_prompt: undefined });
    expect(promptOf(1)).toBe(promptOf(0));
    const { count } = await ask(continued, '/tokenize');
    expect(count).toBe((await ask({ messages: [user, begun], add_generation_prompt: false }, '/tokenize')).count - 2);
  });

  it('continues texts that the template trims, and thoughts', async () => {
    const { ask, engine, promptOf } = await serve({ answer: 'm.</think>Yes.' });
    const { renderChat } = engine;
    engine.renderChat = (messages, given) =>
      renderChat.call(
        engine,
        messages.map((message) => ({ ...message, content: contentText(message.content).trim() })),
        given,
      );
    const thoughts = { role: 'assistant', content: '<think>H ' };
    const { choices } = await ask({ ...continued, messages: [user, thoughts] });
    expect(choices[0].message).toMatchObject({ reasoning_content: 'm.', content: 'Yes.' });
    expect(promptOf(0)).toMatch(/assistant\n<think>H$/);
  });

  it('is refused where it contradicts another field', async () => {
    const { ask, engine } = await serve();
    const tools = [{ type: 'function', function: { name: 'f' } }];
    const tool_calls = [{ id: 'c', type: 'function', function: { name: 'f', arguments: '' } }];
    const wrong: [object, string][] = [
      [{ add_generation_prompt: true }, 'continue_final_message'],
      [{ tools, tool_choice: 'required' }, 'tool_choice'],
      [{ messages: [user, { role: 'assistant', content: 'a', tool_calls }] }, 'messages[1]'],
      [{ continue_final_message: 'yes' }, 'continue_final_message'],
    ];
    for (const [fields, param] of wrong) expect((await ask({ ...continued, ...fields })).error.param).toBe(param);
    engine.renderChat = async () => engine.applyChatTemplate([user]);
    expect((await ask(continued)).error.message).toContain('does not show the final message');
  });
});

it('a template that renders nothing is named as the cause', async () => {
  const { ask, engine } = await serve();
  engine.renderChat = async () => engine.applyChatTemplate([], { addGenerationPrompt: false });
  const { status, error } = await ask({ messages: [user] });
  expect([status, error.code]).toEqual([400, 'KVASIR_CHAT_PROMPT_EMPTY']);
  expect(error.message).toContain('The chat template rendered an empty text');
});
