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
    assert(answer.message.content && answer.eval_count > 0 && answer.eval_duration > 0 && answer.done);
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
    const { embedding } = await client.embeddings({ model, prompt: 'a fox' });
    assert.equal(embedding.length, answer.embeddings[0].length);
    assert.deepEqual((await client.embed({ model, input: '' })).embeddings, []);
  },
  models: async () => {
    const { models } = await client.list();
    assert(models.some((listed) => listed.model.replace(/:latest$/, '') === model));
    const { details, model_info: info } = await client.show({ model });
    assert(details.parameter_size && details.quantization_level && info['general.parameter_count'] > 0);
    assert((await client.ps()).models.length > 0 && (await client.version()).version);
  },
  errors: async () => {
    await assert.rejects(client.chat({ model: 'no-such-model', messages }), { status_code: 404 });
    const changes = [
      client.delete({ model }),
      client.copy({ source: model, destination: 'other' }),
      client.create({ model: 'other', from: model }),
    ];
    for (const change of changes) await assert.rejects(change, (error) => error.status_code < 500 && error.error !== '');
  },
  load: async () => {
    const done = [
      await client.generate({ model }),
      await client.generate({ model, keep_alive: 0 }),
      await client.chat({ model, keep_alive: '5m' }),
    ];
    assert.deepEqual(
      done.map((answer) => answer.done_reason),
      ['load', 'unload', 'load'],
    );
  },
  continue: async () => {
    const begun = [...messages, { role: 'assistant', content: 'The weather in Rome' }];
    const answer = await client.chat({ ...common, messages: begun });
    assert(answer.done && answer.done_reason !== 'load');
  },
  logprobs: async () => {
    const { logprobs, message } = await client.chat({ ...common, logprobs: true, top_logprobs: 2 });
    assert(logprobs.every((token) => token.top_logprobs.length === 2));
    assert.equal(
      logprobs
        .map(({ token }) => token)
        .join('')
        .trim(),
      message.content.trim(),
    );
  },
  pull: async () => {
    assert.equal((await client.pull({ model })).status, 'success');
    let last;
    for await (const { status } of await client.pull({ model, stream: true })) last = status;
    assert.equal(last, 'success');
  },
});
