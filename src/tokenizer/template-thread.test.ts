import { afterAll, beforeAll, expect, it } from 'vitest';
import { buildCommand } from '../../test/support/cli-process.ts';
import { ManualTime } from '../../test/support/manual-time.ts';
import { until } from '../../test/support/until.ts';
import { compileChatTemplate } from './chat-template.ts';
import { BackgroundTemplate, openTemplateThread } from './template-thread.ts';

const time = new ManualTime();
const thread = openTemplateThread(time);
// The thread runs the build.
beforeAll(buildCommand, 60_000);
afterAll(() => thread.close());

const context = { bosToken: '<s>', eosToken: '</s>' };
const template = (source: string): BackgroundTemplate => new BackgroundTemplate(thread, { source, ...context });
const endless = '{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}';

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
    expect(text).toBe(compileChatTemplate(source, context).render(messages, options));
  }
  await expect(template("{{ raise_exception('no ' + messages[0].role) }}").render(messages, {})).rejects.toMatchObject({
    code: 'KVASIR_CHAT_TEMPLATE_FAILED',
    message: expect.stringContaining('no user'),
  });
  await expect(template('{% for %}').check()).rejects.toMatchObject({ code: 'KVASIR_CHAT_TEMPLATE_INVALID' });
  const variables = { double: (value: number) => value * 2 };
  expect(await template('{{ double(2) }}').render(messages, { variables })).toBe('4');
});

/** The job has begun: the time for it passes. */
const begun = (): Promise<void> => until(() => time.pending > 0);

it('a template that does not end is refused, and others are rendered', async () => {
  const rendering = template(`${endless}{{ messages }}`).render([], {});
  const next = template('{{ bos_token }}').render([], {});
  await begun();
  time.advance(10_000);
  await expect(rendering).rejects.toMatchObject({
    code: 'KVASIR_CHAT_TEMPLATE_FAILED',
    httpStatus: 400,
    message: expect.stringContaining('rendering was stopped because it took longer than 10 s'),
  });
  expect(await next).toBe('<s>');
});

it('a template that is not parsed in time is refused', async () => {
  const checking = template(`${' '.repeat(900_000)}{{ messages }}`).check();
  await begun();
  time.advance(10_000);
  const { message } = await checking.then(
    () => expect.fail('the template was parsed'),
    (error: Error) => error,
  );
  expect(message).toContain('cannot be parsed: parsing was stopped because it took longer than 10 s');
  await template('{{ bos_token }}').check();
});

it('an endless template ends with the request that renders it', async () => {
  const controller = new AbortController();
  const rendering = template(endless).render([], {}, controller.signal);
  const next = template('{{ eos_token }}').render([], {});
  await begun();
  controller.abort(new Error('gone'));
  await expect(rendering).rejects.toThrow('gone');
  time.advance(50);
  expect(await next).toBe('</s>');
});
