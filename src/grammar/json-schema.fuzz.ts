import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { smallVocabulary } from '../../test/support/grammar-vocabulary.ts';
import { matcherNow, randomOutput } from '../../test/support/judged-grammar.ts';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { Prng } from '../base/prng.ts';
import type { Matcher } from './matcher.ts';

/**
 * Random strict schemas. Every random output that a grammar allows is JSON that its schema accepts; Ajv is the judge. An
 * output never gets stuck.
 */
const name = fc.constantFrom('a', 'b', 'ab', 'é', '"', 'x y', '🐦', 'constructor');
const bound = fc.oneof(
  fc.integer({ min: -150, max: 150 }),
  fc.double({ min: -20, max: 20, noNaN: true }),
  fc.constantFrom(0.1, -0.5, 1e-7, 5e-324, 2 ** 53, -(2 ** 53), 1e19, 1e20, 1e21, -1e30),
);
const optionalKeys = { requiredKeys: [] };
const patterns = [
  ...[
    '^a+b?$',
    '[0-9]{2,3}',
    '^(x|"\\n)*$',
    '^[^a-z]{2}$',
    'é|^b',
    '^(?!a)\\S+$',
    '\\bab\\b',
    '^(?=.*[0-9])[a-z0-9]{2,6}$',
  ],
];
const number = fc
  .record(
    {
      type: fc.constantFrom('integer', 'number'),
      minimum: bound,
      maximum: bound,
      exclusiveMinimum: bound,
      multipleOf: fc.constantFrom(1, 2, 7, 50, 0.5, 0.25, 1.5),
    },
    { requiredKeys: ['type'] },
  )
  .map(({ maximum, ...schema }) => ({
    ...schema,
    ...(maximum === undefined
      ? {}
      : { maximum: Math.max(maximum, schema.minimum ?? -1e9, schema.exclusiveMinimum ?? -1e9) + 3 }),
  }));
const format = fc.constantFrom(
  ...['date', 'time', 'date-time', 'duration', 'email', 'hostname', 'ipv4', 'ipv6', 'uuid', 'uri', 'byte', 'regex'],
  'json-pointer',
);
const pattern = fc.constantFrom(...patterns);
const string = fc
  .oneof(
    fc.record({ minLength: fc.nat(4), maxLength: fc.integer({ min: 4, max: 12 }) }, optionalKeys),
    fc.record(
      { pattern, minLength: fc.nat(2), maxLength: fc.integer({ min: 3, max: 8 }) },
      { requiredKeys: ['pattern'] },
    ),
    fc.record({ format, maxLength: fc.integer({ min: 20, max: 60 }) }, { requiredKeys: ['format'] }),
  )
  .map((schema) => ({ type: 'string', ...schema }));
const value = fc.oneof(fc.string(), fc.integer({ min: -3, max: 3 }), fc.constantFrom(null, true, [1], { a: 'é' }, 0.5));
const constant = fc.array(value, { minLength: 1, maxLength: 4 });

const { schema } = fc.letrec<{ schema: object | boolean }>((tie) => ({
  schema: fc.oneof(
    { depthSize: 'small' },
    number,
    string,
    constant.map((values) => ({ enum: [...new Set(values)] })),
    fc.constantFrom<object | boolean>({ type: ['null', 'boolean'] }, { type: 'object' }, { const: 'é"' }, true),
    fc
      .record(
        {
          items: tie('schema'),
          prefixItems: fc.array(tie('schema'), { minLength: 1, maxLength: 2 }),
          minItems: fc.nat(3),
          maxItems: fc.integer({ min: 3, max: 4 }),
          contains: tie('schema'),
          maxContains: fc.integer({ min: 1, max: 2 }),
          unevaluatedItems: tie('schema'),
        },
        optionalKeys,
      )
      // Ajv takes an empty list for one that contains something if `contains` stands beside `prefixItems`.
      .map(({ contains, maxContains, ...array }) => ({
        type: 'array',
        ...array,
        ...(contains === undefined || array.prefixItems !== undefined
          ? {}
          : { contains, ...(maxContains && { maxContains }) }),
      })),
    fc
      .record({
        uniqueItems: fc.constant(true),
        items: constant.map((values) => ({ enum: values })),
        minItems: fc.nat(1),
      })
      .map((array) => ({ type: 'array', ...array })),
    fc
      .record(
        {
          properties: fc.dictionary(name, tie('schema'), { maxKeys: 3 }),
          required: fc.subarray(['a', 'b', 'ab']),
          additionalProperties: tie('schema'),
          patternProperties: fc.dictionary(fc.constantFrom('^a', 'b$', '^[^a]*$'), tie('schema'), { maxKeys: 2 }),
          minProperties: fc.nat(2),
          maxProperties: fc.integer({ min: 2, max: 4 }),
          dependentRequired: fc.dictionary(fc.constantFrom('a', 'b'), fc.subarray(['a', 'ab', 'é']), { maxKeys: 2 }),
          dependentSchemas: fc.dictionary(fc.constantFrom('a', 'b'), tie('schema'), { maxKeys: 1 }),
          unevaluatedProperties: fc.oneof(fc.boolean(), tie('schema')),
        },
        optionalKeys,
      )
      // Ajv forgets `properties` for `unevaluatedProperties` beside a `dependentSchemas` that does not apply.
      .map(({ dependentSchemas, ...object }) => ({
        type: 'object',
        ...object,
        ...(dependentSchemas === undefined || object.unevaluatedProperties !== undefined ? {} : { dependentSchemas }),
      })),
    fc
      .record({ propertyNames: string, additionalProperties: tie('schema'), maxProperties: fc.nat(2) })
      .map((object) => ({ type: 'object', ...object })),
    fc.array(tie('schema'), { minLength: 1, maxLength: 3 }).map((anyOf) => ({ anyOf })),
    fc.array(tie('schema'), { minLength: 1, maxLength: 3 }).map((oneOf) => ({ oneOf })),
    fc.tuple(tie('schema'), tie('schema')).map((allOf) => ({ allOf })),
    fc.tuple(tie('schema'), tie('schema')).map(([all, not]) => ({ allOf: [all], not })),
    fc
      .tuple(tie('schema'), tie('schema'), tie('schema'))
      .map((parts) => Object.fromEntries(['if', 'then', 'else'].map((keyword, i) => [keyword, parts[i]!]))),
    fc.constantFrom({ $ref: '#/$defs/list' }, { $ref: '#/$defs/tree' }),
  ),
}));

const $defs = {
  list: {
    type: 'object',
    properties: { next: { $ref: '#/$defs/list' }, value: { type: 'integer' } },
    required: ['value'],
  },
  tree: { anyOf: [{ type: 'null' }, { type: 'array', items: { $ref: '#/$defs/tree' }, maxItems: 2 }] },
};

const ajv = new Ajv2020({ strict: false, logger: false, ownProperties: true, multipleOfPrecision: 6 });
addFormats.default(ajv);

describe('grammars of JSON schemas', () => {
  it('allow only JSON that the schema accepts', async () => {
    const vocabulary = await smallVocabulary();
    const numRuns = fuzzRuns(300);
    let judged = 0;
    fc.assert(
      fc.property(schema, fc.nat(), (inside, seed) => {
        const root = typeof inside === 'boolean' ? { $defs, anyOf: [inside] } : { $defs, ...inside };
        let matcher: Matcher;
        try {
          ({ matcher } = matcherNow(root, true, vocabulary));
        } catch (error) {
          // Keywords that cannot be kept, schemas without any value, and too many combinations.
          expect((error as Error).constructor.name).toMatch(/SchemaError|NetworkError|LimitError/);
          return;
        }
        const validate = ajv.compile(root);
        const prng = new Prng(seed);
        for (let i = 0; i < 3; i++) {
          const output = randomOutput(matcher, prng);
          if (output === undefined) continue;
          judged++;
          if (validate(JSON.parse(output))) continue;
          throw new Error(`${output} does not match: ${ajv.errorsText(validate.errors)}`);
        }
      }),
      { numRuns },
    );
    expect(judged).toBeGreaterThan(numRuns / 2);
  });
});
