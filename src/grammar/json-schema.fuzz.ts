import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { smallVocabulary } from '../../test/support/grammar-vocabulary.ts';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { randomOutput } from '../../test/support/random-output.ts';
import { Prng } from '../base/prng.ts';
import { Matcher, MatcherMemory } from './matcher.ts';
import { buildNetwork } from './network.ts';
import { structuredGrammar } from './structured-grammar.ts';

/** Random schemas of supported keywords. Every random output that a grammar allows is JSON that its schema accepts; Ajv is the judge. */
const name = fc.constantFrom('a', 'b', 'ab', 'é', '"', 'x y', '🐦', 'constructor');
const bound = fc.oneof(
  fc.integer({ min: -150, max: 150 }),
  fc.double({ min: -20, max: 20, noNaN: true }),
  fc.constantFrom(0.1, -0.5, 1e-7, 5e-324, 2 ** 53, -(2 ** 53), 1e19, 1e20, 1e21, -1e30),
);
const optionalKeys = { requiredKeys: [] };
const number = fc
  .record(
    { type: fc.constantFrom('integer', 'number'), minimum: bound, maximum: bound, exclusiveMinimum: bound },
    { requiredKeys: ['type'] },
  )
  .map(({ maximum, ...schema }) => ({
    ...schema,
    ...(maximum === undefined
      ? {}
      : { maximum: Math.max(maximum, schema.minimum ?? -1e9, schema.exclusiveMinimum ?? -1e9) + 3 }),
  }));
const string = fc
  .oneof(
    fc.record({ minLength: fc.nat(4), maxLength: fc.integer({ min: 4, max: 12 }) }, optionalKeys),
    fc.constantFrom('^a+b?$', '[0-9]{2,3}', '^(x|"\\n)*$', '^[^a-z]{2}$', 'é|^b').map((pattern) => ({ pattern })),
    fc
      .constantFrom('date', 'time', 'date-time', 'duration', 'email', 'hostname', 'ipv4', 'ipv6', 'uuid', 'uri')
      .map((format) => ({ format })),
  )
  .map((schema) => ({ type: 'string', ...schema }));
const constant = fc.array(fc.oneof(fc.string(), fc.integer(), fc.constantFrom(null, true, [1], { a: 'é' })), {
  minLength: 1,
  maxLength: 4,
});

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
        },
        optionalKeys,
      )
      .map((array) => ({ type: 'array', ...array })),
    fc
      .record(
        {
          properties: fc.dictionary(name, tie('schema'), { maxKeys: 3 }),
          required: fc.subarray(['a', 'b', 'ab']),
          additionalProperties: tie('schema'),
        },
        optionalKeys,
      )
      .map((object) => ({ type: 'object', ...object })),
    fc
      .record({ propertyNames: string, additionalProperties: tie('schema'), maxProperties: fc.nat(2) })
      .map((object) => ({ type: 'object', ...object })),
    fc.array(tie('schema'), { minLength: 1, maxLength: 3 }).map((anyOf) => ({ anyOf })),
    fc.tuple(tie('schema'), tie('schema')).map((allOf) => ({ allOf })),
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

const ajv = new Ajv2020({ strict: false, logger: false, ownProperties: true });
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
          const grammar = structuredGrammar({ json: JSON.stringify(root) });
          matcher = new Matcher(
            buildNetwork(grammar, vocabulary.controlTokens),
            vocabulary,
            new MatcherMemory(2 ** 24),
          );
        } catch (error) {
          // Keywords that cannot be merged, and schemas without any value.
          expect((error as Error).constructor.name).toMatch(/SchemaError|NetworkError/);
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
