// Types of valibot 1 and the schemas of @valibot/to-json-schema.
import { toJsonSchema } from '@valibot/to-json-schema';
import * as v from 'valibot';
import { Cases } from './library.mjs';

const cases = new Cases('valibot');
const add = (name, type, valid, invalid) =>
  cases.add(name, { schema: () => toJsonSchema(type), accepts: (value) => v.safeParse(type, value).success, valid, invalid });

add('string', v.string(), ['', 'a "b"']);
add('number', v.number(), [1, -1.5]);
add('integer', v.pipe(v.number(), v.integer()), [3], [1.5]);
add('boolean', v.boolean(), [true]);
add('null', v.null_(), [null]);
add('any', v.any(), [{ a: [1] }]);
add('literal', v.literal('a'), ['a'], ['b']);
add('picklist', v.picklist(['a', 'b', 3]), ['a', 3], ['c']);
add('enum', v.enum_({ Left: 'left', Right: 'right' }), ['left'], ['up']);
add('nullable', v.nullable(v.string()), [null, 'a']);
add('nullable picklist', v.nullable(v.picklist(['a', 'b'])), [null, 'a'], ['c']);
add('lengths', v.pipe(v.string(), v.minLength(2), v.maxLength(4)), ['abc'], ['a', 'abcde']);
add('regex', v.pipe(v.string(), v.regex(/^[A-Z]{2}\d{3}$/)), ['AB123'], ['ab123']);
add('regex and length', v.pipe(v.string(), v.regex(/^[a-z]+$/), v.maxLength(3)), ['abc'], ['abcd']);
add('email', v.pipe(v.string(), v.email()), ['a.b@example.com'], ['x']);
add('uuid', v.pipe(v.string(), v.uuid()), ['123e4567-e89b-42d3-a456-426614174000'], ['x']);
add('url', v.pipe(v.string(), v.url()), ['https://example.com/a?b=c'], ['']);
add('ipv4', v.pipe(v.string(), v.ipv4()), ['10.0.0.1'], ['10.0.0.256']);
add('ipv6', v.pipe(v.string(), v.ipv6()), ['::1', '2001:db8::1']);
add('isoDate', v.pipe(v.string(), v.isoDate()), ['2024-02-29'], ['2024']);
add('isoTimestamp', v.pipe(v.string(), v.isoTimestamp()), ['2024-02-29T12:00:00Z', '2024-02-29T12:00:00.123Z']);
add('base64', v.pipe(v.string(), v.base64()), ['aGVsbG8=']);
add('bic', v.pipe(v.string(), v.bic()), ['DEUTDEFF']);
add('cuid2', v.pipe(v.string(), v.cuid2()), ['tz4a98xxat96iws9zmbrgj3a']);
add('hexColor', v.pipe(v.string(), v.hexColor()), ['#ff00aa']);
add('slug', v.pipe(v.string(), v.slug()), ['a-b']);
add('ulid', v.pipe(v.string(), v.ulid()), ['01ARZ3NDEKTSV4RRFFQ69G5FAV']);
add('bounds', v.pipe(v.number(), v.minValue(1), v.maxValue(9.5)), [1, 9.5], [0, 10]);
add('gtValue', v.pipe(v.number(), v.gtValue(1), v.ltValue(2)), [1.5], [1, 2]);
add('multipleOf', v.pipe(v.number(), v.multipleOf(5)), [0, 15], [3]);
add('array', v.array(v.string()), [[], ['a']]);
add('array lengths', v.pipe(v.array(v.number()), v.minLength(1), v.maxLength(2)), [[1]], [[], [1, 2, 3]]);
add('tuple', v.tuple([v.string(), v.number()]), [['a', 1]], [['a']]);
add('strictTuple', v.strictTuple([v.string(), v.number()]), [['a', 1]], [['a', 1, 2]]);
add('tupleWithRest', v.tupleWithRest([v.string()], v.number()), [['a'], ['a', 1, 2]], [['a', 'b']]);
const person = v.object({ name: v.string(), age: v.optional(v.number()) });
add('object', person, [{ name: 'a' }, { name: 'a', age: 3 }], [{}]);
add('strictObject', v.strictObject({ a: v.number() }), [{ a: 1 }], [{ a: 1, b: 2 }]);
// Its schema does not differ from that of `object`.
add('looseObject', v.looseObject({ a: v.number() }), [{ a: 1 }]);
add('objectWithRest', v.objectWithRest({ a: v.number() }, v.boolean()), [{ a: 1, b: true }], [{ a: 1, b: 2 }]);
add('record', v.record(v.string(), v.number()), [{}, { a: 1 }], [{ a: 'x' }]);
add('record of a picklist', v.record(v.picklist(['a', 'b']), v.number()), [{ a: 1, b: 2 }]);
add('union', v.union([v.string(), v.number()]), ['a', 1], [true]);
add('variant', v.variant('kind', [v.object({ kind: v.literal('a'), x: v.number() }), v.object({ kind: v.literal('b'), y: v.string() })]), [{ kind: 'a', x: 1 }, { kind: 'b', y: 'z' }], [{ kind: 'a', y: 'z' }]);
add('intersect', v.intersect([v.object({ a: v.string() }), v.object({ b: v.number() })]), [{ a: 'x', b: 1 }], [{ a: 'x' }]);
add('intersect of numbers', v.intersect([v.pipe(v.number(), v.minValue(1)), v.pipe(v.number(), v.maxValue(3))]), [2], [0, 4]);
const tree = v.object({ value: v.number(), children: v.array(v.lazy(() => tree)) });
add('lazy', v.object({ tree }), [{ tree: { value: 1, children: [{ value: 2, children: [] }] } }]);
add('order', v.object({ id: v.pipe(v.string(), v.uuid()), items: v.pipe(v.array(v.object({ sku: v.pipe(v.string(), v.regex(/^[A-Z]{3}-\d{4}$/)), count: v.pipe(v.number(), v.integer(), v.minValue(1)) })), v.minLength(1)), note: v.nullable(v.pipe(v.string(), v.maxLength(20))), status: v.picklist(['open', 'paid']) }),
  [{ id: '123e4567-e89b-42d3-a456-426614174000', items: [{ sku: 'ABC-1234', count: 2 }], note: null, status: 'open' }]);
await cases.run();
