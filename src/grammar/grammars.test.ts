import { describe, expect, it } from 'vitest';
import { buildsHere } from '../../test/support/grammar-builder.ts';
import { smallEos, smallSource, smallVocabulary } from '../../test/support/grammar-vocabulary.ts';
import { readExactJson } from '../base/exact-json.ts';
import { isAllowed } from '../core/constraint.ts';
import type { TokenId } from '../core/ids.ts';
import { readStructuredOutputs, type StructuredOutputs } from '../core/structured-outputs.ts';
import { Grammars } from './grammars.ts';
import { buildNetwork } from './network.ts';
import { structuredGrammar, structuredSource } from './structured-grammar.ts';

const grammars = new Grammars(smallSource, buildsHere);

const sourceOf = (outputs: StructuredOutputs) => structuredSource(readStructuredOutputs(outputs));
const compile = (outputs: StructuredOutputs) => grammars.compile(sourceOf(outputs));

/** Whether the grammar allows the whole text, byte by byte. */
async function accepts(outputs: StructuredOutputs, text: string): Promise<boolean> {
  const constraint = await compile(outputs);
  let state: object | undefined = constraint.start;
  for (const byte of new TextEncoder().encode(text)) {
    if (state === undefined || !isAllowed(constraint.allowedTokens(state, false), byte)) return false;
    state = constraint.advance(state, byte as TokenId);
  }
  return state !== undefined && isAllowed(constraint.allowedTokens(state, false), smallEos);
}

/** The second schema holds for all elements, also for those of the first one's `prefixItems`. */
const mergedLists = {
  allOf: [
    { type: 'array', prefixItems: [{ type: 'integer' }] },
    { type: 'array', items: { type: 'integer', exclusiveMinimum: 0.1 } },
  ],
};

const closedPatterns = {
  allOf: [
    { type: 'object', patternProperties: { '^x': {} }, additionalProperties: false },
    { additionalProperties: false },
  ],
};

/** The first option allows any object, whose properties are not evaluated then. */
const openOptions = { anyOf: [{ type: 'object' }, { properties: { b: {} } }], unevaluatedProperties: false };

const openParts = { allOf: [{ properties: { a: {} } }, { properties: { b: {} } }] };
const closedPart = { allOf: [{ properties: { a: {} }, unevaluatedProperties: false }, { properties: { b: {} } }] };

/** 2 ** 53 + 1, which a reader of JSON rounds to 2 ** 53. */
const beyond = '9007199254740993';

const exact = (text: string): unknown => readExactJson(text);

describe('schemas', () => {
  it.each<[string, object, string, boolean]>([
    [
      'keys of several bytes',
      { properties: { 'é🐦"\\': { const: 1 } }, required: ['é🐦"\\'] },
      '{"é🐦\\"\\\\":1}',
      true,
    ],
    ['pairs of surrogates', { type: 'string', minLength: 1, maxLength: 1 }, '"\\uD83D\\uDC26"', true],
    ['no lone surrogates', { type: 'string' }, '"\\uD83D"', false],
    ['recursion', { properties: { next: { $ref: '#' } } }, '{"next":{"next":{}}}', true],
    ['other keys only if they are allowed', { properties: { a: {} } }, '{"b":1}', false],
    ['other keys', { properties: { a: {} }, additionalProperties: { type: 'null' } }, '{"b":null}', true],
    [
      'no other key that is a declared one',
      { properties: { ab: { const: 1 } }, additionalProperties: true },
      '{"ab":2}',
      false,
    ],
    ['references with escapes', { $ref: '#/$defs/a~1b%20c', $defs: { 'a/b c': { const: 5 } } }, '5', true],
    ['bounds', { type: 'number', exclusiveMinimum: 0.1, maximum: 2 }, '0.1', false],
    ['bounds of decimals', { type: 'number', exclusiveMinimum: 0.1, maximum: 2 }, '0.11', true],
    [
      'options that are disjoint by a constant',
      {
        oneOf: ['a', 'b'].map((kind) => ({ properties: { kind: { const: kind } }, required: ['kind'] })),
      },
      '{"kind":"b"}',
      true,
    ],
    ['values of a format', { type: 'string', format: 'date', enum: ['2024-01-31'] }, '"2024-01-31"', true],
    ['merged schemas', { allOf: [{ type: 'integer', minimum: 3 }, { maximum: 4 }] }, '5', false],
    ['merged patterns of names', closedPatterns, '{"x1":1}', false],
    ['merged patterns of names', closedPatterns, '{}', true],
    ['no unevaluated properties', { type: 'object', unevaluatedProperties: false }, '{"a":1}', false],
    ['no unevaluated properties of options', openOptions, '{"a":1}', false],
    ['evaluated properties of options', openOptions, '{"b":1}', true],
    ['no unevaluated properties of a part', closedPart, '{"b":1}', false],
    ['evaluated properties of all parts', { ...openParts, unevaluatedProperties: false }, '{"a":1,"b":1}', true],
    ['no unevaluated properties of all parts', { ...openParts, unevaluatedProperties: false }, '{"c":1}', false],
    ['merged lists', mergedLists, '[0]', false],
    ['merged lists', mergedLists, '[1,2]', true],
    ['merged lists', mergedLists, '[1,0]', false],
    ['integers above the largest with an exact double', { type: 'integer', exclusiveMinimum: 2 ** 53 }, beyond, false],
    ['integers far above it', { type: 'integer', exclusiveMinimum: 2 ** 53 }, '9007199254740994', true],
    ['no types but objects', { unevaluatedProperties: false }, '1', false],
    ['deep nesting', nested(150), `${'['.repeat(150)}1${']'.repeat(150)}`, true],
    ['options without the values of others', { oneOf: [{ type: 'integer' }, { type: 'number' }] }, '1.5', true],
    ['options without the values of others', { oneOf: [{ type: 'integer' }, { type: 'number' }] }, '1', false],
    ['constants with all digits', { const: exact('1234567890123456789') }, '1234567890123456789', true],
    ['constants with all digits', { const: exact('1234567890123456789') }, '1234567890123456800', false],
    [
      'bounds with all digits',
      { type: 'integer', minimum: exact('1234567890123456789') },
      '1234567890123456788',
      false,
    ],
    ['bounds with all digits', { type: 'integer', maximum: exact('1234567890123456789') }, '1234567890123456789', true],
  ])('%s', async (_, json, text, expected) => {
    expect(await accepts({ json }, text)).toBe(expected);
  });

  it('of ten thousand values compile', async () => {
    const values = Array.from({ length: 10_000 }, (_, i) => `v${i}`);
    expect(await accepts({ json: { enum: values } }, '"v9999"')).toBe(true);
    expect(await accepts({ choice: values }, 'v10000')).toBe(false);
  });

  it.each<[string, object, RegExp]>([
    ['no values', { enum: [] }, /no value is allowed at #\/enum/],
    ['only itself', { $ref: '#' }, /refers to itself without end/],
    ['endless values', { properties: { a: { $ref: '#' } }, required: ['a'] }, /no output matches it/],
    ['merges without end', { allOf: [{ $ref: '#' }, { type: 'object' }] }, /without end/],
    [
      'required properties that are unevaluated',
      { required: ['a'], unevaluatedProperties: false },
      /no output matches it/,
    ],
    ['values without the format', { allOf: [{ enum: [''] }, { format: 'date' }] }, /no output matches it/],
    ['values of another type', { type: 'integer', enum: ['a'] }, /no value is allowed at #\/enum/],
    ['unknown escapes', { pattern: '\\q' }, /an unknown escape .* at #\/pattern/],
    ['patterns without their end', { pattern: '(a' }, /a group without its end .* at #\/pattern/],
    ['a wrong type', { type: 'banana' }, /at #\/type/],
    ['references to elsewhere', { $ref: 'https://x.org/a' }, /only references inside/],
  ])('of %s are refused', async (_, json, message) => {
    await expect(compile({ json })).rejects.toThrow(message);
  });

  it.each<[object, RegExp]>([
    [{ type: 'object', minProperties: 1, maxProperties: 0 }, /`minProperties` of 1 .* `maxProperties` of 0 at #/],
    [{ type: 'string', minLength: 3, maxLength: 2 }, /`minLength` of 3 .* `maxLength` of 2 at #/],
    [{ type: 'string', format: 'date', minLength: 3, maxLength: 2 }, /`minLength`/],
    [{ type: 'array', minItems: 3, maxItems: 2 }, /`minItems` of 3 .* `maxItems` of 2 at #/],
    [{ type: 'array', prefixItems: [true], items: false, minItems: 2 }, /`minItems` of 2 .* 1 item\(s\) at #/],
    [{ type: 'number', minimum: 3, maximum: 2.5 }, /`minimum` of 3 .* `maximum` of 2.5 at #/],
    [{ type: 'integer', minimum: 3, exclusiveMaximum: 3 }, /`minimum` of 3 .* `exclusiveMaximum` of 3 at #/],
    [{ type: 'number', exclusiveMinimum: 3, maximum: 3 }, /`exclusiveMinimum` of 3 .* `maximum` of 3 at #/],
    [
      { type: 'number', exclusiveMinimum: 4, exclusiveMaximum: 3 },
      /`exclusiveMinimum` of 4 .* `exclusiveMaximum` of 3/,
    ],
    [{ type: 'integer', exclusiveMinimum: 3, exclusiveMaximum: 4 }, /no output matches it/],
    [{ properties: { a: { minimum: 3, maximum: 2 } } }, /at #\/properties\/a/],
    [{ anyOf: [{ type: 'null' }, { minimum: 3, maximum: 2 }] }, /at #\/anyOf\/1/],
    [{ allOf: [{ type: 'array', minItems: 3 }, { maxItems: 2 }] }, /no output matches it/],
    [{ contains: true, minContains: 2, maxContains: 1 }, /`minContains` of 2 .* `maxContains` of 1 at #/],
    [{ type: 'integer', minimum: 1e30 }, /a bound of 1e\+30 .* 20 digits at #\/minimum/],
    [{ type: 'number', exclusiveMaximum: -1e20 }, /20 digits at #\/exclusiveMaximum/],
  ])('that contradict themselves are refused: %j', async (json, message) => {
    await expect(compile({ json })).rejects.toThrow(message);
  });

  it.each(['maxLength', 'maxItems', 'maxProperties'])('%s above 1,000,000 is a limit of 1,000,000', (keyword) => {
    const type = { maxLength: 'string', maxItems: 'array', maxProperties: 'object' }[keyword];
    const grammar = structuredGrammar({ json: JSON.stringify({ type, [keyword]: 2 ** 31 - 1 }) });
    // The first element has no comma before it, so the elements that are counted are one fewer.
    const counted = 1_000_000 - (keyword === 'maxLength' ? 0 : 1);
    expect(buildNetwork(grammar, new Map()).counters.map(({ max }) => max)).toContain(counted);
  });
});

function nested(levels: number): object {
  return levels === 0 ? { const: 1 } : { items: nested(levels - 1) };
}

it('a grammar with too many paths allows no more tokens from the same token on, with computed masks and with kept ones', async () => {
  const lengths: number[] = [];
  for (let run = 0; run < 2; run++) {
    const constraint = await compile({ regex: '((([ab]{0,90}){0,90}){0,90}){0,90}' });
    let state: object | undefined = constraint.start;
    let length = 0;
    while (state !== undefined && length < 400 && isAllowed(constraint.allowedTokens(state, false), 0x61)) {
      state = constraint.advance(state, 0x61 as TokenId);
      length++;
    }
    lengths.push(length);
  }
  expect(lengths[0]).toBeLessThan(400);
  expect(lengths[1]).toBe(lengths[0]);
});

it.each([
  ['(?=.*[0-9])[a-z0-9]{3}', 'ab1', 'abc'],
  ['^(?!x)\\w+(?<!y)$', 'ab', 'ay'],
  ['(?!a|.*b).*|b', 'b', 'ab'],
])('regular expressions have assertions: %s', async (regex, valid, invalid) => {
  expect([await accepts({ regex }, valid), await accepts({ regex }, invalid)]).toEqual([true, false]);
});

it('control tokens stand in a grammar by their names', async () => {
  const { controlTokens } = await smallVocabulary();
  const constraint = await compile({ grammar: 'root ::= <think> "a" <other>' });
  const think = controlTokens.get('<think>')! as TokenId;
  expect(isAllowed(constraint.allowedTokens(constraint.start, false), think)).toBe(true);
  expect(isAllowed(constraint.allowedTokens(constraint.start, false), 0x3c)).toBe(false);
  let state = constraint.advance(constraint.advance(constraint.start, think)!, 0x61 as TokenId)!;
  // The vocabulary has no such token, so the name is text.
  for (const byte of new TextEncoder().encode('<other>')) state = constraint.advance(state, byte as TokenId)!;
  expect(constraint.isComplete(state)).toBe(true);
});

describe('where a grammar is compiled', () => {
  it('small grammars at once, when the vocabulary has been read', async () => {
    const some = new Grammars(smallSource, buildsHere);
    const small = sourceOf({ choice: ['yes', 'no'] });
    expect(some.compileAtOnce(small)).toBeUndefined();
    const constraint = await some.compile(small);
    expect(some.compileAtOnce(small)).toBe(constraint);
    expect(some.compileAtOnce(sourceOf({ regex: '[0-9]+' }))).toBeDefined();
  });

  it.each<[string, StructuredOutputs]>([
    ['states', { grammar: `root ::= ${'[\u0100-\uffff] '.repeat(900)}` }],
    ['schemas', { json: { anyOf: Array.from({ length: 600 }, (_, i) => ({ const: i })) } }],
    ['characters', { choice: ['a'.repeat(20_000)] }],
  ])('grammars of many %s by the builder, once', async (_, outputs) => {
    const source = sourceOf(outputs);
    const jobs: object[] = [];
    const some = new Grammars(smallSource, {
      build: (job) => {
        jobs.push(job);
        return buildsHere.build(job);
      },
      close: () => undefined,
    });
    await some.compile(sourceOf({ choice: ['a'] }));
    expect(some.compileAtOnce(source)).toBeUndefined();
    const constraint = await some.compile(source);
    expect(jobs).toHaveLength(1);
    expect(some.compileAtOnce(source)).toBe(constraint);
  });

  it('what the builder refuses is refused with its reason', async () => {
    const tooLarge = sourceOf({ grammar: `root ::= ${'[\u0100-\uffff] '.repeat(12_000)}` });
    await expect(grammars.compile(tooLarge)).rejects.toThrow(/too large: it has more than 30000 states/);
  });
});
