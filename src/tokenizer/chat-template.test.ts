import { describe, expect, it } from 'vitest';
import { KvasirError } from '../base/errors.ts';
import { compileChatTemplate } from './chat-template.ts';
import { formatDate } from './format-date.ts';

const context = { bosToken: '<s>', eosToken: '</s>', now: () => new Date(2026, 0, 5, 9, 7, 3) };
/** ChatML, which many models use. */
const chatMl =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}" +
  "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
const user = { role: 'user', content: 'Hello' };
const render = (source: string, messages: Parameters<ReturnType<typeof compileChatTemplate>['render']>[0] = [user]) =>
  compileChatTemplate(source, context).render(messages);

describe('a chat template', () => {
  it('renders the turns, and by default the start of the assistant turn', () => {
    const template = compileChatTemplate(chatMl, context);
    expect(template.render([{ role: 'system', content: 'Be kind.' }, user])).toBe(
      '<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n',
    );
    expect(template.render([user], { addGenerationPrompt: false })).toBe('<|im_start|>user\nHello<|im_end|>\n');
  });

  it('can use the names that templates expect', () => {
    expect(render("{{ bos_token }}{% for i in range(2) %}{{ i }}{% endfor %}{{ strftime_now('%d %b %Y') }}")).toBe(
      '<s>0105 Jan 2026',
    );
    expect(render('{{ messages[0] | tojson }}')).toBe('{"role": "user", "content": "Hello"}');
    expect(
      render('{% if tools %}tools{% elif tools is none and documents is none and not False %}plain{% endif %}'),
    ).toBe('plain');
  });

  it('reads variables, which do not replace predefined names', () => {
    const template = compileChatTemplate('{{ enable_thinking }} {{ bos_token }}', context);
    expect(template.render([user], { variables: { enable_thinking: true, bos_token: 'X' } })).toBe('True <s>');
  });

  const parts = (...texts: readonly string[]) => texts.map((text) => ({ type: 'text', text }));
  const asked = { role: 'user', content: parts('a', 'b') };

  it('gets joined text if it reads only text', () => {
    expect(render('{{ messages[0].content }}', [asked])).toBe('a\nb');
    expect(render('{% set c = messages[0]["content"] %}{{ "Q: " + c.strip() }}', [asked])).toBe('Q: a\nb');
    expect(
      render('{% for m in messages %}{% for w in m.content.split("\n") %}{{ w }};{% endfor %}{% endfor %}', [asked]),
    ).toBe('a;b;');
  });

  it.each([
    '{% for part in messages[0].content %}{{ part.text }};{% endfor %}',
    '{% for m in messages %}{% for x in m["content"] %}{{ x["text"] }};{% endfor %}{% endfor %}',
    '{% for m in messages %}{% set c = m.content %}{% for x in c %}{{ x.get("text") }};{% endfor %}{% endfor %}',
    '{% macro show(c) %}{% for item in c %}{% if item.type == "text" %}{{ item.text }};{% endif %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(m.content) }}{% endfor %}',
    '{% for m in messages %}{% for x in m.content | selectattr("type", "equalto", "text") %}{{ x.text }};{% endfor %}{% endfor %}',
    '{{ messages[-1].content | map(attribute="text") | join(";") }};',
    '{{ messages[0]["content"][0]["text"] }};{{ messages[0].content[1].text }};',
    '{% set ns = namespace(c="") %}{% for m in messages %}{% for x in m.content %}{% set ns.c = ns.c ~ x.text ~ ";" %}{% endfor %}{% endfor %}{{ ns.c }}',
    '{% for role, content in messages | map("dictsort") | map("map", "last") %}{% for x in role %}{{ x.text }};{% endfor %}{% endfor %}',
  ])('gets parts, also of a text, if it reads parts in any way: %s', (source) => {
    expect(render(source, [asked])).toBe('a;b;');
    expect(render(source, [{ role: 'user', content: parts('Hello', '') }])).toBe('Hello;;');
  });

  it('gets what was sent if it reads both', () => {
    const loop = '{% for part in messages[0].content %}{{ part.text }};{% endfor %}';
    expect(render(loop)).toBe('Hello;');
    const either = `{% if messages[0]['content'] is string %}text{{ messages[0].content }}{% else %}${loop}{% endif %}`;
    expect([render(either), render(either, [asked])]).toEqual(['textHello', 'a;b;']);
  });

  it('gets parts only for the roles whose parts it reads', () => {
    const source =
      '{% for m in messages %}{% if m.role == "user" and m.content is not string %}{% for x in m.content %}{{ x.text }}{% endfor %}' +
      '{% else %}{{ m.content }}{% endif %};{% endfor %}';
    const system = { role: 'system', content: parts('x', 'y') };
    const answer = { role: 'assistant', content: parts('c', 'd') };
    expect(render(source, [system, asked, answer, user])).toBe('x\ny;ab;c\nd;Hello;');
  });

  it('does not see fields that are null, and thoughts have the names that templates read', () => {
    const source = "{% for m in messages %}{{ m | tojson }}{{ 'name' in m }};{% endfor %}";
    const named = { role: 'user', content: 'Hi', name: null };
    expect(render(source, [named])).toBe('{"role": "user", "content": "Hi"}False;');
    expect(
      render('{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}', [{ ...user, reasoning: 'Hm' }]),
    ).toBe('Hm|Hm');
  });

  it('renders the constructs of the harmony format of gpt-oss', () => {
    const harmony = [
      '{%- macro system_message() -%}',
      '{{- "Current date: " + strftime_now("%Y-%m-%d") + "\\n" }}',
      '{%- if reasoning_effort is not defined %}{%- set reasoning_effort = "medium" %}{%- endif %}',
      '{{- "Reasoning: " + reasoning_effort }}',
      '{%- endmacro -%}',
      '{{- "<|start|>system<|message|>" }}{{- system_message() }}{{- "<|end|>" }}',
      '{%- if messages[0].role == "developer" or messages[0].role == "system" %}',
      '  {{- "<|start|>developer<|message|># Instructions\\n\\n" + messages[0].content + "<|end|>" }}',
      '  {%- set loop_messages = messages[1:] %}',
      '{%- else %}{%- set loop_messages = messages %}{%- endif %}',
      '{%- set last = namespace(name=none) %}',
      '{%- for message in loop_messages -%}',
      '  {%- if message.role == "assistant" -%}',
      // A test of a part of the text is not a loop over parts.
      '    {%- if "content" in message %}{%- if "<|channel|>analysis<|message|>" in message.content %}',
      '      {{- raise_exception("channel tags") }}',
      '    {%- endif %}{%- endif %}',
      '    {%- set last.name = "final" %}',
      '    {{- "<|start|>assistant<|channel|>" + last.name + "<|message|>" + message.content + "<|end|>" }}',
      '  {%- else -%}',
      '    {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}',
      '  {%- endif -%}',
      '{%- endfor -%}',
      '{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}',
    ].join('\n');
    const conversation = [
      { role: 'system', content: 'Be kind.' },
      user,
      { role: 'assistant', content: 'Hi' },
      { role: 'user', content: [{ type: 'text', text: 'More' }] },
    ];
    expect(render(harmony, conversation)).toBe(
      '<|start|>system<|message|>Current date: 2026-01-05\nReasoning: medium<|end|>' +
        '<|start|>developer<|message|># Instructions\n\nBe kind.<|end|>' +
        '<|start|>user<|message|>Hello<|end|>' +
        '<|start|>assistant<|channel|>final<|message|>Hi<|end|>' +
        '<|start|>user<|message|>More<|end|><|start|>assistant',
    );
    const tagged = { role: 'assistant', content: '<|channel|>analysis<|message|>no' };
    expect(() => render(harmony, [user, tagged])).toThrow(/channel tags/);
  });

  it('refuses messages with the message of `raise_exception` and HTTP status 400', () => {
    const source = "{% if messages[0].role != 'user' %}{{ raise_exception('The user speaks first.') }}{% endif %}ok";
    const error = catchError(() => render(source, [{ role: 'assistant', content: '' }]));
    expect(error).toMatchObject({ code: 'KVASIR_CHAT_TEMPLATE_FAILED', httpStatus: 400 });
    expect(error.message).toContain('The user speaks first.');
  });

  it.each([
    ["{{ messages[0].name + 'x' }}", "'dict object' has no attribute 'name'"],
    ['{% for i in range(1000000000) %}x{% endfor %}', 'Range too big'],
    ['{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}', 'too much work'],
    ['{{ messages.pop() }}', 'unsafe'],
  ])('says that the template fails, with HTTP status 400: %s', (source, reason) => {
    const error = catchError(() => render(source));
    expect(error).toMatchObject({ code: 'KVASIR_CHAT_TEMPLATE_BROKEN', httpStatus: 400 });
    expect(error.message).toContain(reason);
    expect(error.message).not.toContain('Change the messages');
  });

  it('is refused when it is compiled if it is not Jinja', () => {
    const error = catchError(() => render('{% for message in messages %}'));
    expect(error.code).toBe('KVASIR_CHAT_TEMPLATE_INVALID');
  });
});

describe('strftime', () => {
  it('formats Python directives in English on every machine', () => {
    const date = new Date(2026, 10, 3, 15, 4, 5);
    expect(formatDate(date, '%A %a %d %-d %e %B %b %m %Y %y %H %I %p %M %S %% %Q')).toBe(
      'Tuesday Tue 03 3  3 November Nov 11 2026 26 15 03 PM 04 05 % %Q',
    );
  });
});

function catchError(run: () => unknown): KvasirError {
  try {
    run();
  } catch (error) {
    if (error instanceof KvasirError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}
