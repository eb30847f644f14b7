// Types of zod 4, mostly the examples of its documentation (zod.dev).
import { z } from 'zod';
import { Cases } from './library.mjs';

const cases = new Cases('zod');
const add = (name, type, valid, invalid, options = {}) =>
  cases.add(name, {
    schema: () => z.toJSONSchema(type, options),
    accepts: (value) => type.safeParse(value).success,
    valid,
    invalid,
  });

// formats of strings
add('z.string()', z.string(), ['', 'a "b" \n é🐦']);
add('z.number()', z.number(), [1, -1.5, 1e3]);
add('z.boolean()', z.boolean(), [true, false]);
add('z.null()', z.null(), [null]);
add('z.any()', z.any(), [1, 'a', { a: [null] }]);
add('z.unknown()', z.unknown(), [[1]]);
add('z.never() in an object', z.object({ a: z.string(), b: z.never().optional() }), [{ a: 'x' }]);
add('z.email()', z.email(), ['a.b+c@example.com', "o'neil@mail.example.org"], ['.a@b.co', 'a..b@c.de', 'a@b', 'x']);
add('z.email html5', z.email({ pattern: z.regexes.html5Email }), ['a@b.com']);
add('z.email rfc5322', z.email({ pattern: z.regexes.rfc5322Email }), ['a@b.com']);
add('z.email unicode', z.email({ pattern: z.regexes.unicodeEmail }), ['a@b.com']);
add('z.uuid()', z.uuid(), ['123e4567-e89b-12d3-a456-426614174000', '00000000-0000-0000-0000-000000000000'], ['123e4567-e89b-92d3-a456', '']);
for (const v of [4, 6, 7]) add(`z.uuidv${v}()`, z[`uuidv${v}`](), [`123e4567-e89b-${v}2d3-a456-426614174000`], ['123e4567-e89b-52d3-a456-426614174000']);
add('z.guid()', z.guid(), ['123e4567-e89b-92d3-f456-426614174000']);
add('z.url()', z.url(), ['https://example.com/a?b=c#d', 'http://localhost:3000/']);
add('z.httpUrl()', z.httpUrl ? z.httpUrl() : z.url(), ['https://example.com/']);
add('z.url hostname', z.url({ hostname: /^example\.com$/ }), ['https://example.com/']);
add('z.hostname()', z.hostname ? z.hostname() : z.string(), ['example.com']);
add('z.emoji()', z.emoji(), ['😀', '👍🏽'], ['a']);
add('z.base64()', z.base64(), ['', 'aGVsbG8=', 'aGVs'], ['a']);
add('z.base64url()', z.base64url(), ['aGVsbG8', ''], ['a+b']);
if (z.hex) add('z.hex()', z.hex(), ['deadBEEF', ''], ['xyz']);
add('z.jwt()', z.jwt(), ['eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln']);
add('z.nanoid()', z.nanoid(), ['V1StGXR8_Z5jdHi6B-myT'], ['short']);
add('z.cuid()', z.cuid(), ['cjld2cjxh0000qzrmn831i7rn'], ['xjld2c']);
add('z.cuid2()', z.cuid2(), ['tz4a98xxat96iws9zmbrgj3a'], ['A']);
add('z.ulid()', z.ulid(), ['01ARZ3NDEKTSV4RRFFQ69G5FAV'], ['01ARZ']);
if (z.xid) add('z.xid()', z.xid(), ['9m4e2mr0ui3e8a215n4g']);
if (z.ksuid) add('z.ksuid()', z.ksuid(), ['0ujtsYcgvSTl8PAuAdqWYSMnLOv']);
add('z.ipv4()', z.ipv4(), ['192.168.0.1'], ['256.1.1.1', '1.2.3']);
add('z.ipv6()', z.ipv6(), ['2001:db8::ff00:42:8329', '::1', '1:2:3:4:5:6:7:8'], ['1:2:3', 'g::']);
add('z.cidrv4()', z.cidrv4(), ['10.0.0.0/8'], ['10.0.0.0/33', '10.0.0.0']);
add('z.cidrv6()', z.cidrv6(), ['2001:db8::/32'], ['2001:db8::/129']);
if (z.mac) add('z.mac()', z.mac(), ['00:1A:2B:3C:4D:5E'], ['00:1A']);
for (const h of ['md5', 'sha1', 'sha256', 'sha384', 'sha512']) if (z.hash) add(`z.hash(${h})`, z.hash(h));
add('z.e164()', z.e164(), ['+14155552671'], ['14155552671', '+0']);
add('z.iso.date()', z.iso.date(), ['2024-02-29', '2023-12-31'], ['2023-02-29', '2023-13-01', '2023-1-1']);
add('z.iso.time()', z.iso.time(), [], ['25:00:00']);
add('z.iso.time({precision: -1})', z.iso.time({ precision: -1 }), []);
add('z.iso.datetime()', z.iso.datetime(), ['2024-02-29T12:34:56Z', '2020-01-01T00:00:00.123Z'], ['2023-02-29T12:34:56Z', '2020-01-01']);
add('z.iso.datetime({offset})', z.iso.datetime({ offset: true }), ['2020-01-01T00:00:00+02:00'], ['2020-01-01T00:00:00+0200']);
add('z.iso.datetime({local})', z.iso.datetime({ local: true }), []);
add('z.iso.datetime({precision: 3})', z.iso.datetime({ precision: 3 }), ['2020-01-01T00:00:00.123Z'], ['2020-01-01T00:00:00Z']);
add('z.iso.duration()', z.iso.duration(), ['P1Y2M3DT4H5M6S', 'PT5M', 'P3W'], ['P', '1Y']);
// checks of strings
add('z.string().max(5)', z.string().max(5), ['12345'], ['123456']);
add('z.string().min(5)', z.string().min(5), ['12345'], ['1234']);
add('z.string().length(5)', z.string().length(5), ['12345'], ['1234']);
add('z.string().regex()', z.string().regex(/^[a-z]+$/), ['abc'], ['A', '']);
add('regex with lengths', z.string().min(3).max(20).regex(/^[a-z0-9_-]+$/), ['abc', 'a'.repeat(20)], ['ab', 'a'.repeat(21), 'A b']);
add('startsWith', z.string().startsWith('aaa'), ['aaab'], ['baaa']);
add('endsWith', z.string().endsWith('zzz'), ['azzz'], ['zzza']);
add('includes', z.string().includes('---'), ['a---b'], ['a--b']);
add('uppercase', z.string().uppercase(), ['ABC 1'], ['a']);
add('lowercase', z.string().lowercase(), ['abc 1'], ['A']);
add('several patterns', z.string().startsWith('a').endsWith('z').includes('m').max(10), ['amz', 'aaaamzzzzz'], ['az', 'aaaaaamzzzzz']);
add('password', z.string().min(8).max(100).regex(/[A-Z]/).regex(/[a-z]/).regex(/[0-9]/), ['Passw0rd'], ['password', 'Pass0']);
add('password by look-ahead', z.string().regex(/^(?=.*[A-Z])(?=.*\d)(?=.*[^A-Za-z0-9]).{8,64}$/), ['Passw0rd!'], ['Passw0rd', 'P0!']);
add('word edges', z.string().regex(/\bcat\b/), ['a cat sat'], ['concat']);
add('unicode letters', z.string().regex(/^\p{L}+$/u), ['Ünïcödé'], ['a1']);
add('trim', z.string().trim().min(1), ['a'], ['']);
add('email with length', z.email().max(50), ['a@example.com'], [`${'a'.repeat(50)}@example.com`]);
add('slug', z.string().regex(/^[a-z0-9]+(?:-[a-z0-9]+)*$/).max(60), ['a-b-c'], ['-a', 'a--b']);
add('hex colour', z.string().regex(/^#(?:[0-9a-f]{3}){1,2}$/i), ['#aaf', '#00ff00'], ['#ab']);
add('z.stringFormat', z.stringFormat('cool-id', /^cool-[a-z]{3}$/), ['cool-abc'], ['cool-']);
add('z.templateLiteral', z.templateLiteral(['hello, ', z.string(), '!']), ['hello, bob!'], ['hello']);
add('z.templateLiteral css', z.templateLiteral([z.number(), z.enum(['px', 'em', 'rem', '%'])]), ['10px', '1.5em'], ['px']);
add('z.templateLiteral email', z.templateLiteral([z.string().min(1), '@', z.string().max(64)]), ['a@b']);
add('z.templateLiteral ip', z.templateLiteral([z.literal('ip-'), z.ipv4()]), ['ip-1.2.3.4']);
// numbers
add('z.number().gt(5)', z.number().gt(5), [5.1], [5]);
add('z.number().gte(5)', z.number().gte(5), [5], [4.9]);
add('z.number().lt(5)', z.number().lt(5), [4.9], [5]);
add('z.number().positive()', z.number().positive(), [0.1], [0]);
add('z.number().nonnegative()', z.number().nonnegative(), [0], [-1]);
add('z.number().negative()', z.number().negative(), [-1], [0]);
add('z.number().multipleOf(5)', z.number().multipleOf(5), [0, 5, 10, -15], [3, 5.5]);
add('z.number().multipleOf(0.25)', z.number().multipleOf(0.25), [0.25, 1.5, 2], [0.3]);
add('z.number().step(0.01)', z.number().step(0.01).min(0).max(100), [0.25, 1.5, 2], [0.255]);
add('z.int()', z.int(), [1, -5, 9007199254740991], [1.5]);
add('z.int32()', z.int32(), [1, -2147483648], [2147483648]);
add('z.uint32()', z.uint32(), [4294967295], [-1]);
add('z.float32()', z.float32(), [1.5]);
add('z.float64()', z.float64(), [1.5]);
add('even int', z.int().multipleOf(2).min(0).max(1000), [0, 1000, 42], [1, 1002]);
add('z.number().min(0).max(1)', z.number().min(0).max(1), [0, 1, 0.5], [1.1]);
// literals and enums
add('z.literal("tuna")', z.literal('tuna'), ['tuna'], ['x']);
add('z.literal(12)', z.literal(12), [12], [13]);
add('z.literal([...])', z.literal(['red', 'green', 3, true, null]), ['red', 3, true, null], ['blue']);
add('z.enum', z.enum(['Salmon', 'Tuna', 'Trout']), ['Tuna'], ['x']);
add('z.enum of an object', z.enum({ A: 'a', B: 2 }), ['a', 2], ['b']);
add('exclude', z.enum(['Salmon', 'Tuna', 'Trout']).exclude(['Salmon']), ['Tuna'], ['Salmon']);
// optional and nullable
add('z.nullable()', z.nullable(z.string()), [null, 'a'], [1]);
add('z.nullish()', z.object({ a: z.nullish(z.string()) }), [{}, { a: null }, { a: 'x' }]);
add('z.optional()', z.object({ a: z.optional(z.literal('yoda')) }), [{}, { a: 'yoda' }]);
add('z.default()', z.object({ a: z.string().default('x') }), [{ a: 'y' }]);
add('z.default() input', z.object({ a: z.string().default('x') }), [{}, { a: 'y' }], [], { io: 'input' });
add('z.prefault()', z.object({ a: z.string().prefault('x') }), [{}], [], { io: 'input' });
add('z.catch()', z.object({ a: z.number().catch(42) }), [{ a: 1 }]);
add('z.readonly()', z.object({ name: z.string() }).readonly(), [{ name: 'a' }]);
add('z.email().nullable()', z.email().nullable(), ['a@example.com', null]);
// objects
const Person = z.object({ name: z.string(), age: z.number() });
add('z.object()', Person, [{ name: 'Billie', age: 100 }], [{ name: 'a' }]);
add('optional property', z.object({ name: z.string(), age: z.number().optional() }), [{ name: 'a' }]);
add('z.strictObject()', z.strictObject({ name: z.string() }), [{ name: 'a' }], [{ name: 'a', b: 1 }]);
add('z.looseObject()', z.looseObject({ name: z.string() }), [{ name: 'a', b: [1] }]);
add('catchall', z.object({ name: z.string() }).catchall(z.string()), [{ name: 'a', b: 'x' }], [{ name: 'a', b: 1 }]);
add('extend', Person.extend({ breed: z.string() }), [{ name: 'a', age: 1, breed: 'x' }]);
add('pick', Person.pick({ name: true }), [{ name: 'a' }]);
add('partial', Person.partial(), [{}, { age: 1 }]);
add('required', Person.partial().required(), [{ name: 'a', age: 1 }], [{}]);
add('keyof', Person.keyof(), ['name'], ['x']);
add('object io input', Person, [{ name: 'a', age: 1 }], [], { io: 'input' });
const Category = z.object({ name: z.string(), get subcategories() { return z.array(Category); } });
add('recursive', Category, [{ name: 'a', subcategories: [{ name: 'b', subcategories: [] }] }]);
const User = z.object({ email: z.email(), get posts() { return z.array(Post); } });
const Post = z.object({ title: z.string(), get author() { return User; } });
add('mutually recursive', User, [{ email: 'a@example.com', posts: [] }]);
const Activity = z.union([z.object({ name: z.string(), get subactivities() { return z.nullable(z.array(Activity)); } }), z.string()]);
add('recursive union', Activity, ['a', { name: 'x', subactivities: null }]);
add('reused', z.object({ a: Person, b: Person }), [{ a: { name: 'a', age: 1 }, b: { name: 'b', age: 2 } }], [], { reused: 'ref' });
add('with id', z.object({ a: Person.meta({ id: 'Person', title: 'P', examples: [1] }) }), [{ a: { name: 'a', age: 1 } }]);
// arrays and tuples
add('z.array()', z.array(z.string()), [[], ['a']], [[1]]);
add('array min', z.array(z.string()).min(2), [['a', 'b']], [['a']]);
add('array max', z.array(z.string()).max(2), [[], ['a', 'b']], [['a', 'b', 'c']]);
add('array length', z.array(z.number()).length(2), [[1, 2]], [[1]]);
add('nonempty', z.array(z.string()).nonempty(), [['a']], [[]]);
add('z.tuple()', z.tuple([z.string(), z.number(), z.boolean()]), [['a', 1, true]], [['a', 1]]);
add('z.tuple() with rest', z.tuple([z.string()], z.number()), [['a'], ['a', 1, 2]], [[1]]);
add('z.tuple() optional', z.tuple([z.string(), z.number().optional()]), [['a', 1]]);
for (const target of ['draft-7', 'draft-4', 'openapi-3.0']) {
  add(`tuple ${target}`, z.tuple([z.string(), z.number()]), [['a', 1]], [], { target });
  add(`nullable ${target}`, z.object({ a: z.string().nullable() }), [{ a: 'x' }], [], { target });
  add(`gt ${target}`, z.number().gt(5), [6], [5], { target });
}
// unions
add('z.union()', z.union([z.string(), z.number()]), ['a', 1], [true]);
const Result = z.discriminatedUnion('status', [z.object({ status: z.literal('success'), data: z.string() }), z.object({ status: z.literal('failed'), error: z.string() })]);
add('z.discriminatedUnion()', Result, [{ status: 'success', data: 'yay' }, { status: 'failed', error: 'x' }], [{ status: 'success', error: 'x' }]);
const BaseError = { status: z.literal('failed'), message: z.string() };
add('nested discriminatedUnion', z.discriminatedUnion('status', [z.object({ status: z.literal('success'), data: z.string() }), z.discriminatedUnion('code', [z.object({ ...BaseError, code: z.literal(400) }), z.object({ ...BaseError, code: z.literal(401) })])]), [{ status: 'failed', message: 'm', code: 400 }]);
add('discriminatedUnion with defaults', z.discriminatedUnion('type', [z.object({ type: z.literal('a').default('a'), x: z.number() }), z.object({ type: z.literal('b').default('b'), x: z.number() })]), [{ type: 'a', x: 1 }]);
add('discriminatedUnion with defaults, input', z.discriminatedUnion('type', [z.object({ type: z.literal('a').default('a'), x: z.number() }), z.object({ type: z.literal('b').default('b'), x: z.number() })]), [{ type: 'a', x: 1 }], [], { io: 'input' });
if (z.xor) add('z.xor()', z.xor([z.object({ type: z.literal('card'), cardNumber: z.string() }), z.object({ type: z.literal('bank'), accountNumber: z.string() })]), [{ type: 'card', cardNumber: '1' }]);
if (z.xor) add('z.xor() of types', z.xor([z.string(), z.number()]), ['a', 1]);
add('z.intersection()', z.intersection(z.object({ name: z.string() }), z.object({ role: z.string() })), [], [], {});
add('z.intersection() input', z.intersection(z.object({ name: z.string() }), z.object({ role: z.string() })), [{ name: 'a', role: 'b' }], [], { io: 'input' });
add('intersection of unions', z.intersection(z.union([z.number(), z.string()]), z.union([z.number(), z.boolean()])), [1], ['a', true]);
// records, maps and sets
add('z.record()', z.record(z.string(), z.string()), [{}, { a: 'b' }], [{ a: 1 }]);
add('z.record(enum)', z.record(z.enum(['id', 'name', 'email']), z.string()), [{ id: 'a', name: 'b', email: 'c' }], [{ id: 'a' }]);
add('z.partialRecord(enum)', z.partialRecord(z.enum(['id', 'name', 'email']), z.string()), [{}, { id: 'a' }], [{ x: 'a' }]);
add('z.record(regex)', z.record(z.string().regex(/^[a-z]{2}$/), z.number()), [{ ab: 1 }], [{ abc: 1 }]);
add('z.record(email)', z.record(z.email(), z.number()), [{ 'a@example.com': 1 }], [{ x: 1 }]);
add('z.record(uuid)', z.record(z.uuid(), z.int()), [{}]);
add('z.record(number)', z.record(z.number(), z.string()), [{}]);
if (z.looseRecord) add('z.looseRecord()', z.looseRecord(z.string().regex(/^a/), z.number()), [{ a1: 1 }]);
add('z.set() any', z.set(z.number()), [], [], { unrepresentable: 'any' });
add('z.map() any', z.map(z.string(), z.number()), [], [], { unrepresentable: 'any' });
add('z.date() any', z.object({ d: z.date() }), [], [], { unrepresentable: 'any' });
add('z.bigint() any', z.bigint(), [], [], { unrepresentable: 'any' });
add('z.set() overridden', z.array(z.number()).meta({ uniqueItems: true }), [[], [1]]);
add('z.json()', z.json(), [null, 1, 'a', [1, { a: null }]]);
add('z.file()', z.file().min(1).max(100).mime('image/png'));
// transforms
add('z.pipe()', z.pipe(z.string(), z.string().min(3)), ['abc']);
add('z.codec() input', z.codec(z.iso.datetime(), z.date(), { decode: (s) => new Date(s), encode: (d) => d.toISOString() }), ['2020-01-01T00:00:00Z'], [], { io: 'input' });
add('z.stringbool() input', z.stringbool(), ['true'], [], { io: 'input' });
add('z.preprocess input', z.preprocess((v) => v, z.int()), [1], [], { io: 'input' });
add('z.coerce.number() input', z.object({ a: z.coerce.number() }), [{ a: 1 }], [], { io: 'input' });
add('brand', z.object({ name: z.string() }).brand(), [{ name: 'a' }]);
add('z.lazy()', z.lazy(() => z.array(z.string())), [['a']]);
add('refine', z.string().refine((v) => v.length > 0), ['a']);
add('describe', z.object({ a: z.string().describe('text') }).describe('d'), [{ a: 'x' }]);
add('large', z.object({ id: z.uuid(), email: z.email(), created: z.iso.datetime(), tags: z.array(z.string().min(1).max(20)).max(5), address: z.object({ zip: z.string().regex(/^\d{5}(-\d{4})?$/), country: z.string().length(2) }), role: z.enum(['admin', 'user']), site: z.url().optional(), ip: z.union([z.ipv4(), z.ipv6()]) }),
  [{ id: '123e4567-e89b-12d3-a456-426614174000', email: 'a@example.com', created: '2024-02-29T12:34:56Z', tags: ['a'], address: { zip: '12345', country: 'DE' }, role: 'user', ip: '::1' }]);
await cases.run();
