import { afterAll, beforeAll, expect, it } from 'vitest';
import { buildCommand } from '../../test/support/cli-process.ts';
import { ManualTime } from '../../test/support/manual-time.ts';
import { until } from '../../test/support/until.ts';
import { readExactJson } from '../base/exact-json.ts';
import { type FittedPrompt, fittedTemplate } from './fitted-template.ts';
import { BackgroundTemplate, openTemplateThread } from './template-thread.ts';

const time = new ManualTime();
const thread = openTemplateThread(time);
// The thread runs the build.
beforeAll(buildCommand, 60_000);
afterAll(() => thread.close());

const context = { bosToken: '<s>', eosToken: '</s>' };
const template = (source: string): BackgroundTemplate => new BackgroundTemplate(thread, { source, ...context });
const unchanged = (text: string): FittedPrompt => ({ text, changes: [] });
const endless = '{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}';
/** The longer the messages, the more work a template may do: seconds for these. */
const longMessages = [{ role: 'user', content: 'a'.repeat(8_000_000) }];

it('templates are rendered as on the calling thread, and their errors are reported', async () => {
  const messages = Array.from({ length: 200 }, (_, i) => ({
    role: i % 2 === 0 ? 'user' : 'assistant',
    content: 'a 🙂',
  }));
  const source = `{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}{{ add_generation_prompt }}`;
  await template(source).check();
  for (const addGenerationPrompt of [true, false]) {
    const options = { addGenerationPrompt };
    const text = await template(source).render(messages, options);
    expect(text).toEqual(fittedTemplate(source, context).render(messages, options));
  }
  await expect(template("{{ raise_exception('no ' + messages[0].role) }}").render(messages, {})).rejects.toMatchObject({
    code: 'KVASIR_CHAT_TEMPLATE_FAILED',
    message: expect.stringContaining('no user'),
  });
  await expect(template('{{ messages[0].name + 1 }}').render(messages, {})).rejects.toMatchObject({
    code: 'KVASIR_CHAT_TEMPLATE_BROKEN',
    message: expect.stringContaining("has no attribute 'name'"),
  });
  await expect(template('{% for %}').check()).rejects.toMatchObject({ code: 'KVASIR_CHAT_TEMPLATE_INVALID' });
});

it('all digits and the order of names reach the thread', async () => {
  const json = '{"10": 1234567890123456789, "2": [1.0, null, {"b": 1, "a": -0.0}]}';
  const variables = { given: readExactJson(json) };
  expect(await template('{{ given | tojson }}').render([], { variables })).toEqual(unchanged(json));
  const run = template('{{ f }}').render([], { variables: { f: () => 1 } });
  await expect(run).rejects.toMatchObject({
    code: 'KVASIR_CHAT_TEMPLATE_BROKEN',
    message: expect.stringContaining('not JSON'),
  });
});

it('conversations with tools have a template of their own if the model has one', async () => {
  const both = new BackgroundTemplate(thread, {
    source: 'plain',
    toolTemplate: '{{ tools | length }} tools',
    ...context,
  });
  expect(await both.render([], { variables: { tools: [{}, {}] } })).toEqual(unchanged('2 tools'));
  expect(await both.render([], { variables: { tools: [] } })).toEqual(unchanged('plain'));
  expect(await both.render([], {})).toEqual(unchanged('plain'));
  await expect(
    new BackgroundTemplate(thread, { source: 'ok', toolTemplate: '{% x %}', ...context }).check(),
  ).rejects.toThrow("unknown tag 'x'");
});

/** The job has begun: the time for it passes. */
const begun = (): Promise<void> => until(() => time.pending > 0);

it('a template that does not end in time is refused, and others are rendered', async () => {
  const rendering = template(endless).render(longMessages, {});
  const next = template('{{ bos_token }}').render([], {});
  await begun();
  time.advance(60_000);
  await expect(rendering).rejects.toMatchObject({
    code: 'KVASIR_CHAT_TEMPLATE_FAILED',
    httpStatus: 400,
    message: expect.stringContaining('rendering was stopped because it took longer than'),
  });
  expect(await next).toEqual(unchanged('<s>'));
});

it('a template with many loops is refused without a limit of time', async () => {
  const source = `${' '.repeat(900_000)}${endless}`;
  await template(source).check();
  await expect(template(source).render([], {})).rejects.toThrow('too much work');
});

it('an endless template ends with the request that renders it', async () => {
  const controller = new AbortController();
  const rendering = template(endless).render(longMessages, {}, controller.signal);
  const next = template('{{ eos_token }}').render([], {});
  await begun();
  controller.abort(new Error('gone'));
  await expect(rendering).rejects.toThrow('gone');
  time.advance(50);
  expect(await next).toEqual(unchanged('</s>'));
});
