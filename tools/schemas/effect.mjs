// Types of effect's Schema.
import { JSONSchema, Schema } from 'effect';
import { Cases } from './library.mjs';

const cases = new Cases('effect');
const add = (name, type, valid, invalid) =>
  cases.add(name, { schema: () => JSONSchema.make(type), accepts: Schema.is(type), valid, invalid });

add('String', Schema.String, ['a']);
add('Number', Schema.Number, [1.5]);
add('Int', Schema.Int, [1], [1.5]);
add('Boolean', Schema.Boolean, [true]);
add('Null', Schema.Null, [null]);
add('Literal', Schema.Literal('a', 'b', 3), ['a', 3], ['c']);
add('NullOr', Schema.NullOr(Schema.String), ['a', null]);
add('NullOr of literals', Schema.NullOr(Schema.Literal('a', 'b')), ['a', null], ['c']);
add('Enums', Schema.Enums({ A: 'a', B: 2 }), ['a', 2], ['b']);
add('lengths', Schema.String.pipe(Schema.minLength(2), Schema.maxLength(4)), ['abc'], ['a', 'abcde']);
add('pattern', Schema.String.pipe(Schema.pattern(/^[A-Z]{2}$/)), ['AB'], ['ab']);
add('pattern and length', Schema.String.pipe(Schema.pattern(/^[a-z]+$/), Schema.maxLength(3)), ['abc'], ['abcd']);
add('startsWith', Schema.String.pipe(Schema.startsWith('a'), Schema.endsWith('z')), ['az'], ['b']);
add('UUID', Schema.UUID, ['123e4567-e89b-42d3-a456-426614174000'], ['x']);
add('ULID', Schema.ULID, ['01ARZ3NDEKTSV4RRFFQ69G5FAV'], ['x']);
add('NonEmptyString', Schema.NonEmptyString, ['a'], ['']);
add('Trimmed', Schema.Trimmed, ['a b'], [' a']);
add('between', Schema.Number.pipe(Schema.between(1, 3)), [1, 3], [4]);
add('multipleOf', Schema.Int.pipe(Schema.multipleOf(5)), [15], [3]);
add('TemplateLiteral', Schema.TemplateLiteral('user-', Schema.Number), ['user-1'], ['user-x']);
add('Array', Schema.Array(Schema.String), [['a']], [[1]]);
add('minItems', Schema.Array(Schema.Number).pipe(Schema.minItems(1), Schema.maxItems(2)), [[1]], [[]]);
add('NonEmptyArray', Schema.NonEmptyArray(Schema.Number), [[1]], [[]]);
add('Tuple', Schema.Tuple(Schema.String, Schema.Number), [['a', 1]], [['a']]);
add('Tuple with rest', Schema.Tuple([Schema.String], Schema.Number), [['a', 1, 2]], [[1]]);
add('Struct', Schema.Struct({ name: Schema.String, age: Schema.optional(Schema.Int) }), [{ name: 'a' }, { name: 'a', age: 3 }], [{}]);
add('Record', Schema.Record({ key: Schema.String, value: Schema.Number }), [{ a: 1 }], [{ a: 'x' }]);
add('Record of a pattern', Schema.Record({ key: Schema.String.pipe(Schema.pattern(/^[a-z]{2}$/)), value: Schema.Number }), [{ ab: 1 }]);
add('Union', Schema.Union(Schema.String, Schema.Struct({ a: Schema.Number })), ['a', { a: 1 }], [1]);
add('discriminated', Schema.Union(Schema.Struct({ kind: Schema.Literal('a'), x: Schema.Number }), Schema.Struct({ kind: Schema.Literal('b'), y: Schema.String })), [{ kind: 'a', x: 1 }], [{ kind: 'a', y: 'z' }]);
add('extend', Schema.extend(Schema.Struct({ a: Schema.String }), Schema.Struct({ b: Schema.Number })), [{ a: 'x', b: 1 }], [{ a: 'x' }]);
const node = Schema.Struct({ value: Schema.Number, next: Schema.NullOr(Schema.suspend(() => node)) }).annotations({ identifier: 'Node' });
add('suspend', node, [{ value: 1, next: { value: 2, next: null } }], [{ value: 1, next: 3 }]);
await cases.run();
