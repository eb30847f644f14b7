import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { describe, expect, it } from 'vitest';
import { smallVocabulary } from '../../test/support/grammar-vocabulary.ts';
import { callsIn, matcherOfCalls, toolOf } from '../../test/support/judged-calls.ts';
import { allowsText, randomOutput } from '../../test/support/judged-grammar.ts';
import { inLongForm } from '../../test/support/long-form.ts';
import type { JsonObject } from '../base/json.ts';
import { Prng } from '../base/prng.ts';
import type { ToolFormat } from './formats.ts';

/** Parameters of strict tools in formats that write texts without quotes: what the reader makes of each output matches the schema. */
const vocabulary = await smallVocabulary();
const ajv = new Ajv2020({ strict: false, logger: false });
addFormats.default(ajv);

const nullable = (schema: JsonObject): JsonObject => ({ anyOf: [schema, { type: 'null' }] });

/** A schema, texts that must be allowed, and texts that must not. */
const values: readonly (readonly [string, JsonObject | boolean, readonly string[], readonly string[]])[] = [
  ['an optional enum', nullable({ enum: ['asc', 'desc'] }), ['asc', 'null'], ['up', '', 'None ']],
  ['an optional text of an enum', nullable({ enum: ['asc', '5'], type: 'string' }), ['asc', '5', 'null'], ['6']],
  ['an optional date', nullable({ type: 'string', format: 'date' }), ['2024-02-29', 'null'], ['tomorrow']],
  ['an optional pattern', nullable({ type: 'string', pattern: '^[A-Z]{2}$' }), ['DE', 'null'], ['de', 'nul']],
  ['an optional length', nullable({ type: 'string', maxLength: 3 }), ['abc', '', 'null'], ['abcd']],
  ['two types with a length', { type: ['string', 'null'], maxLength: 3 }, ['abc', 'null'], ['abcd']],
  [
    'a length of texts and numbers',
    { type: ['string', 'integer'], minLength: 3, minimum: 5 },
    ['abc', '12'],
    ['4', 'ab'],
  ],
  [
    'oneOf of a pattern and a number',
    {
      oneOf: [
        { type: 'string', pattern: '^[0-9a]+$' },
        { type: 'integer', minimum: 50 },
      ],
    },
    ['a1', '77'],
    ['7', '49', 'b', '+7', '0x1'],
  ],
  ['a reference in a union', nullable({ $ref: '#/$defs/zip' }), ['61133', 'null'], ['6113', 'none']],
  [
    'references in references',
    { anyOf: [{ $ref: '#/$defs/maybe' }, { const: 'all' }] },
    ['61133', 'null', 'all'],
    ['some'],
  ],
  ['allOf', { allOf: [{ type: 'string', minLength: 2 }, { pattern: '^[a-z]*$' }] }, ['ab'], ['a', 'aB']],
  ['allOf of a reference', { allOf: [{ $ref: '#/$defs/zip' }], description: 'x' }, ['61133'], ['abc']],
  [
    'a text or a limited boolean',
    { anyOf: [{ type: 'string' }, { const: true }] },
    ['true', 'abc'],
    ['false', 'False', ' false'],
  ],
  [
    'a text or a limited list',
    { anyOf: [{ type: 'string' }, { type: 'array', items: { const: 1 } }] },
    ['a', '[1]'],
    ['[2]'],
  ],
  ['a text or any list', { anyOf: [{ type: 'string' }, { type: 'array' }] }, ['[note] a', '[2]', '<b>a</b>'], []],
  ['a text or null', { type: ['string', 'null'] }, ['null', 'a < b', 'line\nline'], []],
  [
    'two lengths',
    {
      anyOf: [
        { type: 'string', maxLength: 1 },
        { type: 'string', minLength: 4 },
      ],
    },
    ['a', 'abcd'],
    ['ab'],
  ],
  [
    'constants of several types',
    { enum: ['x', 7, null, { a: [1] }] },
    ['x', '7', 'null', '{"a": [1]}', '{"a":[1]}'],
    ['8'],
  ],
  ['a nullable text of OpenAPI', { type: 'string', maxLength: 2, nullable: true }, ['a', 'null'], ['abc']],
  [
    'a pattern and a format',
    { type: 'string', format: 'date', pattern: '^2024' },
    ['2024-01-31'],
    ['2023-01-31', '2024'],
  ],
  ['not', { type: 'string', not: { const: 'root' } }, ['user'], ['root']],
  [
    'a condition',
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
    { type: 'string', if: { pattern: '^a' }, then: { maxLength: 2 }, else: { enum: ['b'] } },
    ['ab', 'b'],
    ['abc', 'c'],
  ],
  ['any value', true, ['a', '1', '{"a":1}'], []],
  ['a long text', { type: 'string', pattern: '^[a-z]{1,5000}$' }, ['abc'], ['A']],
];
const $defs = { zip: { type: 'string', pattern: '^[0-9]{5}$' }, maybe: nullable({ $ref: '#/$defs/zip' }) };

const written = {
  qwen3_coder: (parameters: Record<string, string>) =>
    `<tool_call>\n<function=f>\n${Object.entries(parameters)
      .map(([name, text]) => `<parameter=${name}>\n${text}\n</parameter>\n`)
      .join('')}</function>\n</tool_call>`,
  glm47: (parameters: Record<string, string>) =>
    `<tool_call>f${Object.entries(parameters)
      .map(([name, text]) => `<arg_key>${name}</arg_key><arg_value>${text}</arg_value>`)
      .join('')}</tool_call>`,
} satisfies Partial<Record<ToolFormat, unknown>>;
const formats = ['qwen3_coder', 'glm47'] as const;

function judge(format: ToolFormat, parameters: JsonObject, runs = inLongForm(200, 6)): void {
  const tools = [toolOf(parameters, true)];
  const { matcher } = matcherOfCalls({ format, tools }, vocabulary);
  const validate = ajv.compile(parameters);
  for (let seed = 0; seed < runs; seed++) {
    const output = randomOutput(matcher, new Prng(seed));
    if (output === undefined) continue;
    const [call] = callsIn(format, tools, output);
    expect([validate(JSON.parse(call!.text)), output, call!.text]).toEqual([true, output, call!.text]);
  }
}

describe.each(formats)('values of strict parameters in %s', (format) => {
  it.each(values)('%s', (_, schema, allowed, refused) => {
    const parameters = { type: 'object', properties: { v: schema }, required: ['v'], $defs };
    const { matcher, notes } = matcherOfCalls({ format, tools: [toolOf(parameters, true)] }, vocabulary);
    expect(notes).toEqual([]);
    const allows = (text: string): [string, boolean] => [text, allowsText(matcher, written[format]({ v: text }))];
    expect(allowed.map(allows)).toEqual(allowed.map((text) => [text, true]));
    expect(refused.map(allows)).toEqual(refused.map((text) => [text, false]));
    judge(format, parameters);
  });
});

describe.each(formats)('a closing tag in the JSON of a strict parameter in %s', (format) => {
  const parameters = {
    type: 'object',
    properties: { a: { type: 'object' }, b: { type: 'array' }, c: { type: 'string' } },
  };
  const tags = ['</parameter>', '</arg_value>', '</function></tool_call>', '</parameter><parameter=b>', '</tool_call>'];
  const others = ['<arg_key>b</arg_key><arg_value>', '</arg_value><arg_key>b</arg_key><arg_value>', '\\\\</parameter>'];
  it.each([...tags, ...others, `\\"${tags.join()}`])('is read as text: %s', (tag) => {
    const tools = [toolOf(parameters, true)];
    const output = written[format]({ a: `{"k": "x${tag}", "${tag}": ["${tag}"]}`, b: `["${tag}"]`, c: 'y' });
    const { matcher } = matcherOfCalls({ format, tools }, vocabulary);
    expect(allowsText(matcher, output)).toBe(true);
    const text = JSON.parse(`"${tag}"`);
    const expected = { a: { k: `x${text}`, [text]: [text] }, b: [text], c: 'y' };
    for (const pieces of [[output], [...output]]) {
      expect(JSON.parse(callsIn(format, tools, ...pieces)[0]!.text)).toEqual(expected);
    }
  });

  it('ends a string that is not closed, as without strict', () => {
    const output = written[format]({ a: '{"k": "x}', b: '[1]' });
    const [call] = callsIn(format, [toolOf(parameters, true)], output);
    expect(call).toEqual(callsIn(format, [toolOf(parameters, false)], output)[0]);
    expect(JSON.parse(call!.text)).toMatchObject({ b: [1] });
  });
});

const object = (properties: JsonObject, required: readonly string[] = []): JsonObject => ({
  type: 'object',
  properties,
  required,
});
const small = { type: 'integer', minimum: 1, maximum: 9 };
const roots: readonly (readonly [string, JsonObject])[] = [
  ['allOf', { allOf: [object({ a: small }, ['a']), object({ b: { enum: ['x', 'y'] } }, ['b'])] }],
  ['allOf with common names', { allOf: [object({ a: { type: 'integer' } }, ['a']), object({ a: small })] }],
  [
    'allOf beside properties',
    { ...object({ a: small }), allOf: [{ $ref: '#/$defs/b' }], $defs: { b: object({ b: small }, ['b']) } },
  ],
  ['anyOf', { type: 'object', anyOf: [object({ a: small }, ['a']), object({ b: small }, ['b'])] }],
  ['anyOf of required names', { ...object({ a: small, b: small }), anyOf: [{ required: ['a'] }, { required: ['b'] }] }],
  [
    'oneOf with a kind',
    { oneOf: [object({ kind: { const: 'a' }, a: small }, ['kind']), object({ kind: { const: 'b' } }, ['kind'])] },
  ],
  ['dependentRequired', { ...object({ a: small, b: small }), dependentRequired: { a: ['b'] } }],
  [
    'a reference of a reference',
    { $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/b' }, b: object({ b: small }, ['b']) } },
  ],
  ['references to the root', object({ a: small, next: nullable({ $ref: '#' }) }, ['a'])],
];

describe.each([...formats, 'lfm2', 'gemma4'] as const)('schemas of all strict parameters in %s', (format) => {
  it.each(roots)('%s', (_, parameters) => {
    judge(format, parameters);
  });
});

describe.each([...formats, 'lfm2', 'gemma4', 'hermes'] as const)('a tool that is not strict in %s', (format) => {
  it.each<[string, JsonObject, RegExp | undefined]>([
    ['a root of anyOf', { anyOf: [object({ a: small }, ['a']), object({ b: small })] }, undefined],
    ['minProperties', { ...object({ a: small, b: small, c: small }), minProperties: 2 }, /minProperties/],
    ['a root that may be null', { ...object({ a: small }), type: ['object', 'null'] }, undefined],
    ['a root that is nullable', { ...object({ a: small }), nullable: true }, undefined],
    ['a root that is no object', { type: 'array' }, /no arguments are allowed/],
    ['a parameter without values', { ...object({ a: false }, ['a']) }, /no arguments are allowed/],
    ['another document', { $ref: 'https://example.com/a.json' }, /only references inside/],
    ['an unknown type', { type: 'object', properties: { a: { type: 'text' } } }, /expected one of the types/],
  ])('is served with %s', (_name, parameters, note) => {
    const tools = [toolOf(parameters, false)];
    const { matcher, notes } = matcherOfCalls({ format, tools }, vocabulary);
    if (note === undefined) expect(notes).toEqual([]);
    else if (!(format === 'hermes' && parameters.minProperties !== undefined)) expect(notes.join('\n')).toMatch(note);
    let outputs = 0;
    for (let seed = 0; seed < 60 && outputs < 3; seed++) {
      const output = randomOutput(matcher, new Prng(seed));
      if (output === undefined) continue;
      outputs++;
      expect(JSON.parse(callsIn(format, tools, output)[0]!.text)).toEqual(expect.any(Object));
    }
    expect(outputs).toBeGreaterThan(0);
  });
});
