/** Ollama's client for JavaScript. */
import assert from 'node:assert';
import { Ollama } from 'ollama';
import { checkAnswer, checkPerson, model, person, question, report, url, weather } from './features.mjs';

const client = new Ollama({ host: url });
const messages = [{ role: 'user', content: question }];
const common = { model, messages, options: { temperature: 0, num_predict: 64 } };

await report({
  plain: async () => {
    const answer = await client.chat(common);
    assert(answer.message.content && answer.eval_count > 0 && answer.done);
    assert((await client.generate({ model, prompt: 'Once upon a time', options: common.options })).response);
  },
  stream: async () => {
    const whole = await client.chat(common);
    let text = '';
    for await (const part of await client.chat({ ...common, stream: true })) text += part.message.content;
    assert.equal(text, whole.message.content);
  },
  'tools auto': async () => {
    const { message } = await client.chat({ ...common, tools: [weather] });
    checkAnswer(message.content, message.tool_calls);
  },
  json_schema: async () => checkPerson((await client.chat({ ...common, format: person })).message.content),
  embeddings: async () => {
    const answer = await client.embed({ model, input: ['a fox', 'a mouse'] });
    assert(answer.embeddings.length === 2 && answer.embeddings[0].length > 8);
  },
  models: async () => {
    const { models } = await client.list();
    assert(models.some((listed) => listed.model.replace(/:latest$/, '') === model));
    assert((await client.show({ model })).details);
  },
  errors: async () => {
    await assert.rejects(client.chat({ model: 'no-such-model', messages }), { status_code: 404 });
  },
});
