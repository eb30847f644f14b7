import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { readExactJson } from '../base/exact-json.ts';
import { RaisedError, TemplateError, TemplateSyntaxError } from './errors.ts';
import { compileTemplate } from './template.ts';

/** Made by transformers: `tools/chat-templates/make_expected.py`. Null: transformers refuses the template. */
interface Snippets {
  readonly variables: string;
  readonly cases: readonly (readonly [group: string, template: string, expected: string | null])[];
}

const snippets = JSON.parse(readFileSync('tools/chat-templates/snippets.json', 'utf8')) as Snippets;
const variables = readExactJson(snippets.variables) as Readonly<Record<string, unknown>>;
const dates: Readonly<Record<string, string>> = { '%Y': '2026', '%d %b %Y': '05 Jan 2026' };
const functions = { strftime_now: (format: string) => dates[format] ?? format };

const render = (source: string, values: Readonly<Record<string, unknown>> = {}): string =>
  compileTemplate(source).render(values, { functions });

function textOrNull(source: string): string | null {
  try {
    return render(source, variables);
  } catch (error) {
    if (error instanceof TemplateError || error instanceof TemplateSyntaxError) return null;
    throw error;
  }
}

describe('a template', () => {
  const groups = [...new Set(snippets.cases.map(([group]) => group))];
  it.each(groups)('renders as transformers renders: %s', (group) => {
    const cases = snippets.cases.filter(([name]) => name === group);
    expect(cases.length).toBeGreaterThan(15);
    for (const [, source, expected] of cases) expect([source, textOrNull(source)]).toEqual([source, expected]);
  });

  it('keeps all digits and the order of names of JSON values, and knows floats by their point', () => {
    const values = { v: readExactJson('{"10": 1234567890123456789, "2": 1.0, "b": 1e2, "1": -0}') };
    expect(render('{{ v }}|{{ v | tojson }}', values)).toBe(
      "{'10': 1234567890123456789, '2': 1.0, 'b': 100.0, '1': 0}|" +
        '{"10": 1234567890123456789, "2": 1.0, "b": 100.0, "1": 0}',
    );
    expect(render('{{ v }}', { v: [1, 1.5, null, true, { a: undefined, b: 2 }] })).toBe(
      "[1, 1.5, None, True, {'b': 2}]",
    );
  });

  it('writes numbers as Python does after reading them from JSON', () => {
    // Made with Python 3.11: json.loads of each, printed.
    for (const [json, printed] of [
      ['3.4028234663852886e+38', '3.4028234663852886e+38'],
      ['1e+22', '1e+22'],
      ['1152921504606847000', '1152921504606847000'],
      ['100000000000000000000', '100000000000000000000'],
      ['1.7976931348623157e+308', '1.7976931348623157e+308'],
      ['9007199254740993', '9007199254740993'],
    ] as const) {
      expect(render('{{ v }} {{ v | tojson }}', { v: readExactJson(json) })).toBe(`${printed} ${printed}`);
    }
    expect(render('{{ v }}', { v: [1e22, 1152921504606847000, 2 ** 53] })).toBe(
      '[1e+22, 1152921504606847000, 9007199254740992]',
    );
  });

  it('throws an error of its own for `raise_exception`, and names what is missing', () => {
    expect(() => render("{{ raise_exception('No ' ~ 1) }}")).toThrow(RaisedError);
    expect(() => render('{{ message.content }}')).toThrow("'message' is undefined");
    expect(() => render('{{ m.a.b }}', { m: {} })).toThrow("'dict object' has no attribute 'a'");
    expect(() => render('a\n{% if %}')).toThrow('(line 2)');
    expect(() => render('{{ x | upper | nope }}')).toThrow("No filter named 'nope'.");
    expect(() => render('{{ f }}', { f: () => 1 })).toThrow('templates cannot use a function');
  });

  it('refuses an unknown filter when it is compiled, inside of a condition only if it is used', () => {
    expect(() => compileTemplate('{{ x | nope }}')).toThrow(TemplateSyntaxError);
    expect(render('{% if false %}{{ x | nope }}{% endif %}ok')).toBe('ok');
    expect(() => render('{% if true %}{{ x | nope }}{% endif %}')).toThrow(TemplateError);
  });
});

const manyLoops = (inner: string, before = ''): string =>
  `${before}${'{% for x in range(100000) %}'.repeat(3)}${inner}${'{% endfor %}'.repeat(3)}`;
const repeated = (start: string, step: string, end: string, times = 60): string =>
  `{% set ns = namespace(v=${start}) %}{% for i in range(${times}) %}{% set ns.v = ${step} %}{% endfor %}${end}`;
const longText = "{% set s = 'x' * 1000000 %}{% set t = s ~ '' %}";

describe('a hostile template', () => {
  /** Much less than a real template may do, so that this test is quick. */
  const work = 100_000;

  const sources = [
    ...[
      '',
      'x',
      "{{ 'a' in 'bcd' }}",
      '{{ [3, 1] | sort | join }}',
      "{{ 'abc'.upper() }}",
      '{{ {1: 2} | tojson }}',
    ].map((s) => manyLoops(s)),
    ...["{{ '%s' % 1 }}", '{% set a = 1 %}', '{{ 9 ** 4000 }}', '{{ loop.previtem }}', "{{ 'a' ~ x }}"].map((s) =>
      manyLoops(s),
    ),
    ...['split("y")', 'startswith("y")', 'strip()', 'find("y")', 'count("y")', 'isalpha()'].map((s) =>
      manyLoops(`{% set z = s.${s} %}`, longText),
    ),
    ...[
      's[1:]',
      's[::-1]',
      's | length',
      's | trim("x")',
      's is lower',
      's == t',
      's < t ~ "a"',
      '{s: 1}[t]',
      '"yx" in s',
      's | title',
    ].map((s) => manyLoops(`{% set z = ${s} %}`, longText)),
    manyLoops('{{ m(1) }}', '{% macro m(a) %}{{ a }}{% endmacro %}'),
    repeated("'ab'", 'ns.v ~ ns.v', '{{ ns.v }}'),
    repeated("'ab'", 'ns.v ~ ns.v', '{{ ns.v | upper | length }}', 24),
    repeated('[1]', '[ns.v, ns.v]', '{{ ns.v }}'),
    repeated('[1]', '[ns.v, ns.v]', '{{ ns.v | tojson }}'),
    repeated(
      '[1]',
      '[ns.v, ns.v]',
      '{{ ns.v == [ns.v[0], ns.v[1]] }}{{ [ns.v] | sort }}{{ [ns.v, [[ns.v[0][0], 2], 1]] | sort }}{{ ns.v }}',
    ),
    repeated('(1,)', '(ns.v, ns.v)', '{{ {ns.v: 1} }}'),
    repeated('[1]', '[ns.v]', '{{ ns.v }}', 20_000),
    ...[
      "'x' * 10 ** 10",
      '([1] * 1000) * 10 ** 10',
      'range(10 ** 12)',
      '10 ** (10 ** 9)',
      "'%1000000000d' % 1",
      "'%*d' % (10 ** 9, 1)",
    ].map((s) => `{{ ${s} }}`),
    ...[
      "'{:>1000000000}'.format(1)",
      "'a' | center(10 ** 9)",
      "'a\\nb' | indent(10 ** 9)",
      "'a'.zfill(10 ** 9)",
      "'\\t'.expandtabs(10 ** 9)",
    ].map((s) => `{{ ${s} }}`),
    ...[
      "('a' * 100000) | replace('a', 'b' * 100000)",
      "range(100000) | join('x' * 100000)",
      '[1] | batch(10 ** 9, 1) | list',
      '[1] | slice(10 ** 9) | list',
    ].map((s) => `{{ ${s} }}`),
    ...[
      "('%(' * 1000000) % {}",
      "('{0[' * 100000).format(1)",
      "('ab' * 1000000).translate({97: 'x' * 10000})",
      '[1] | tojson(indent=10 ** 9)',
    ].map((s) => `{{ ${s} }}`),
    '{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}',
    '{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}',
  ];
  it.each(sources.map((source) => [source.slice(0, 120), source] as const))('ends with an error: %s', (_, source) => {
    expect(() => compileTemplate(source).render({}, { work })).toThrow(TemplateError);
  });

  const length = 120_000;
  it.each([
    ...[
      '{{',
      '{%',
      '{#',
      '{% raw %}',
      '{',
      "{{ '",
      '{{ (',
      '{{ [',
      '{{ not ',
      '{{ -',
      '{% if 1 %}',
      '{{ 1 -',
      '{%      ',
    ],
    ...['{{ 1 if 1 else ', "{{ '\\x", '{% raw %}{%   ', '{{ a.b', '{{ 1_'],
  ])('is refused if it repeats %j', (part) => {
    expect(() => compileTemplate(part.repeat(length / part.length))).toThrow(TemplateSyntaxError);
  });

  it.each([
    ['spaces', ' '.repeat(900_000), 900_000],
    [
      'spaces before tags',
      `${' '.repeat(900_000)}{% if true %}\n${' '.repeat(900_000)}{% endif %}${' '.repeat(10)}`,
      10,
    ],
    ['spaces in a tag', `{{${' '.repeat(900_000)}1 }}`, 1],
    ['newlines', '\r'.repeat(length), length - 1],
    ['a comment', `{#${'-'.repeat(length)}#}`, 0],
    ['many tags', '{{ 1 }} '.repeat(20_000), 40_000],
    ['many branches', `{% if 0 %}${'{% elif 0 %}'.repeat(20_000)}{% endif %}`, 0],
    ['a long list', `{{ [${'1,'.repeat(length / 10)}] | length }}`, 5],
    ['tags of HTML', "{{ ('<' * 100000 ~ '<!--' * 10000) | striptags }}", 140_000],
  ])('may be long: %s', (_, source, expected) => {
    expect(render(source)).toHaveLength(expected);
  });

  it('fails at the same place each time, and has more work for more messages', () => {
    const source =
      '{% for m in messages %}{% for c in m %}{% for i in range(30) %}{{ i }}{% endfor %}{% endfor %}{% endfor %}';
    const few = { messages: ['a'.repeat(100)] };
    const rendered = (values: typeof few): number => compileTemplate(source).render(values, { work: 10_000 }).length;
    expect(() => rendered(few)).toThrow('too much work');
    expect(compileTemplate(source).render(few)).toHaveLength(5000);
    const many = { messages: Array.from({ length: 3000 }, () => 'abcdefgh') };
    expect(compileTemplate(source).render(many)).toHaveLength(3000 * 8 * 50);
  });
});
