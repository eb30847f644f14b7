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
 * Schemas that zod 4 and pydantic 2 write for the examples of their documentation, with values that they accept and
 * refuse. Ajv judges random outputs.
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
  return drafts[/draft-0[47]/.test($schema ?? '') ? 'draft-07' : '2020-12'].compile(rest);
}

/** Sets of values that are not listed: each value is written once, which no grammar says. */
const withNotes = new Map([
  ['z.set() overridden', '#'],
  ['set[int]', '#'],
  ['frozenset[str]', '#'],
  ['conset', '#'],
  ['Big', '#/properties/tags'],
]);

const vocabulary = await smallVocabulary();

describe.each([
  ['zod', casesOf('zod')],
  ['pydantic', casesOf('pydantic')],
])('schemas of %s', (_, cases) => {
  // One half of them in the default form.
  const chosen = cases.filter((_case, i) => isLongForm || i % 2 === 0);
  it.each(chosen.map((given) => [given.name, given] as const))('%s', (name, { schema, valid, invalid }) => {
    const path = withNotes.get(name);
    const { matcher, notes } = matcherNow(schema, path === undefined, vocabulary);
    const note = `\`uniqueItems\` is supported for items with a list of values only at ${path}/uniqueItems`;
    expect(notes).toEqual(path === undefined ? [] : [note]);
    if (path !== undefined) expect(() => matcherNow(schema, true, vocabulary)).toThrow(note);
    for (const value of valid) expect([value, allowsText(matcher, writeExactJson(value))]).toEqual([value, true]);
    for (const value of invalid) expect([value, allowsText(matcher, writeExactJson(value))]).toEqual([value, false]);
    const accepts = path === undefined ? judgeOf(schema) : undefined;
    for (let seed = 0; seed < inLongForm(20, 1) && accepts !== undefined; seed++) {
      const output = randomOutput(matcher, new Prng(seed));
      if (output === undefined || accepts(JSON.parse(output))) continue;
      throw new Error(`${output} does not match: ${JSON.stringify(accepts.errors)}`);
    }
  });
});
