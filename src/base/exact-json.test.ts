import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import {
  ExactNumber,
  JsonLimitError,
  jsonLimits,
  namesOf,
  plainJson,
  readExactJson,
  writeExactJson,
} from './exact-json.ts';

describe('exact JSON', () => {
  it.each([
    '1234567890123456789',
    '-9007199254740993',
    '0.1234567890123456789',
    '1.0',
    '1e5',
    '1E+400',
    '-0',
    '5e-324',
    '0.30000000000000004',
    '[1.10,{"a":100000000000000000000000}]',
    '{"b":1,"10":2,"2":{"1":1,"0":0},"a":3}',
    '{"__proto__":{"x":1.0}}',
  ])('%s is written as it was read', (text) => {
    expect(writeExactJson(readExactJson(text))).toBe(text);
  });

  it('numbers that JavaScript writes in the same way are plain numbers', () => {
    expect(readExactJson('[0,-1,0.1,1e+21,1152921504606847000,5e-324,1.0]')).toStrictEqual([
      0,
      -1,
      0.1,
      // Python has a float and an integer for these.
      new ExactNumber('1e+21'),
      new ExactNumber('1152921504606847000'),
      5e-324,
      new ExactNumber('1.0'),
    ]);
    expect(JSON.stringify(readExactJson('[9007199254740993,1.0]'))).toBe('[9007199254740992,1]');
    expect(Number(readExactJson('2.50'))).toBe(2.5);
  });

  it('names keep their order, also in copies', () => {
    const value = readExactJson('{"b":1.0,"10":2,"b":3,"a":4}') as object;
    expect(namesOf(value)).toEqual(['b', '10', 'a']);
    expect(namesOf(plainJson(value as never) as object)).toEqual(['b', '10', 'a']);
    expect(namesOf({ a: 1 })).toEqual(['a']);
  });

  it('the same texts as for `JSON.parse` are JSON, with the same values', () => {
    const anyText = fc.oneof(
      fc.json(),
      fc.json().map((text) => JSON.stringify(JSON.parse(text), null, 2)),
      fc
        .tuple(
          fc.json(),
          fc.nat(),
          fc.constantFrom('"', '\\', '{', ']', ',', ':', '1', '.', '-', 'e', '\n', '\u0001', ''),
        )
        .map(
          ([text, at, letter]) =>
            text.slice(0, at % (text.length + 1)) + letter + text.slice((at % (text.length + 1)) + (at % 2)),
        ),
      fc
        .array(
          fc.constantFrom('"', '\\u', 'd800', '{', '}', '[', ']', ',', ':', '10', '.', '-', 'e', ' ', 'true', '\\'),
          { maxLength: 12 },
        )
        .map((parts) => parts.join('')),
    );
    fc.assert(
      fc.property(anyText, (text) => {
        let expected: unknown;
        try {
          expected = JSON.parse(text);
        } catch {
          expect(() => readExactJson(text)).toThrow(SyntaxError);
          return;
        }
        const value = readExactJson(text);
        expect(plainJson(value)).toStrictEqual(expected);
        expect(JSON.parse(writeExactJson(value, 2))).toStrictEqual(expected);
      }),
      { numRuns: fuzzRuns(1000) },
    );
  });

  it.each<[string, string]>([
    ['nested levels', '['.repeat(65)],
    ['different field names', `{${Array.from({ length: 4097 }, (_, i) => `"n${i}":0`).join()}}`],
    ['objects and lists', `[${'{},'.repeat(10)}`],
    ['strings', `[${'"",'.repeat(10)}`],
    ['characters of a number', '1'.repeat(1001)],
    ['numbers that are not in the shortest form', `[${'1.0,'.repeat(2 ** 18 + 1)}`],
  ])('a text with too many %s is refused', (what, text) => {
    const limits = {
      ...jsonLimits,
      ...(what === 'strings' ? { strings: 9 } : what === 'objects and lists' ? { objects: 10 } : {}),
    };
    expect(() => readExactJson(text, limits)).toThrow(JsonLimitError);
    expect(() => readExactJson(text, limits)).toThrow(what);
  });
});
