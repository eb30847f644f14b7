import { describe, expect, it } from 'vitest';
import { type FieldFault, FieldReader, inSnakeCase } from './field-reader.ts';

/** An error whose fields are the fault. */
const toError = (fault: FieldFault): Error => Object.assign(new Error(fault.kind), fault);
const of = (fields: object, path?: string) => new FieldReader(fields, toError, path);

function faultOf(read: () => unknown): FieldFault {
  try {
    read();
  } catch (error) {
    return error as FieldFault;
  }
  throw new Error('no fault was found');
}

describe('FieldReader', () => {
  it('reads each field with its type, and null and the methods of all objects as absent', () => {
    const fields = { a: true, n: 3, ratio: 0.5, s: '', kind: 'b', list: [1, 2], inner: { x: 1 }, many: [{ x: 2 }] };
    const reader = of({ ...fields, none: null });
    expect([reader.boolean('a'), reader.integer('n'), reader.number('ratio')]).toEqual([true, 3, 0.5]);
    expect([reader.string('s'), reader.choice('kind', ['a', 'b'])]).toEqual(['', 'b']);
    expect(reader.list('list', (item, name) => `${name}=${item}`)).toEqual(['list[0]=1', 'list[1]=2']);
    expect(reader.object('inner')?.integer('x')).toBe(1);
    expect(reader.objects('many', (item) => item.integer('x'))).toEqual([2]);
    for (const name of ['none', 'toString', '__proto__']) expect(reader.string(name)).toBeUndefined();
    expect(() => reader.finish()).not.toThrow();
  });

  it('reads fields that an instance of a class inherits', () => {
    class Request {
      get salt(): string {
        return 'a';
      }
    }
    expect(of(new Request()).string('salt')).toBe('a');
  });

  const wrong: readonly (readonly [read: (reader: FieldReader) => unknown, value: unknown, expected: string])[] = [
    [(reader) => reader.boolean('x'), 'yes', 'true or false'],
    [(reader) => reader.number('x'), Number.NaN, 'a number'],
    [(reader) => reader.number('x', { min: 1 }), 0, 'a number of at least 1'],
    [(reader) => reader.number('x', { max: 1 }), 2, 'a number of at most 1'],
    [(reader) => reader.number('x', { above: 0 }), 0, 'a number greater than 0'],
    [(reader) => reader.number('x', { above: 0, max: 1 }), 2, 'a number greater than 0 and at most 1'],
    [(reader) => reader.number('x', { min: 0, max: 1 }), -1, 'a number from 0 to 1'],
    [(reader) => reader.integer('x', { min: 1 }), 1.5, 'an integer of at least 1'],
    [(reader) => reader.integer('x', { min: 1 }), 2 ** 53, 'an integer from 1 to 9007199254740991'],
    [(reader) => reader.string('x'), 1, 'a string'],
    [(reader) => reader.string('x', { min: 1 }), '', 'a non-empty string'],
    [(reader) => reader.string('x'), '\ud800', 'well-formed Unicode'],
    [(reader) => reader.choice('x', ['a', 'b']), 'c', '"a" or "b"'],
    [(reader) => reader.choice('x', ['a', 'b', 'c']), 'd', 'one of a, b, c'],
    [(reader) => reader.json('x'), [], 'an object'],
    [(reader) => reader.object('x'), 'a', 'an object'],
    [(reader) => reader.list('x', String), {}, 'a list'],
    [(reader) => reader.list('x', String, { min: 2 }), [1], 'a list with a length of at least 2'],
  ];
  it.each(wrong)('%s refuses %o', (read, x, expected) => {
    expect(faultOf(() => read(of({ x }, 'outer.')))).toMatchObject({ kind: 'invalid', parameter: 'outer.x', expected });
  });

  it('says what it found, and does not repeat a long value', () => {
    const found = (x: unknown) => faultOf(() => of({ x }).boolean('x')).actual;
    expect([found(1), found('a'), found([1]), found({}), found(3n)]).toEqual([
      '1',
      '"a"',
      'an array',
      'an object',
      '3n',
    ]);
    expect(found('a'.repeat(1000)).length).toBeLessThan(50);
    expect(faultOf(() => of({ x: 'a'.repeat(1025) }).name('x')).actual).toBe('1025 characters');
    expect(faultOf(() => of([]))).toMatchObject({ parameter: '', expected: 'an object', actual: 'an array' });
  });

  it('names a missing field, and one of an object in a list, with its path', () => {
    const reader = of({ tools: [{}] });
    const read = () => reader.objects('tools', (tool) => tool.required('name', tool.name('name'), 'a name'));
    expect(faultOf(read)).toMatchObject({ kind: 'missing', parameter: 'tools[0].name', expected: 'a name' });
  });

  it('refuses fields that were not read, and proposes the nearest known name', () => {
    const reader = of({ modle: 1, old: 2 }, 'outer.');
    reader.name('model');
    reader.ignore(['old']);
    const { kind, ...fault } = faultOf(() => reader.finish());
    expect(kind).toBe('unknown');
    expect(fault).toMatchObject({ parameter: 'outer.modle', known: ['model'], nearest: 'model', actual: '1' });
  });

  it('refuses a field that is not supported, unless its value requests nothing', () => {
    const refuse = (x: unknown) => () => of({ x }).refuse('x', (value) => value === false, ': use `y`');
    expect(refuse(false)).not.toThrow();
    expect(refuse(null)).not.toThrow();
    expect(faultOf(refuse(true))).toMatchObject({ kind: 'unsupported', parameter: 'x', detail: ': use `y`' });
  });

  it('gives the fields that were not read to a reader of its own', () => {
    const reader = of({ type: 'own', depth: 3 });
    reader.name('type');
    expect(reader.rest()).toEqual({ depth: 3 });
    expect(() => reader.finish()).not.toThrow();
  });
});

it('names in camelCase are the same in snake_case, and one of two spellings is too many', () => {
  const read = (config: object) => inSnakeCase(config, (name) => new Error(`${name} twice`));
  expect(read({ numTokens: 1, num_tokens: undefined, max: 2 })).toEqual({ num_tokens: 1, max: 2 });
  expect(() => read({ numTokens: 1, num_tokens: 2 })).toThrow('num_tokens twice');
});
