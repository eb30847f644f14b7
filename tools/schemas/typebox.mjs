// Types of typebox 1. A type is its schema.
import { Type } from 'typebox';
import Format from 'typebox/format';
import { Value } from 'typebox/value';
import { Cases } from './library.mjs';

const cases = new Cases('typebox');
const add = (name, type, valid, invalid) =>
  cases.add(name, { schema: () => type, accepts: (value) => Value.Check(type, value), valid, invalid });

add('String', Type.String(), ['a']);
add('Number', Type.Number(), [1.5]);
add('Integer', Type.Integer(), [1], [1.5]);
add('Boolean', Type.Boolean(), [true]);
add('Null', Type.Null(), [null]);
add('Any', Type.Any(), [[1]]);
add('Literal', Type.Literal('a'), ['a'], ['b']);
add('Union of literals', Type.Union([Type.Literal('a'), Type.Literal(2)]), ['a', 2], ['b']);
add('Enum', Type.Enum(['a', 'b']), ['a'], ['c']);
add('nullable literal', Type.Union([Type.Literal('a'), Type.Null()]), ['a', null], ['b']);
add('lengths', Type.String({ minLength: 2, maxLength: 4 }), ['abc'], ['a']);
add('pattern', Type.String({ pattern: '^[A-Z]{2}$' }), ['AB'], ['ab']);
add('pattern and length', Type.String({ pattern: '^a', maxLength: 3 }), ['abc'], ['abcd', 'b']);
for (const [format, value] of Object.entries({ date: '2024-02-29', time: '12:00:00Z', 'date-time': '2024-02-29T12:00:00Z', email: 'a.b@example.com', uuid: '123e4567-e89b-42d3-a456-426614174000', ipv4: '10.0.0.1', ipv6: '::1', uri: 'https://example.com/', hostname: 'example.com', duration: 'P1DT2H', 'json-pointer': '/a/b' })) {
  if (Format.Has(format)) add(`format ${format}`, Type.String({ format }), [value], ['?']);
}
add('format and pattern', Type.String({ format: 'date', pattern: '^2024-' }), ['2024-02-29'], ['2023-02-28', '2024-x']);
add('TemplateLiteral', Type.TemplateLiteral('user-${number}'), ['user-1'], ['user-x']);
add('bounds', Type.Number({ minimum: 1, exclusiveMaximum: 3 }), [1, 2.5], [3]);
add('multipleOf', Type.Integer({ multipleOf: 7 }), [14], [8]);
add('Array', Type.Array(Type.String(), { minItems: 1, maxItems: 2 }), [['a']], [[]]);
add('contains', Type.Array(Type.Number(), { contains: Type.Literal(1) }), [[1], [2, 1]], [[2]]);
add('unique', Type.Array(Type.Enum(['a', 'b', 'c']), { uniqueItems: true }), [['b', 'a']], [['a', 'a']]);
add('Tuple', Type.Tuple([Type.String(), Type.Number()]), [['a', 1]], [['a']]);
const person = Type.Object({ name: Type.String(), age: Type.Optional(Type.Integer({ minimum: 0 })) });
add('Object', person, [{ name: 'a' }, { name: 'a', age: 3 }], [{}]);
add('closed Object', Type.Object({ a: Type.Number() }, { additionalProperties: false }), [{ a: 1 }], [{ a: 1, b: 2 }]);
add('open Object', Type.Object({ a: Type.Number() }, { additionalProperties: Type.Boolean() }), [{ a: 1, b: true }], [{ a: 1, b: 2 }]);
add('minProperties', Type.Object({ a: Type.Optional(Type.Number()), b: Type.Optional(Type.Number()) }, { minProperties: 1 }), [{ b: 1 }], [{}]);
add('Record', Type.Record(Type.String(), Type.Number()), [{ a: 1 }], [{ a: 'x' }]);
add('Record of a pattern', Type.Record(Type.String({ pattern: '^[a-z]{2}$' }), Type.Number()), [{ ab: 1 }]);
add('Record of literals', Type.Record(Type.Union([Type.Literal('a'), Type.Literal('b')]), Type.Number()), [{ a: 1, b: 2 }]);
add('Union', Type.Union([Type.String(), Type.Object({ a: Type.Number() })]), ['a', { a: 1 }], [1]);
add('Intersect', Type.Intersect([Type.Object({ a: Type.String() }), Type.Object({ b: Type.Number() })]), [{ a: 'x', b: 1 }], [{ a: 'x' }]);
add('Intersect without others', Type.Intersect([Type.Object({ a: Type.String() }), Type.Object({ b: Type.Number() })], { unevaluatedProperties: false }), [{ a: 'x', b: 1 }], [{ a: 'x', b: 1, c: 2 }]);
add('Partial', Type.Partial(person), [{}]);
add('Pick', Type.Pick(person, ['name']), [{ name: 'a' }]);
add('Composite', Type.Evaluate(Type.Intersect([Type.Object({ a: Type.String() }), Type.Object({ b: Type.Number() })])), [{ a: 'x', b: 1 }]);
add('Cyclic', Type.Cyclic({ Node: Type.Object({ value: Type.Number(), next: Type.Union([Type.Ref('Node'), Type.Null()]) }) }, 'Node'), [{ value: 1, next: { value: 2, next: null } }], [{ value: 1, next: 3 }]);
add('order', Type.Object({ id: Type.String({ format: 'uuid' }), items: Type.Array(Type.Object({ sku: Type.String({ pattern: '^[A-Z]{3}-\\d{4}$' }), count: Type.Integer({ minimum: 1 }) }), { minItems: 1 }), note: Type.Union([Type.String({ maxLength: 20 }), Type.Null()]), status: Type.Enum(['open', 'paid']) }),
  [{ id: '123e4567-e89b-42d3-a456-426614174000', items: [{ sku: 'ABC-1234', count: 2 }], note: null, status: 'open' }]);
await cases.run();
