import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { smallVocabulary } from '../../test/support/grammar-vocabulary.ts';
import { allowsText, matcherNow, randomOutput } from '../../test/support/judged-grammar.ts';
import { inLongForm, isLongForm } from '../../test/support/long-form.ts';
import { Prng } from '../base/prng.ts';
import { Budget, grammarLimits } from './budget.ts';
import { JsonGrammar } from './json-grammar.ts';
import { Matcher } from './matcher.ts';
import { MatcherMemory } from './matcher-memory.ts';
import { buildNetwork } from './network.ts';
import { layoutOf, refusalOf, structuredGrammar } from './structured-grammar.ts';

const vocabulary = await smallVocabulary();
const ajv = new Ajv2020({ strict: false, logger: false, multipleOfPrecision: 6 });

const integers = (...names: string[]) => ({
  type: 'object',
  properties: Object.fromEntries(names.map((name) => [name, { type: 'integer' }])),
});
/** A country decides which form a code has. */
const condition = (country: string, pattern: string) => ({
  if: { properties: { country: { const: country } }, required: ['country'] },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
  then: { properties: { code: { pattern } }, required: ['code'] },
});
const address = {
  type: 'object',
  properties: { country: { enum: ['US', 'NL', 'DE'] }, code: { type: 'string' } },
  required: ['country'],
};

/** Strict schemas, with values that match and that do not. */
const kept: [string, object, unknown[], unknown[]][] = [
  ['multipleOf', { type: 'integer', multipleOf: 7, minimum: -30, maximum: 1000 }, [0, 7, -28, 994], [1, 1001, -35]],
  ['multipleOf of decimals', { type: 'number', multipleOf: 0.25 }, [0, 0.25, -1.5, 7], [0.3, 1.125]],
  ['multipleOf of tens', { type: 'integer', multipleOf: 50 }, [0, 50, 1000], [5, 10, 75]],
  [
    'uniqueItems in any order',
    { type: 'array', items: { enum: ['a', 'b', 3] }, uniqueItems: true },
    [[], [3, 'a']],
    [['a', 'a']],
  ],
  [
    'uniqueItems of many values in their order',
    { type: 'array', items: { enum: 'abcdefghij'.split('') }, uniqueItems: true, minItems: 2, maxItems: 3 },
    [
      ['a', 'j'],
      ['b', 'c', 'd'],
    ],
    [['a'], ['a', 'b', 'c', 'd'], ['b', 'b']],
  ],
  ['contains', { type: 'array', items: { type: 'integer' }, contains: { minimum: 5 } }, [[5], [1, 9, 2]], [[], [1, 2]]],
  [
    'minContains and maxContains',
    { type: 'array', items: { enum: [1, 2] }, contains: { const: 1 }, minContains: 2, maxContains: 2, maxItems: 4 },
    [
      [1, 1],
      [2, 1, 1, 2],
    ],
    [[1], [1, 1, 1], [2, 2, 2, 1, 1]],
  ],
  ['minProperties', { ...integers('a', 'b', 'c'), minProperties: 2 }, [{ a: 1, c: 2 }], [{ a: 1 }, {}]],
  ['maxProperties', { ...integers('a', 'b', 'c'), maxProperties: 1 }, [{}, { c: 2 }], [{ a: 1, b: 1 }]],
  [
    'minProperties with other members',
    { ...integers('a'), additionalProperties: true, minProperties: 2 },
    [{ a: 1, x: 2 }],
    [{ x: 1, y: 1 }, { a: 1 }],
  ],
  ['not of a type', { not: { type: ['object', 'array', 'string', 'null', 'boolean'] } }, [1, 1.5], ['a', null]],
  ['not of values', { type: 'string', not: { enum: ['root', 'admin'] } }, ['user', 'roo', ''], ['root']],
  ['not of numbers', { type: 'integer', minimum: 0, maximum: 9, not: { enum: [3, 0] } }, [1, 9], [3, 0]],
  ['not of a pattern', { type: 'string', maxLength: 9, not: { pattern: '^_' } }, ['a_', ''], ['_a']],
  [
    'not of required members',
    { ...integers('a', 'b'), not: { required: ['a', 'b'] } },
    [{ a: 1 }, {}],
    [{ a: 1, b: 1 }],
  ],
  ['not of an object', { ...integers('a'), not: { const: { a: 1 } } }, [{}, { a: 2 }], [{ a: 1 }]],
  ['not of not', { not: { not: { type: 'integer' } } }, [1], ['a', 1.5]],
  ['not of options', { type: 'integer', not: { anyOf: [{ minimum: 5 }, { multipleOf: 2 }] } }, [1, 3, -3], [2, 7]],
  [
    'conditions',
    { ...address, allOf: [condition('US', '^[0-9]{5}$'), condition('NL', '^[0-9]{4} [A-Z]{2}$')] },
    [{ country: 'US', code: '12345' }, { country: 'NL', code: '1234 AB' }, { country: 'DE' }],
    [{ country: 'US' }, { country: 'US', code: '1234 AB' }],
  ],
  [
    'a condition with an alternative',
    { ...integers('a', 'b', 'c'), if: { required: ['a'] }, else: { required: ['c'] }, ...requiring('b') },
    [{ a: 1, b: 1 }, { c: 1 }],
    [{ a: 1 }, {}],
  ],
  [
    'dependentRequired',
    { ...integers('a', 'b'), dependentRequired: { a: ['b'] } },
    [{}, { b: 1 }, { a: 1, b: 1 }],
    [{ a: 1 }],
  ],
  [
    'dependentSchemas',
    { ...integers('a', 'b'), dependentSchemas: { a: { properties: { b: { minimum: 5 } } } } },
    [{ a: 1, b: 5 }, { b: 1 }, { a: 1 }],
    [{ a: 1, b: 4 }],
  ],
  [
    'several patternProperties',
    {
      type: 'object',
      properties: { id: { type: 'integer' } },
      patternProperties: { '^s_': { type: 'string' }, _n$: { enum: ['1', 1] } },
      additionalProperties: { type: 'null' },
    },
    [{ id: 1, s_a: 'x', a_n: 1, s_n: '1', z: null }],
    [{ s_a: 1 }, { s_n: 'x' }, { a_n: 'x' }, { z: 1 }],
  ],
  [
    'propertyNames with other properties',
    {
      ...integers('a'),
      additionalProperties: { type: 'integer' },
      propertyNames: { pattern: '^[a-c]+$', maxLength: 3 },
    },
    [{ a: 1, abc: 2 }],
    [{ d: 1 }, { aaaa: 1 }],
  ],
  ['propertyNames that are listed', { type: 'object', propertyNames: { enum: ['x', 'y'] } }, [{ y: 1 }], [{ z: 1 }]],
  [
    'a pattern with lengths',
    { type: 'string', pattern: 'a.*b', minLength: 3, maxLength: 5 },
    ['axb', 'xa2b'],
    ['ab', 'aaaaab'],
  ],
  [
    'a pattern of one class with lengths',
    { type: 'string', pattern: '^\\w+$', maxLength: 300 },
    ['a'.repeat(300)],
    ['a'.repeat(301), ''],
  ],
  ['two patterns', { allOf: [{ type: 'string', pattern: '^a' }, { pattern: 'z$' }] }, ['az', 'aéz'], ['a', 'z']],
  [
    'years that Python has',
    { type: 'string', format: 'date' },
    ['0004-02-29', '2000-02-29'],
    ['0000-01-01', '1900-02-29'],
  ],
  ['durations', { type: 'string', format: 'duration' }, ['P1Y2M3DT4H5M6S', 'PT1H', 'P3W'], ['P1Y3D', 'PT1H6S', 'P']],
  ['contentEncoding', { type: 'string', contentEncoding: 'base64' }, ['', 'aGk=', 'aGVsbG8='], ['aGl=', 'a', 'aGk']],
  [
    'addresses',
    { type: 'string', format: 'email' },
    ["o'neil+a@mail.example.org"],
    ['a@b', 'a@b..de', 'a@b.c-', 'a{@b.de'],
  ],
  [
    'a format with a pattern',
    { type: 'string', format: 'date', pattern: '^2024' },
    ['2024-02-29'],
    ['2023-01-01', '2024-1-1'],
  ],
  ['look-ahead', { type: 'string', pattern: '^(?=.*[0-9])(?!.*x)[a-z0-9]{2,8}$' }, ['a1', '12'], ['ab', 'x1']],
  ['look-behind', { type: 'string', pattern: '(?<=a)b(?<!aab)' }, ['cab', 'ab'], ['aab', 'b']],
  ['Unicode properties', { type: 'string', pattern: '^\\p{Lu}\\P{Lu}*$' }, ['Äb', 'A'], ['ab', 'AB']],
  [
    'overlapping options',
    {
      oneOf: [
        { type: 'integer', minimum: 5 },
        { type: 'integer', multipleOf: 2 },
      ],
    },
    [7, 2],
    [6, 8, 1],
  ],
  [
    'values that match another schema',
    { enum: [{ a: 1 }, { a: 'x' }, [1], 'b'], ...integers('a') },
    [{ a: 1 }],
    [{ a: 'x' }, [1]],
  ],
  [
    'recursive combinations',
    { $ref: '#/$defs/t', $defs: tree() },
    [{ v: 1, c: [{ v: 2 }] }],
    [{ v: 0 }, { v: 1, c: [{}] }],
  ],
  [
    'unevaluatedItems',
    { allOf: [{ type: 'array', prefixItems: [true] }], unevaluatedItems: { const: 1 } },
    [[2, 1]],
    [[2, 2]],
  ],
  ['$anchor', { $ref: '#x', $defs: { a: { $anchor: 'x', type: 'null' } } }, [null], [1]],
  ['nullable of OpenAPI 3.0', { type: 'integer', nullable: true }, [null, 1], ['a']],
  [
    'references to the $id of a part',
    {
      $ref: 'A',
      $defs: {
        A: {
          $id: 'A',
          ...integers('n'),
          required: ['n'],
          patternProperties: { '^next$': { $ref: 'A' }, '^b$': { $ref: 'b' } },
        },
        b: { $id: 'b', type: 'null' },
      },
    },
    [
      { n: 1, next: { n: 2 } },
      { n: 1, b: null },
    ],
    [{ n: 'x' }, { n: 1, b: 1 }, { n: 1, next: {} }],
  ],
  [
    'references that begin at the nearest $id',
    {
      $id: 'https://a.org/root.json',
      $ref: 'part.json#/$defs/n',
      $defs: {
        n: { type: 'null' },
        p: {
          $id: 'part.json',
          $defs: { n: { $ref: '#here' }, m: { $anchor: 'here', type: 'integer' } },
        },
      },
    },
    [7],
    [null],
  ],
];

function requiring(name: string): object {
  return Object.fromEntries([['then', { required: [name] }]]);
}

function tree(): object {
  return {
    t: { allOf: [{ $ref: '#/$defs/n' }, { properties: { v: { minimum: 1 } }, required: ['v'] }] },
    n: { type: 'object', properties: { v: { type: 'integer' }, c: { type: 'array', items: { $ref: '#/$defs/t' } } } },
  };
}

describe('strict schemas', () => {
  it.each(kept)('keep %s', (_, schema, valid, invalid) => {
    const { matcher, notes } = matcherNow(schema, true, vocabulary);
    expect(notes).toEqual([]);
    const accepts = ajv.compile(schema);
    const texts = (values: unknown[], isAllowed: boolean) =>
      values.filter((value) => allowsText(matcher, JSON.stringify(value)) === isAllowed);
    expect([texts(valid, true), texts(invalid, false)]).toEqual([valid, invalid]);
    for (let seed = 0; seed < inLongForm(30, 1); seed++) {
      const output = randomOutput(matcher, new Prng(seed));
      if (output === undefined || accepts(JSON.parse(output))) continue;
      throw new Error(`${output} does not match: ${ajv.errorsText(accepts.errors)}`);
    }
  });

  it.each<[object, RegExp, string[]]>([
    [
      { type: 'array', items: { type: 'string' }, uniqueItems: true },
      /`uniqueItems` .* at #\/uniqueItems/,
      ['["a","a"]'],
    ],
    [{ properties: { a: { pattern: '(.)\\1' } } }, /a back reference .* at #\/properties\/a\/pattern/, ['{"a":"xy"}']],
    [{ type: 'object', minProperties: 2 }, /`minProperties` of 2 .* at #\/minProperties/, ['{"a":1,"b":2}']],
    [{ type: 'integer', multipleOf: 65537 }, /`multipleOf` needs too many states at #\/multipleOf/, ['5']],
    [{ type: 'string', not: { format: 'date' } }, /the negation of `format` .* at #\/not\/format/, ['"a"']],
    [{ $dynamicRef: '#a' }, /`\$dynamicRef` is not supported at #\/\$dynamicRef/, ['1']],
    [
      { oneOf: Array.from({ length: 9 }, (_, i) => integers(`p${i}`)) },
      /two options of `oneOf` .* use `anyOf` at #\/oneOf/,
      ['{"p8":1}'],
    ],
    [
      { type: 'string', pattern: '^(a|b)*a(a|b){18}$', maxLength: 30 },
      /`pattern` and the keywords beside it need too many states together at #\/pattern/,
      [`"${'a'.repeat(40)}"`],
    ],
  ])('refuse what they cannot keep, and others leave it out with a note: %j', (schema, message, texts) => {
    expect(() => matcherNow(schema, true, vocabulary)).toThrow(message);
    const { matcher, notes } = matcherNow(schema, false, vocabulary);
    expect(notes).toHaveLength(1);
    expect(notes[0]).toMatch(message);
    expect(texts.filter((text) => allowsText(matcher, text))).toEqual(texts);
  });
});

it('JSON has a space after colons and commas at most, and other white space if the request says so', () => {
  const value = { a: [1, 2], b: {} };
  const schemas = [
    { type: 'object', properties: { a: { type: 'array', items: { type: 'integer' } }, b: true } },
    { const: value },
    { enum: [1, value] },
    { type: 'object', properties: { a: { type: 'array', items: { enum: [1, [2], 2] }, uniqueItems: true }, b: true } },
  ];
  const [compact, spaced, pretty] = [JSON.stringify(value), '{"a": [1, 2], "b": {}}', JSON.stringify(value, null, 2)];
  const allowed = (outputs: object) =>
    schemas.map((schema) => {
      const grammar = structuredGrammar({ json: JSON.stringify(schema), ...outputs });
      const network = buildNetwork(grammar, vocabulary.controlTokens);
      return [compact, spaced, pretty].map((text) =>
        allowsText(new Matcher(network, vocabulary, new MatcherMemory(2 ** 20)), text),
      );
    });
  expect(allowed({})).toEqual(schemas.map(() => [true, true, false]));
  expect(allowed({ disableAnyWhitespace: true })).toEqual(schemas.map(() => [false, true, false]));
  expect(allowed({ disableAnyWhitespace: false })).toEqual(schemas.map(() => [true, true, true]));
});

const chain = (levels: number, keyword: string, last: object) => {
  const next = (i: number) => ({ $ref: `#/$defs/d${i + 1}` });
  const $defs = Object.fromEntries(
    Array.from({ length: levels }, (_, i) => [`d${i}`, { [keyword]: [next(i), next(i)] }]),
  );
  return { $ref: '#/$defs/d0', $defs: { ...$defs, [`d${levels}`]: last } };
};
/** Two different schemas on each level, each with both of the next level. */
const lattice = (levels: number, keyword: string) => {
  const both = (i: number) => ['a', 'b'].map((side) => ({ $ref: `#/$defs/${side}${i}` }));
  const level = (i: number, side: string) => [
    `${side}${i}`,
    { properties: { [`${side}${i}`]: {} }, [keyword]: both(i + 1) },
  ];
  const $defs = Object.fromEntries(
    Array.from({ length: levels }, (_, i) => ['a', 'b'].map((side) => level(i, side))).flat(),
  );
  const last = Object.fromEntries(['a', 'b'].map((side) => [`${side}${levels}`, integers(side)]));
  return { $ref: '#/$defs/a0', $defs: { ...$defs, ...last } };
};
const nestedNot = (levels: number): object => (levels === 0 ? integers('a') : { not: nestedNot(levels - 1) });

/** Small schemas whose combinations, automata or texts grow without a bound that a client could see. */
const small: [string, object][] = [
  ['allOf that doubles at each level', chain(400, 'allOf', integers('a'))],
  ['anyOf that doubles at each level', chain(100, 'anyOf', integers('a'))],
  ['allOf of different schemas', lattice(60, 'allOf')],
  ['not in not', { type: 'object', ...nestedNot(400) }],
  [
    'conditions that exclude each other',
    { ...address, allOf: Array.from({ length: 20 }, (_, i) => condition(`c${i}`, 'a')) },
  ],
  ['a chain of references', chain(3000, 'allOf', integers('a'))],
  [
    'names of 10,000 characters',
    { type: 'object', properties: { ['x'.repeat(10_000)]: true }, additionalProperties: true },
  ],
];
const large: [string, object][] = [
  ['anyOf of different schemas', lattice(22, 'anyOf')],
  ['look-aheads', { type: 'string', pattern: `^${[...'abcdefghijkl'].map((letter) => `(?=.*${letter})`).join('')}` }],
  ['counts of counts', { type: 'string', pattern: '^((a{1,1000}b){1,1000}c){1,1000}$', minLength: 5 }],
];
const veryLarge: [string, object][] = [
  ['oneOf of different schemas', lattice(22, 'oneOf')],
  [
    'products of options',
    {
      allOf: Array.from({ length: 40 }, (_, i) => ({
        anyOf: Array.from({ length: 40 }, (__, j) => ({ properties: { [`p${i}`]: { const: j } } })),
      })),
    },
  ],
  ['subset construction', { type: 'string', pattern: '^(a|b)*a(a|b){18}$', maxLength: 100 }],
  ['nested assertions', { type: 'string', pattern: '^(?!(?!(?!(a|b)*a(a|b){10}).*x).*y).*$' }],
  ['long patterns', { type: 'string', pattern: 'a'.repeat(200_000), minLength: 3 }],
  [
    'many classes',
    {
      type: 'string',
      minLength: 1,
      pattern: Array.from(
        { length: 3000 },
        (_, i) => `[${String.fromCharCode(256 + i)}-\\u{${(20_480 + 3 * i).toString(16)}}]`,
      ).join('|'),
    },
  ],
  ['enums of enums', { allOf: [0, 1, 2].map((k) => ({ enum: Array.from({ length: 8000 }, (_, i) => `v${i + k}`) })) }],
  [
    'patterns of names',
    {
      type: 'object',
      patternProperties: Object.fromEntries(
        ['a.*b', 'c.*d', 'e.*f', 'g.*h', 'i.*j', 'k.*l'].map((pattern) => [pattern, true]),
      ),
    },
  ],
  ['long tuples', { type: 'array', prefixItems: Array.from({ length: 8000 }, () => true) }],
];

it.each([...small, ...(isLongForm ? [...large, ...veryLarge] : large.slice(0, 1))])(
  'the cost of %s is bounded',
  (name, schema) => {
    const grammar = new JsonGrammar(layoutOf({}), new Budget());
    let refusal: ReturnType<typeof refusalOf>;
    try {
      buildNetwork(structuredGrammar({ json: JSON.stringify(schema), strict: true }, grammar), new Map());
    } catch (error) {
      refusal = refusalOf(error);
      if (refusal === undefined) throw error;
    }
    expect(grammar.budget.steps).toBeLessThan(grammarLimits.steps + 2000);
    if (small.some(([other]) => other === name)) expect(refusal).toBeUndefined();
    else if (refusal !== undefined) expect(refusal.problem).toMatch(/more than \d+|too many states|so many/);
  },
);

it('an integer is not written as -0, and a number may be', () => {
  const allows = (type: string) =>
    ['-0', '0', '-7', '-0.5'].filter((text) => allowsText(matcherNow({ type }, true, vocabulary).matcher, text));
  expect(allows('integer')).toEqual(['0', '-7']);
  expect(allows('number')).toEqual(['-0', '0', '-7', '-0.5']);
});
