import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fuzzRuns } from '../../../test/support/long-form.ts';
import { blockIndex, groupIndex } from '../../core/ids.ts';
import { type BlockKey, blockKey, digestHexOfKey, groupOfKey, isBlockKey } from '../block-key.ts';
import type { KvIdentity } from '../connector.ts';
import { missReasons } from '../reasons.ts';
import { saltTagOf } from '../salt-tag.ts';
import { BlockCodec, headerBytes, payloadCrcOf, saltTagIn } from './block-header.ts';

const identity: KvIdentity = {
  fingerprint: 'a model',
  modelName: 'Model',
  dtype: 'f16',
  rank: 0,
  worldSize: 2,
  blockBytes: 96,
  groups: [
    { blockSize: 16, layers: [0, 2] },
    { blockSize: 32, layers: [1, 3] },
  ],
};
const key = (name: string, group = 0): BlockKey =>
  `${group}-${createHash('sha256').update(name).digest('hex')}` as BlockKey;
const payload = Uint8Array.from({ length: 96 }, (_, i) => (i * 37) & 255);
const codec = new BlockCodec(identity);
const whole = headerBytes + payload.length;

describe('block keys', () => {
  it('have a digest and a group', () => {
    const digest = createHash('sha256').update('x').digest();
    const words = new Uint32Array(16);
    for (let i = 0; i < 8; i++) words[8 + i] = digest.readUInt32LE(i * 4);
    const made = blockKey(groupIndex(3), words, blockIndex(1));
    expect(made).toBe(`3-${digest.toString('hex')}`);
    expect(groupOfKey(made)).toBe(3);
    expect(digestHexOfKey(made)).toBe(digest.toString('hex'));
  });

  it('are distinguished from other texts', () => {
    expect(isBlockKey(key('a', 12))).toBe(true);
    for (const text of ['', '0-', `01-${'a'.repeat(64)}`, `0-${'A'.repeat(64)}`, `70000-${'a'.repeat(64)}`, '../x']) {
      expect(isBlockKey(text), text).toBe(false);
    }
  });
});

describe('a stored block', () => {
  const header = codec.encode(key('a'), payload);

  it('is verified with the header that was written for it', () => {
    expect(codec.verify(key('a'), header, payload, whole)).toBeUndefined();
    expect(payloadCrcOf(header)).toBe(payloadCrcOf(codec.encode(key('b'), payload)));
  });

  it('has the tag of its cache salt, and is the same block with any tag', () => {
    const tag = saltTagOf('tenant 1')!;
    expect(tag).toMatch(/^[0-9a-f]{16}$/);
    expect(saltTagOf('tenant 2')).not.toBe(tag);
    expect([saltTagOf(undefined), saltTagIn(header)]).toEqual([undefined, undefined]);
    const salted = codec.encode(key('a'), payload, undefined, tag);
    expect(saltTagIn(salted)).toBe(tag);
    expect(codec.verify(key('a'), salted, payload, whole)).toBeUndefined();
  });

  it('has the same header with another implementation of CRC32', () => {
    let bytes = 0;
    const quick = new BlockCodec(identity, (part) => {
      bytes += part.length;
      return crc32(part);
    });
    expect(quick.encode(key('a'), payload)).toEqual(header);
    expect(quick.verify(key('a'), header, payload, whole)).toBeUndefined();
    expect(bytes).toBe(2 * payload.length);
  });

  it('with a known CRC32 has it in its header, and payloads that changed since are corrupt', () => {
    const changed = payload.with(5, 0);
    const before = codec.encode(key('a'), changed, crc32(payload));
    expect(before).toEqual(header);
    expect(codec.verify(key('a'), before, changed, whole)).toBe('corrupt');
  });

  it.each([
    ['in two passes', new BlockCodec(identity)],
    [
      'in one pass',
      new BlockCodec(
        identity,
        Object.assign((): number => expect.fail('a second pass'), {
          copy: (into: Uint8Array, from: Uint8Array): number => {
            into.set(from);
            return crc32(from);
          },
        }),
      ),
    ],
  ])('is written and read %s: its copy has the same header, and its reasons are those of `verify`', (_, copying) => {
    const stored = new Uint8Array(whole);
    copying.encodeInto(key('a'), payload, stored);
    expect(stored).toEqual(new Uint8Array([...header, ...payload]));
    const into = new Uint8Array(payload.length);
    expect(copying.decode(key('a'), stored, whole, into)).toBeUndefined();
    expect(into).toEqual(payload);
    expect(copying.decode(key('b'), stored, whole, into)).toBe('wrongKey');
    expect(copying.decode(key('a'), stored, whole - 1, into)).toBe('truncated');
    expect(copying.decode(key('a'), stored, whole + 1, into)).toBe('oversized');
    expect(copying.decode(key('a'), stored.with(whole - 1, 0xee), whole, into)).toBe('corrupt');
    expect(copying.decode(key('a'), stored.with(30, 0xee), whole, into)).toBe('headerCorrupt');
  });

  it.each<[string, Partial<KvIdentity>]>([
    ['wrongModel', { fingerprint: 'another model' }],
    ['wrongDtype', { dtype: 'q8_0' }],
    ['wrongBlockSize', { groups: [{ blockSize: 8, layers: [0, 2] }, identity.groups[1]!] }],
    ['wrongLayers', { groups: [{ blockSize: 16, layers: [0, 1] }, identity.groups[1]!] }],
    ['wrongLayers', { groups: [{ blockSize: 16, layers: [0, 1, 2] }, identity.groups[1]!] }],
    ['wrongRank', { rank: 1 }],
    ['wrongRank', { worldSize: 1 }],
  ])('with another identity is %s', (reason, other) => {
    const theirs = new BlockCodec({ ...identity, ...other }).encode(key('a'), payload);
    expect(codec.verify(key('a'), theirs, payload, whole)).toBe(reason);
  });

  it('of a rank without layers of a group has an empty range of layers', () => {
    const none = { ...identity, groups: [{ blockSize: 16, layers: [] }, identity.groups[1]!] };
    const empty = new BlockCodec(none);
    expect(empty.verify(key('a'), empty.encode(key('a'), payload), payload, whole)).toBeUndefined();
    expect(codec.verify(key('a'), empty.encode(key('a'), payload), payload, whole)).toBe('wrongLayers');
  });

  it('with another group, key or length has that reason', () => {
    expect(codec.verify(key('a'), codec.encode(key('a', 1), payload), payload, whole)).toBe('wrongBlockSize');
    const sameSizes = { ...identity, groups: [identity.groups[0]!, { blockSize: 16, layers: [1, 3] }] };
    const other = new BlockCodec(sameSizes);
    expect(other.verify(key('a'), other.encode(key('a', 1), payload), payload, whole)).toBe('wrongGroup');
    expect(codec.verify(key('a'), codec.encode(key('b'), payload), payload, whole)).toBe('wrongKey');
    const shorter = new BlockCodec({ ...identity, blockBytes: 95 });
    const theirs = shorter.encode(key('a'), payload.subarray(1));
    expect(codec.verify(key('a'), theirs, payload, whole - 1)).toBe('wrongLength');
  });

  it('is a miss when any bit is flipped', () => {
    for (let bit = 0; bit < whole * 8; bit++) {
      const bytes = Buffer.concat([header, payload]);
      bytes[bit >> 3]! ^= 1 << (bit & 7);
      const reason = codec.verify(key('a'), bytes.subarray(0, headerBytes), bytes.subarray(headerBytes), whole);
      expect(missReasons, `bit ${bit}`).toContain(reason);
    }
  });

  it('is a miss when it is truncated or extended', () => {
    for (let length = 0; length < whole; length++) {
      const bytes = Buffer.concat([header, payload]).fill(0, length);
      const reason = codec.verify(key('a'), bytes.subarray(0, headerBytes), bytes.subarray(headerBytes), length);
      expect(reason, `${length} bytes`).toBe('truncated');
    }
    expect(codec.verify(key('a'), header, payload, whole + 1)).toBe('oversized');
  });

  it('is a miss when a range is overwritten with other bytes', () => {
    fc.assert(
      fc.property(fc.nat(whole - 1), fc.uint8Array({ minLength: 1, maxLength: 80 }), (start, noise) => {
        const before = Buffer.concat([header, payload]);
        const bytes = Buffer.from(before);
        bytes.set(noise.subarray(0, whole - start), start);
        const reason = codec.verify(key('a'), bytes.subarray(0, headerBytes), bytes.subarray(headerBytes), whole);
        expect(reason === undefined).toBe(bytes.equals(before));
      }),
      { numRuns: fuzzRuns(1000) },
    );
  });

  it('is verified only with the key, identity and bytes that it was written for', () => {
    const small = fc.integer({ min: 0, max: 2 });
    const drawn = fc.record({ fingerprint: small, dtype: small, rank: small, block: small, key: small, byte: small });
    fc.assert(
      fc.property(drawn, drawn, (a, b) => {
        const make = (d: typeof a) => {
          const groups = [{ blockSize: 16 << d.block, layers: [0] }];
          const made: KvIdentity = {
            ...identity,
            fingerprint: `f${d.fingerprint}`,
            dtype: `d${d.dtype}`,
            rank: d.rank,
            groups,
          };
          return { codec: new BlockCodec(made), key: key(`k${d.key}`), bytes: new Uint8Array(96).fill(d.byte) };
        };
        const [written, read] = [make(a), make(b)];
        const stored = written.codec.encode(written.key, written.bytes);
        const reason = read.codec.verify(read.key, stored, read.bytes, whole);
        expect(reason === undefined).toBe(JSON.stringify(a) === JSON.stringify(b));
      }),
      { numRuns: fuzzRuns(2000) },
    );
  });
});
