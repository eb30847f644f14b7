import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { firstOrAll, joinedList, jsonInTurns, jsonPieces, LazyList, RawJson, textPieces } from './json-pieces.ts';

const written = (value: unknown): string => [...jsonPieces(value)].join('');

describe('JSON in pieces', () => {
  it('is the JSON of the value', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(JSON.parse(written(value))).toEqual(JSON.parse(JSON.stringify(value)));
      }),
    );
  });

  it('leaves undefined fields out', () => {
    expect(written({ a: undefined, b: [{ c: undefined }], d: 1 })).toBe('{"b":[{}],"d":1}');
  });

  it('has lazy lists as arrays, as JSON.stringify does', () => {
    const numbers = new LazyList<number | null>(() => [1, null, new RawJson('2e0')]);
    const value = { none: new LazyList(() => []), numbers, both: joinedList(numbers, [3]), nested: [{ numbers }] };
    const expected = { none: [], numbers: [1, null, 2], both: [1, null, 2, 3], nested: [{ numbers: [1, null, 2] }] };
    expect(JSON.parse(written(value))).toEqual(expected);
    expect(JSON.parse(JSON.stringify(value))).toEqual(expected);
  });

  it('makes the items of a long list while it is written', () => {
    let made = 0;
    const list = new LazyList(function* () {
      for (let i = 0; i < 20_000; i++) {
        made++;
        yield 'x'.repeat(20);
      }
    });
    const pieces = jsonPieces({ list });
    const first = pieces.next().value as string;
    expect(first.length).toBeLessThan(70_000);
    expect(made).toBeLessThan(4000);
    expect(JSON.parse(first + [...pieces].join(''))).toEqual({ list: new Array(20_000).fill('x'.repeat(20)) });
  });

  it('is known to be one piece before anything is sent', () => {
    expect(firstOrAll(jsonPieces({ a: 1 }))).toEqual({ only: '{"a":1}' });
    const long = { list: new LazyList(() => new Array(20_000).fill('123456789')) };
    const { only, pieces } = firstOrAll(jsonPieces(long)) as { only?: string; pieces: Iterable<string> };
    expect(only).toBeUndefined();
    expect(JSON.parse([...pieces].join(''))).toEqual(JSON.parse(JSON.stringify(long)));
  });

  it('that exists already is cut between characters', () => {
    for (const before of ['', 'a']) {
      const text = before + '😀'.repeat(100_000);
      const pieces = [...textPieces(text)];
      expect(pieces.length).toBeGreaterThan(2);
      expect(Buffer.concat(pieces.map((piece) => Buffer.from(piece))).toString()).toBe(text);
    }
  });

  it('is given up if it becomes too long', async () => {
    const endless = new LazyList(function* () {
      for (;;) yield 'again';
    });
    expect(await jsonInTurns({ endless }, 100_000)).toBeUndefined();
    expect(await jsonInTurns({ a: 1 }, 100_000)).toBe('{"a":1}');
  });
});
