/** Anthropic's client for JavaScript. */
import assert from 'node:assert';
import Anthropic from '@anthropic-ai/sdk';
import { checkAnswer, checkCity, model, question, report, url, weather } from './features.mjs';

const client = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0, timeout: 3_600_000 });
const messages = [{ role: 'user', content: question }];
const common = { model, messages, max_tokens: 256, temperature: 0 };
const { name, description, parameters } = weather.function;
const tools = [{ name, description, input_schema: parameters }];
const textOf = ({ content }) => content.map(({ text = '' }) => text).join('');
const withTools = (choice) => client.messages.create({ ...common, tools, tool_choice: choice });

function checkCall(answer) {
  assert.equal(answer.stop_reason, 'tool_use');
  checkCity(answer.content.at(-1).input);
}

await report({
  plain: async () => {
    const answer = await client.messages.create({ ...common, system: 'Be brief.' });
    assert(textOf(answer) && answer.usage.output_tokens > 0);
    assert(['end_turn', 'max_tokens'].includes(answer.stop_reason));
  },
  stream: async () => {
    const whole = await client.messages.create(common);
    const streamed = client.messages.stream(common);
    let text = '';
    streamed.on('text', (more) => {
      text += more;
    });
    const final = await streamed.finalMessage();
    assert.equal(text, textOf(whole));
    assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
    assert.equal(final.stop_reason, whole.stop_reason);
  },
  'tools auto': async () => {
    const answer = await withTools({ type: 'auto' });
    checkAnswer(
      textOf(answer),
      answer.content.filter(({ type }) => type === 'tool_use'),
    );
  },
  'tools required': async () => {
    const required = { type: 'any', disable_parallel_tool_use: true };
    checkCall(await withTools(required));
    const final = await client.messages.stream({ ...common, tools, tool_choice: required }).finalMessage();
    checkCall(final);
    const result = { type: 'tool_result', tool_use_id: final.content.at(-1).id, content: 'Sunny.' };
    const more = [...messages, { role: 'assistant', content: final.content }, { role: 'user', content: [result] }];
    assert((await client.messages.create({ ...common, messages: more, tools })).content.length > 0);
  },
  'tools named': async () =>
    checkCall(await withTools({ type: 'tool', name: 'get_weather', disable_parallel_tool_use: true })),
  tokens: async () => {
    const counted = await client.messages.countTokens({ model, messages });
    const { usage } = await client.messages.create(common);
    // As at Anthropic, tokens from the cache are not among `input_tokens`.
    assert.equal(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
    assert((await client.messages.countTokens({ model, messages, tools })).input_tokens > counted.input_tokens);
  },
  errors: async () => {
    await assert.rejects(client.messages.create({ ...common, temperature: -1 }), Anthropic.BadRequestError);
    await assert.rejects(client.messages.create({ ...common, model: 'no-such-model' }), Anthropic.NotFoundError);
  },
});
