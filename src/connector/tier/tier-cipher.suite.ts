import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import type { BlockKey } from '../block-key.ts';
import type { MacKeys } from '../connector.ts';
import { saltTagOf } from '../salt-tag.ts';
import { headerBytes, isEncrypted } from './block-header.ts';
import { storedBlockBytes, suiteBytes, suiteIdentity, suiteKey } from './tier.suite.ts';
import type { TamperableTier, TierContext } from './tier.ts';
import { anotherModel, fresh, keysOf, readBack, type Seen, written } from './tier-mac.suite.ts';

const signal = new AbortController().signal;
const [a, b, c] = [suiteKey('a'), suiteKey('b'), suiteKey('c')];

/** A block after a change, with a right CRC32 of its header. */
function changed(stored: Uint8Array, change: (bytes: Uint8Array) => void): Uint8Array {
  const bytes = stored.slice();
  change(bytes);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  view.setUint32(156, crc32(bytes.subarray(0, 156)), true);
  return bytes;
}

const flip =
  (at: number) =>
  ({ own }: Seen): Uint8Array =>
    changed(own, (bytes) => (bytes[at]! ^= 1));

/** An attacker reads and writes the store, and has no key. Each attack has the reason for which the block is refused. */
const attacks: readonly (readonly [what: string, reason: string, attack: (seen: Seen) => Uint8Array])[] = [
  ['a flipped bit', 'decryptionFailed', flip(headerBytes + 9)],
  ['a flipped bit at the end', 'decryptionFailed', flip(storedBlockBytes - 1)],
  ['a flipped bit of the tag', 'decryptionFailed', flip(140)],
  ['a flipped bit of the nonce', 'decryptionFailed', flip(36)],
  ['a flipped bit of the encrypted CRC32', 'decryptionFailed', flip(92)],
  ['another cache salt', 'decryptionFailed', flip(56)],
  ['a flipped bit of the id of the key', 'encryptionKeyUnknown', flip(136)],
  ['a block without a key', 'notEncrypted', () => written(a, suiteIdentity)],
  ['a block with a right MAC', 'notEncrypted', () => written(a, suiteIdentity, keysOf(1))],
  ['a block that says that it is not encrypted', 'wrongModel', ({ own }) => changed(own, (bytes) => (bytes[8] = 1))],
  ['a block with another key', 'encryptionKeyUnknown', () => written(a, suiteIdentity, keysOf(9), true)],
  [
    'a block with another key and the id of the right key',
    'decryptionFailed',
    ({ own }) => changed(written(a, suiteIdentity, keysOf(9), true), (bytes) => bytes.set(own.subarray(136, 140), 136)),
  ],
  ['the file of another block', 'wrongKey', ({ other }) => other],
  [
    'the file of another block under this key',
    'decryptionFailed',
    ({ own, other }) => changed(other, (bytes) => bytes.set(own.subarray(104, 136), 104)),
  ],
  [
    'the payload and the tag of another block',
    'decryptionFailed',
    ({ own, other }) => changed(other, (bytes) => bytes.set(own.subarray(0, 140))),
  ],
  ['the block of another model', 'wrongModel', () => written(a, anotherModel, keysOf(1), true)],
  [
    'the block of another model under the name of this model',
    'decryptionFailed',
    ({ own }) => changed(written(a, anotherModel, keysOf(1), true), (bytes) => bytes.set(own.subarray(16, 36), 16)),
  ],
  ['a truncated block', 'truncated', ({ own }) => own.subarray(0, storedBlockBytes - 1)],
  ['a block of zeros', 'notABlock', ({ own }) => own.slice().fill(0)],
];

/** The contract of tiers outside of the process with encryption. `open`: a tier on one store, which is empty at first. */
export function tierCipherSuite(
  name: string,
  newStore: () => Promise<{ open(macKeys?: MacKeys, encrypts?: boolean): Promise<TamperableTier> }>,
): void {
  const put = (tier: TamperableTier, key: BlockKey, context?: TierContext) =>
    tier.store(key, suiteBytes(key), signal, context);
  const storedIn = async (tier: TamperableTier, key: BlockKey): Promise<Uint8Array> => {
    let found: Uint8Array = fresh();
    await tier.tamper(key, (stored) => (found = stored.slice()));
    return found;
  };

  describe(`${name} with encryption`, () => {
    it('stores no part of a block in the clear, and no two stores of a block have the same bytes', async () => {
      const tier = await (await newStore()).open(keysOf(1), true);
      const saltTag = saltTagOf('tenant 1');
      const stored: Buffer[] = [];
      for (const context of [{}, {}, { saltTag }, { payloadCrc: crc32(suiteBytes(a)), saltTag }]) {
        expect(await put(tier, a, context)).toBe('stored');
        await readBack(tier, a);
        stored.push(Buffer.from(await storedIn(tier, a)));
        await readBack(tier, a);
        await tier.delete(a);
      }
      const plain = Buffer.from(suiteBytes(a));
      for (const [i, block] of stored.entries()) {
        expect(isEncrypted(block)).toBe(true);
        for (let at = 0; at + 8 <= plain.length; at += 8)
          expect(block.includes(plain.subarray(at, at + 8))).toBe(false);
        expect(block.readUInt32LE(92)).not.toBe(crc32(plain));
        for (const other of stored.slice(i + 1))
          for (const [start, end] of [
            [36, 48],
            [140, 156],
            [headerBytes, headerBytes + 64],
          ])
            expect(block.subarray(start, end).equals(other.subarray(start, end))).toBe(false);
      }
      await tier.close();
    });

    it('refuses every block that was changed or made without the key, and stores it again', async () => {
      const tier = await (await newStore()).open(keysOf(1), true);
      await put(tier, a);
      await put(tier, b);
      const other = await storedIn(tier, b);
      for (const [what, reason, attack] of attacks) {
        expect(await tier.tamper(a, (stored) => attack({ own: stored, other })), what).toBe(true);
        expect([what, await tier.load(a, fresh(), signal)]).toEqual([what, reason]);
        expect([what, await put(tier, a)]).toEqual([what, 'stored']);
        await readBack(tier, a);
      }
      await tier.close();
    });

    it('loads blocks of each of its keys, writes with the first, and an engine with keys alone loads them', async () => {
      const store = await newStore();
      const [old, both, newest, keysAlone, none] = [
        await store.open(keysOf(1), true),
        await store.open(keysOf(2, 1), true),
        await store.open(keysOf(2), true),
        await store.open(keysOf(2, 1)),
        await store.open(),
      ];
      await put(old, a);
      await readBack(both, a);
      await readBack(keysAlone, a);
      await put(both, b);
      await readBack(keysAlone, b);
      expect(await old.load(b, fresh(), signal)).toBe('encryptionKeyUnknown');
      await put(both, b);
      await readBack(newest, b);
      expect(await none.load(b, fresh(), signal)).toBe('encryptionKeyUnknown');
      await put(keysAlone, c);
      expect(await newest.load(c, fresh(), signal)).toBe('notEncrypted');
      expect(await put(newest, c)).toBe('stored');
      await readBack(newest, c);
      await Promise.all([old, both, newest, keysAlone, none].map((tier) => tier.close()));
    });

    it('finds a change in memory between the pool and the store', async () => {
      const tier = await (await newStore()).open(keysOf(1), true);
      const bytes = suiteBytes(a);
      const payloadCrc = crc32(bytes);
      bytes[5]! ^= 1;
      await tier.store(a, bytes, signal, { payloadCrc });
      expect(await tier.load(a, fresh(), signal)).toBe('corrupt');
      await tier.close();
    });

    it('reads and writes no memory after a call has ended, also if it was aborted', async () => {
      const tier = await (await newStore()).open(keysOf(1), true);
      await put(tier, a);
      const aborts = Array.from({ length: 12 }, () => new AbortController());
      const calls = aborts.map(async (abort, i) => {
        const [key, bytes, into] = [suiteKey(`new ${i}`), suiteBytes(suiteKey(`new ${i}`)), fresh()];
        await tier.store(key, bytes, abort.signal).catch(() => undefined);
        bytes.fill(0);
        await tier.load(a, into, abort.signal).catch(() => undefined);
        into.fill(7);
        return { key, into };
      });
      for (const abort of aborts) {
        await new Promise((resolve) => setImmediate(resolve));
        abort.abort(new Error('aborted'));
      }
      for (const { key, into } of await Promise.all(calls)) {
        await readBack(tier, a);
        expect(into.every((byte) => byte === 7)).toBe(true);
        const found = fresh();
        const reason = await tier.load(key, found, signal);
        if (reason === undefined) expect(found).toEqual(suiteBytes(key));
        else expect(reason).toBe('missing');
      }
      await tier.close();
    });
  });
}
