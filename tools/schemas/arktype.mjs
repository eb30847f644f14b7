// Types of arktype 2, which sorts the members of its schemas: the author's order is lost.
import { type } from 'arktype';
import { Cases } from './library.mjs';

const cases = new Cases('arktype');
const add = (name, checked, valid, invalid) =>
  cases.add(name, { schema: () => checked.toJsonSchema(), accepts: (value) => checked.allows(value), valid, invalid });

add('string', type('string'), ['a']);
add('number', type('number'), [1.5]);
add('integer', type('number.integer'), [1], [1.5]);
add('boolean', type('boolean'), [true, false]);
add('null', type('null'), [null]);
add('literals', type("'a' | 'b' | 3"), ['a', 3], ['c']);
add('nullable', type('string | null'), ['a', null], [1]);
add('lengths', type('2 <= string <= 4'), ['abc'], ['a', 'abcde']);
add('regex', type(/^[A-Z]{2}\d{3}$/), ['AB123'], ['ab']);
add('bounds', type('1 <= number < 10'), [1, 9.5], [10]);
add('divisor', type('number % 5'), [15], [3]);
add('email', type('string.email'), ['a.b@example.com'], ['x']);
add('uuid', type('string.uuid'), ['123e4567-e89b-42d3-a456-426614174000'], ['x']);
add('uuid.v4', type('string.uuid.v4'), ['123e4567-e89b-42d3-a456-426614174000'], ['x']);
add('semver', type('string.semver'), ['1.2.3'], ['1.2']);
add('ip', type('string.ip'), ['10.0.0.1', '::1'], ['x']);
add('date.iso', type('string.date.iso'), ['2024-02-29T12:00:00Z'], ['x']);
add('alphanumeric', type('string.alphanumeric'), ['a1'], ['-']);
add('hex', type('string.hex'), ['ff'], ['x']);
add('base64', type('string.base64'), ['aGVsbG8=']);
add('digits', type('string.digits'), ['12'], ['a']);
add('array', type('string[]'), [[], ['a']], [[1]]);
add('array lengths', type('1 <= number[] <= 2'), [[1]], [[], [1, 2, 3]]);
add('tuple', type(['string', 'number']), [['a', 1]], [['a']]);
add('optional element', type(['string', 'number?']), [['a'], ['a', 1]], [[1]]);
add('variadic', type(['string', '...', 'number[]']), [['a', 1, 2]], [['a', 'b']]);
add('object', type({ name: 'string', 'age?': 'number.integer >= 0' }), [{ name: 'a' }, { name: 'a', age: 3 }], [{}]);
add('reject others', type({ '+': 'reject', a: 'number' }), [{ a: 1 }], [{ a: 1, b: 2 }]);
add('index signature', type({ '[string]': 'number' }), [{ a: 1 }], [{ a: 'x' }]);
add('Record', type('Record<string, number>'), [{ a: 1 }], [{ a: 'x' }]);
add('union of objects', type({ kind: "'a'", x: 'number' }).or({ kind: "'b'", y: 'string' }), [{ kind: 'a', x: 1 }, { kind: 'b', y: 'z' }], [{ kind: 'a', y: 'z' }]);
add('intersection', type({ a: 'string' }).and({ b: 'number' }), [{ a: 'x', b: 1 }], [{ a: 'x' }]);
add('partial', type({ a: 'string', b: 'number' }).partial(), [{}]);
add('default', type({ a: 'string = "x"' }).in, [{}, { a: 'y' }]);
add('order', type({ id: 'string.uuid', items: type({ sku: /^[A-Z]{3}-\d{4}$/, count: 'number.integer >= 1' }).array().atLeastLength(1), note: 'string <= 20 | null', status: "'open' | 'paid'" }),
  [{ id: '123e4567-e89b-42d3-a456-426614174000', items: [{ count: 2, sku: 'ABC-1234' }], note: null, status: 'open' }]);
await cases.run();
