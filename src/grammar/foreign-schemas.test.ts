import { readFileSync } from 'node:fs';
import { Ajv, type ValidateFunction } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { describe, expect, it } from 'vitest';
import { smallVocabulary } from '../../test/support/grammar-vocabulary.ts';
import { allowsText, matcherNow, randomOutput } from '../../test/support/judged-grammar.ts';
import { inLongForm, isLongForm } from '../../test/support/long-form.ts';
import { type ExactJson, plainJson, readExactJson, writeExactJson } from '../base/exact-json.ts';
import { Prng } from '../base/prng.ts';

/**
 * Schemas that libraries write for their types, mostly the examples of their documentation, with values that they accept and
 * refuse. Ajv judges random outputs. `tools/schemas` writes these files, and asks the libraries themselves.
 */
interface Case {
  readonly name: string;
  readonly schema: ExactJson;
  readonly valid: readonly ExactJson[];
  readonly invalid: readonly ExactJson[];
}

const casesOf = (file: string): readonly Case[] =>
  readFileSync(`test/data/schemas/${file}.jsonl`, 'utf8')
    .trim()
    .split('\n')
    .map((line) => readExactJson(line) as unknown as Case);

const options = { strict: false, logger: false, ownProperties: true, multipleOfPrecision: 6 } as const;
const drafts = {
  '2020-12': new Ajv2020(options),
  'draft-07': new Ajv(options),
  // Its pattern is not valid with the flag `u`.
  rfc5322: new Ajv2020({ ...options, unicodeRegExp: false }),
};
for (const ajv of Object.values(drafts)) addFormats.default(ajv as Ajv);

/** Undefined for schemas that Ajv cannot read: those of draft 4, and Python's named groups. */
function judgeOf(schema: ExactJson): ValidateFunction | undefined {
  const text = writeExactJson(schema);
  if (text.includes('"exclusiveMinimum":true') || text.includes('(?P<')) return undefined;
  const { $schema, ...rest } = plainJson(schema) as { $schema?: string };
  if (text.includes('[0-9]{1,3}])')) return drafts.rfc5322.compile(rest);
  // A list of `items` is a tuple in older drafts.
  const isOld = /draft-0[47]/.test($schema ?? '') || text.includes('"items":[');
  return drafts[isOld ? 'draft-07' : '2020-12'].compile(rest);
}

const isSet = (path: string) =>
  `\`uniqueItems\` is supported for items with a list of values only at ${path}/uniqueItems`;
/** What no grammar says: each value of a set is written once, and a part of a text is written again. */
const withNotes = new Map([
  ['z.set() overridden', isSet('#')],
  ['set[int]', isSet('#')],
  ['frozenset[str]', isSet('#')],
  ['conset', isSet('#')],
  ['Big', isSet('#/properties/tags')],
  ['date.iso', 'the pattern has a back reference at position 48, which is not supported, at #/pattern'],
]);

const vocabulary = await smallVocabulary();

describe.each([
  ['zod', casesOf('zod')],
  ['pydantic', casesOf('pydantic')],
  ['valibot', casesOf('valibot')],
  ['typebox', casesOf('typebox')],
  ['arktype', casesOf('arktype')],
  ['effect', casesOf('effect')],
  ['msgspec', casesOf('msgspec')],
  ['go', casesOf('go')],
  ['rust', casesOf('rust')],
])('schemas of %s', (_, cases) => {
  // One half of them in the default form.
  const chosen = cases.filter((_case, i) => isLongForm || i % 2 === 0);
  it.each(chosen.map((given) => [given.name, given] as const))('%s', (name, { schema, valid, invalid }) => {
    const note = withNotes.get(name);
    const { matcher, notes } = matcherNow(schema, note === undefined, vocabulary);
    expect(notes).toEqual(note === undefined ? [] : [note]);
    if (note !== undefined) expect(() => matcherNow(schema, true, vocabulary)).toThrow(note);
    for (const value of valid) expect([value, allowsText(matcher, writeExactJson(value))]).toEqual([value, true]);
    for (const value of note === undefined ? invalid : [])
      expect([value, allowsText(matcher, writeExactJson(value))]).toEqual([value, false]);
    const accepts = note === undefined ? judgeOf(schema) : undefined;
    for (let seed = 0; seed < inLongForm(20, 1) && accepts !== undefined; seed++) {
      const output = randomOutput(matcher, new Prng(seed));
      if (output === undefined || accepts(JSON.parse(output))) continue;
      throw new Error(`${output} does not match: ${JSON.stringify(accepts.errors)}`);
    }
  });
});
