/** OpenAI's client for JavaScript. */
import assert from 'node:assert';
import OpenAI from 'openai';
import { checkAnswer, checkCity, checkPerson, model, person, question, report, url, weather } from './features.mjs';

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 3_600_000 });
const common = { model, messages: [{ role: 'user', content: question }], max_tokens: 256, temperature: 0 };
const greedy = { model, prompt: 'Once upon a time', max_tokens: 16, temperature: 0 };
const messageOf = async (more) => (await client.chat.completions.create({ ...common, ...more })).choices[0].message;
const callOf = async (choice) =>
  (await messageOf({ tools: [weather], tool_choice: choice })).tool_calls[0].function.arguments;

await report({
  plain: async () => {
    const answer = await client.chat.completions.create(common);
    assert(answer.choices[0].message.content && answer.usage.completion_tokens > 0);
    assert((await client.completions.create(greedy)).choices[0].text);
  },
  stream: async () => {
    const { content } = await messageOf({});
    let text = '';
    let usage;
    const options = { stream: true, stream_options: { include_usage: true } };
    for await (const chunk of await client.chat.completions.create({ ...common, ...options })) {
      text += chunk.choices[0]?.delta.content ?? '';
      usage = chunk.usage;
    }
    assert.equal(text, content);
    assert(usage.completion_tokens > 0);
  },
  'tools auto': async () => {
    const message = await messageOf({ tools: [weather], tool_choice: 'auto' });
    checkAnswer(message.content, message.tool_calls);
  },
  'tools required': async () => checkCity(await callOf('required')),
  'tools named': async () => checkCity(await callOf({ type: 'function', function: { name: 'get_weather' } })),
  json_schema: async () => {
    const schema = { name: 'person', schema: person, strict: true };
    checkPerson((await messageOf({ response_format: { type: 'json_schema', json_schema: schema } })).content);
  },
  logprobs: async () => {
    const answer = await client.chat.completions.create({ ...common, logprobs: true, top_logprobs: 2 });
    assert.equal(answer.choices[0].logprobs.content[0].top_logprobs.length, 2);
    const completion = await client.completions.create({ ...greedy, logprobs: 2 });
    assert.equal(completion.choices[0].logprobs.token_logprobs.length, 16);
  },
  embeddings: async () => {
    const answer = await client.embeddings.create({ model, input: ['a fox', 'a mouse'] });
    assert(answer.data.length === 2 && answer.data[0].embedding.length > 8);
  },
  responses: async () => {
    const asked = { model, input: question, max_output_tokens: 32 };
    const answer = await client.responses.create(asked);
    assert(answer.output_text);
    const following = await client.responses.create({ ...asked, input: 'And in Oslo?', previous_response_id: answer.id });
    assert(following.usage.input_tokens > answer.usage.input_tokens);
    const events = [];
    for await (const event of await client.responses.create({ ...asked, stream: true })) events.push(event);
    assert(['response.completed', 'response.incomplete'].includes(events.at(-1).type));
    assert(events.some(({ type, delta }) => type === 'response.output_text.delta' && delta));
  },
});
