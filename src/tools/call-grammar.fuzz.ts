import { Ajv2020 } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { smallVocabulary } from '../../test/support/grammar-vocabulary.ts';
import { callsIn, matcherOfCalls, toolOf } from '../../test/support/judged-calls.ts';
import { randomOutput } from '../../test/support/judged-grammar.ts';
import { fuzzRuns, isLongForm } from '../../test/support/long-form.ts';
import type { JsonObject } from '../base/json.ts';
import { Prng } from '../base/prng.ts';
import type { Matcher } from '../grammar/matcher.ts';
import { SchemaError } from '../grammar/schema-keywords.ts';
import { toolFormats } from './formats.ts';
import type { Tool } from './tool.ts';

/**
 * Each output that a grammar of required calls allows is read as calls of the tools, without content, and the arguments match the schemas.
 * Not covered: control tokens, because the vocabulary has none of those around calls.
 */
const ajv = new Ajv2020({ strict: false });

const value = fc.constantFrom<JsonObject | boolean>(
  { type: 'string' },
  { type: 'string', enum: ['a', 'b c', '1', 'true', ''] },
  { type: 'string', pattern: '^[a-c]{2}$' },
  { type: 'string', maxLength: 3 },
  { type: 'integer', minimum: 2, maximum: 40 },
  { type: ['number', 'null'] },
  { type: 'boolean' },
  { enum: ['x', 7, null] },
  { enum: ['x', '7', 7] },
  { type: 'array', items: { type: 'integer' }, maxItems: 2 },
  { type: 'object', properties: { k: { type: 'string', maxLength: 2 } }, required: ['k'], additionalProperties: false },
  { $ref: '#/$defs/small' },
  { anyOf: [{ type: 'boolean' }, { type: 'string' }] },
  { anyOf: [{ $ref: '#/$defs/small' }, { type: 'null' }] },
  { anyOf: [{ enum: ['a', 'b'] }, { type: 'null' }] },
  { type: ['string', 'null'], maxLength: 3 },
  {
    oneOf: [
      { type: 'string', pattern: '^n' },
      { type: 'integer', minimum: 5 },
    ],
  },
  { allOf: [{ type: 'string', minLength: 1 }, { pattern: '^[a-z0-9]*$' }] },
  true,
);
const parameters = fc
  .tuple(fc.dictionary(fc.constantFrom('a', 'b', 'user_id', '10', '2'), value, { maxKeys: 4 }), fc.nat(), fc.boolean())
  .map(([properties, required, isOpen]): JsonObject => {
    const names = Object.keys(properties);
    return {
      type: 'object',
      properties,
      required: names.filter((_, i) => (required & (1 << i)) !== 0),
      ...(isOpen ? {} : { additionalProperties: false }),
      $defs: { small: { type: 'integer', minimum: 0, maximum: 9 } },
    };
  });

describe.each(toolFormats)('required calls in the format %s', (format) => {
  it.each(['', '[ARGS]', '[CALL_ID][ARGS]'].slice(0, format === 'mistral' ? 3 : 1))(
    'match the schemas: %j',
    async (chatTemplate) => {
      const vocabulary = await smallVocabulary();
      let judged = 0;
      fc.assert(
        fc.property(
          fc.array(parameters, { minLength: 1, maxLength: 2 }),
          fc.boolean(),
          fc.nat(),
          (schemas, areParallel, seed) => {
            const tools = schemas.map((schema, i): Tool => toolOf(schema, true, `tool_${i}`));
            let matcher: Matcher;
            try {
              ({ matcher } = matcherOfCalls({ format, tools, areParallel, chatTemplate }, vocabulary));
            } catch (error) {
              expect(error).toBeInstanceOf(SchemaError);
              return;
            }
            const output = randomOutput(matcher, new Prng(seed));
            if (output === undefined) return;
            judged++;
            const calls = callsIn(format, tools, output);
            expect(calls.length).toBeGreaterThan(0);
            if (!areParallel) expect(calls).toHaveLength(1);
            for (const call of calls) {
              const validate = ajv.compile(schemas[Number(call.name.slice(5))]!);
              expect([validate(JSON.parse(call.text)), output, call.text]).toEqual([true, output, call.text]);
            }
          },
        ),
        { numRuns: fuzzRuns(60) },
      );
      // About a third of the outputs end. In few runs it may be none.
      if (isLongForm) expect(judged).toBeGreaterThan(3);
    },
  );
});
