import { describe, expect, it } from 'vitest';
import { readExactJson } from '../base/exact-json.ts';
import type { TemplateMessage } from '../tokenizer/chat-template.ts';
import { shortId } from './call-forms.ts';
import { fittedTemplate } from './fitted-template.ts';

const context = { bosToken: '<s>', eosToken: '</s>' };
const render = (source: string, messages: readonly TemplateMessage[], tools?: readonly unknown[]) =>
  fittedTemplate(source, context).render(messages, { variables: tools === undefined ? {} : { tools } });
const textOf = (...given: Parameters<typeof render>): string => render(...given).text;

const user = (content: string): TemplateMessage => ({ role: 'user', content });
const system = (content: string): TemplateMessage => ({ role: 'system', content });
const answer = (content: string): TemplateMessage => ({ role: 'assistant', content });
const call = (id: string, given = '{}') => ({
  id,
  type: 'function',
  function: { name: 'get_weather', arguments: readExactJson(given) },
});
const calling = (...calls: readonly object[]): TemplateMessage => ({ ...answer(''), tool_calls: calls });
const result = (id: string, content: string): TemplateMessage => ({ role: 'tool', tool_call_id: id, content });
const weather = { type: 'function', function: { name: 'get_weather', parameters: { type: 'object' } } };

const all = '{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}';
const checked = (checks: string): string => `{% for m in messages %}${checks}[{{ m.role }}]{{ m.content }}{% endfor %}`;
const refuse = (condition: string): string => `{% if ${condition} %}{{ raise_exception('no') }}{% endif %}`;
const oneSystem = checked(refuse("m.role == 'system' and not loop.first"));
const turns = checked(refuse("(m.role == 'user') != (loop.index0 % 2 == 0)"));
const calls =
  '{% for c in m.tool_calls or [] %}<{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}>{% endfor %}';
const withCalls = `{{ tools | tojson }}{% for m in messages %}[{{ m.role }}]{{ m.content }}${calls}{% endfor %}`;

describe('a fitted template', () => {
  it('renders what the template takes as it is', () => {
    const conversation = [system('A'), system('B'), user('C'), user('D'), system('E'), answer('F'), user('G')];
    const { text, changes } = render(all, conversation);
    expect(text).toBe('[system]A[system]B[user]C[user]D[system]E[assistant]F[user]G');
    expect(changes).toEqual([]);
  });

  it('joins the system messages of the beginning, and puts others into the turn beside them', () => {
    expect(render(oneSystem, [system('A'), system('B'), user('C')])).toEqual({
      text: '[system]A\n\nB[user]C',
      changes: [expect.stringContaining('the first ones are joined')],
    });
    expect(textOf(oneSystem, [user('A'), system('B')])).toBe('[user]A\n\nB');
    expect(textOf(oneSystem, [user('A'), answer('B'), system('C'), system('D'), user('E')])).toBe(
      '[user]A[assistant]B[user]C\n\nD\n\nE',
    );
    expect(textOf(oneSystem, [user('A'), answer('B'), system('C')])).toBe('[user]A[assistant]B[user]C');
  });

  it('finds texts that a template loses or moves without a word', () => {
    const first =
      "{% for m in messages %}{% if m.role != 'system' or loop.first %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}";
    expect(textOf(first, [system('A'), system('B'), user('C'), system('D')])).toBe('[system]A\n\nB[user]C\n\nD');
    const front =
      "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}" +
      "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    expect(textOf(front, [system('A'), user('B'), answer('C'), system('D'), user('E')])).toBe(
      'A[user]B[assistant]C[user]D\n\nE',
    );
  });

  it("joins system messages of which a template shows the second one as the user's", () => {
    const second = "{% for m in messages %}[{{ 'user' if loop.index == 2 else m.role }}]{{ m.content }}{% endfor %}";
    expect(textOf(second, [system('A'), system('B'), user('C')])).toBe('[system]A\n\nB[user]C');
  });

  it('puts the text of parts into the turn, too', () => {
    const parts = ['B', 'C'].map((text) => ({ type: 'text', text }));
    expect(textOf(oneSystem, [user('A'), { role: 'system', content: parts }])).toBe('[user]A\n\nB\nC');
  });

  it('lets roles take turns where the template requires it', () => {
    expect(textOf(turns, [system('A'), user('B'), user('C'), answer('D'), answer('E'), user('F')])).toBe(
      '[user]A\n\nB\n\nC[assistant]D\n\nE[user]F',
    );
    expect(textOf(turns, [answer('A'), user('B')])).toBe('[user][assistant]A[user]B');
    expect(textOf(turns, [system('A')])).toBe('[user]A');
  });

  it('calls developers system if the template does not know them', () => {
    const developer = { role: 'developer', content: 'A' };
    expect(textOf(checked(refuse("m.role == 'developer'")), [developer, user('B')])).toBe('[system]A[user]B');
  });

  it('leaves a template alone that shows no texts of users', () => {
    expect(render('{{ messages | length }}', [system('A'), system('B')])).toEqual({ text: '2', changes: [] });
    expect(() => textOf("{{ raise_exception('never') }}", [user('A')])).toThrow('never');
  });
});

describe('calls in a fitted template', () => {
  const two = [user('A'), calling(call('c1'), call('c2'))];
  const sorted = '[tool]1[tool]2';

  it('have their results in the order of the calls, also results without ids', () => {
    for (const results of [
      [result('c2', '2'), result('c1', '1')],
      [result('c2', '2'), { role: 'tool', content: '1' }],
      [
        { role: 'tool', content: '1' },
        { role: 'tool', content: '2' },
      ],
    ]) {
      const { text, changes } = render(withCalls, [...two, ...results], [weather]);
      expect([text.slice(text.indexOf('[tool]')), changes]).toEqual([sorted, []]);
    }
  });

  it('are messages of their own, followed by their results, if the template takes one in a message', () => {
    const one = withCalls.replace('{% for m in messages %}', `$&${refuse('(m.tool_calls or []) | length > 1')}`);
    const { text, changes } = render(one, [...two, result('c2', '2'), result('c1', '1'), answer('B')], [weather]);
    expect(text).toContain(
      '[user]A[assistant]<c1 get_weather {}>[tool]1[assistant]<c2 get_weather {}>[tool]2[assistant]B',
    );
    expect(changes).toEqual([expect.stringContaining('one call in each message')]);
  });

  it('have ids of nine letters and digits if the template takes no others', () => {
    const strict = withCalls.replace(
      '{% for m in messages %}',
      `$&{% for c in m.tool_calls or [] %}${refuse('c.id | length != 9')}{% endfor %}`,
    );
    const ids = ['call_abc', 'abcdef123'];
    const conversation = [user('A'), calling(...ids.map((id) => call(id))), ...ids.map((id) => result(id, id))];
    const text = textOf(strict.replace('{{ m.content }}', '{{ m.content }}{{ m.tool_call_id }}'), conversation, [
      weather,
    ]);
    const short = shortId('call_abc');
    expect(short).toMatch(/^[0-9A-Za-z]{9}$/);
    expect(text).toContain(`<${short} get_weather {}><abcdef123 get_weather {}>`);
    expect(text).toContain(`[tool]call_abc${short}[tool]abcdef123abcdef123`);
  });

  it('have arguments as text if the template reads text', () => {
    const concatenated = withCalls.replace('{{ c.function.arguments | tojson }}', "{{ '' + c.function.arguments }}");
    const exact = '{"b":12345678901234567890,"10":1.0}';
    expect(textOf(concatenated, [user('A'), calling(call('c', exact)), result('c', 'B')], [weather])).toContain(exact);
  });

  it('have the text beside them in a message of its own if the template loses it', () => {
    const lost = withCalls.replace('{{ m.content }}', '{% if not m.tool_calls %}{{ m.content }}{% endif %}');
    const beside = { ...calling(call('c')), content: 'I look.' };
    expect(textOf(lost, [user('A'), beside, result('c', 'B')], [weather])).toContain(
      '[user]A[assistant]I look.[assistant]<c get_weather {}>[tool]B',
    );
  });

  it('keep the thoughts beside them if the template shows them there only', () => {
    const lost = withCalls.replace('{{ m.content }}', '{{ m.thinking if m.tool_calls else m.content }}');
    const beside = { ...calling(call('c')), content: 'I look.', reasoning_content: 'Hm.' };
    expect(textOf(lost, [user('A'), beside, result('c', 'B')], [weather])).toContain(
      '[user]A[assistant]I look.[assistant]Hm.<c get_weather {}>[tool]B',
    );
  });

  it('are texts for a template without calls, and tools are described in the system message', () => {
    const beside = { ...calling(call('c')), content: 'I look.' };
    const conversation = [system('Be brief.'), user('A'), beside, result('c', 'sun'), result('c', 'rain')];
    const { text, changes } = render(checked(refuse("m.role == 'tool'")), conversation, [weather]);
    expect(text).toMatch(/^\[system\]Be brief\.\n\nYou may call functions[\s\S]*"name":"get_weather"[\s\S]*\[user\]A/);
    expect(text).toContain(
      '[assistant]I look.\n<tool_call>\n{"name":"get_weather","arguments":{}}\n</tool_call>' +
        '[user]<tool_response>\nsun\n</tool_response>\n<tool_response>\nrain\n</tool_response>',
    );
    expect(changes).toHaveLength(2);
  });

  it("are written as the model writes them for LFM2's template, which shows none", () => {
    const source = `List of tools: <|tool_list_start|>[{{ tools | tojson }}${all}`;
    const given = '{"city":"Rome","id":12345678901234567890,"10":[true,null],"a":{"b":1.50}}';
    const written = 'get_weather(city="Rome", id=12345678901234567890, 10=[True, None], a={"b": 1.50})';
    expect(textOf(source, [user('A'), calling(call('c', given))], [weather])).toContain(
      `[assistant]<|tool_call_start|>[${written}]<|tool_call_end|>`,
    );
  });
});

it('many messages are fitted in time in proportion to their number', () => {
  const many = Array.from({ length: 100_000 }, (_, i) => (i % 2 === 0 ? user('a') : system('b')));
  expect(textOf(turns, many)).toHaveLength('[user]'.length + 100_000 + 2 * 99_999);
  expect(
    textOf(
      turns,
      [...many].sort((a, b) => b.role.localeCompare(a.role)),
    ),
  ).toMatch(/^\[user\]a\n\na/);
});

describe('a template that misses parts of its input', () => {
  it('shows all parts of a content to a template that shows the first', () => {
    const first =
      '{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}{% endif %}{% endfor %}';
    const parts = (role: string, ...texts: string[]): TemplateMessage => ({
      role,
      content: texts.map((text) => ({ type: 'text', text })),
    });
    expect(
      render(first, [parts('system', 'A', 'B'), parts('user', 'C', 'D'), parts('assistant', 'E', 'F'), user('G')]),
    ).toEqual({
      text: '[system]A\nB[user]C\nD[assistant]E\nF[user]G',
      changes: [expect.stringContaining('the parts are joined')],
    });
    expect(render(first, [parts('user', 'A')]).changes).toEqual([]);
  });

  it.each([
    [{}, '{}'],
    [{ parameters: {} }, '{}'],
    [{ description: null, parameters: { type: 'object' } }, '{}'],
    [{ parameters: { properties: { a: true } } }, '{"a": {"description": ""}}'],
    [
      { parameters: { properties: { a: { type: ['string', 'null'] }, b: { type: ['string', 'integer'] } } } },
      '{"a": {"description": "", "type": "string"}, "b": {"description": "", "anyOf": [{"type": "string"}, {"type": "integer"}]}}',
    ],
  ])('shows a tool of which the template misses fields: %j', (fields, properties) => {
    const strict =
      '{{ messages[-1].content }}{% for t in tools %} {{ t.function.name + t.function.description }}' +
      '{% for n, p in t.function.parameters.properties.items() %}{{ p.type + "" if "type" in p else "" }}{% endfor %}' +
      ' {{ t.function.parameters.properties | tojson }}{% endfor %}';
    const { text, changes } = render(
      strict,
      [user('A')],
      [{ type: 'function', function: { name: 'list', ...fields } }],
    );
    expect([text.split(' ', 2).join(' '), text.slice(text.indexOf('{'))]).toEqual([
      expect.stringMatching(/^A list/),
      properties,
    ]);
    expect(changes).toEqual([expect.stringContaining('they are added')]);
  });
});
