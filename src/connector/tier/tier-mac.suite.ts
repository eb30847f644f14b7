import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import type { BlockKey } from '../block-key.ts';
import type { MacKeys } from '../connector.ts';
import { BlockCodec, headerBytes, payloadCrcOf } from './block-header.ts';
import { storedBlockBytes, suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from './tier.suite.ts';
import type { TamperableTier } from './tier.ts';

/** Two stored blocks, which an attacker with access to the store has. */
export interface Seen {
  readonly own: Uint8Array;
  readonly other: Uint8Array;
}

const signal = new AbortController().signal;
export const fresh = (): Uint8Array => new Uint8Array(suiteBlockBytes).fill(0xee);
/** Keys for tests: any different bytes. */
export const suiteMacKey = (seed: number): Uint8Array => Uint8Array.from({ length: 32 }, (_, i) => i * 7 + seed);
export const keysOf = (...seeds: number[]): MacKeys => seeds.map(suiteMacKey);

/** A block whose CRC32s are right again after a change. */
function withRightCrcs(block: Uint8Array): Uint8Array {
  const view = new DataView(block.buffer, block.byteOffset, block.byteLength);
  view.setUint32(92, crc32(block.subarray(headerBytes)), true);
  view.setUint32(156, crc32(block.subarray(0, 156)), true);
  return block;
}

function changed(stored: Uint8Array, change: (bytes: Uint8Array) => void): Uint8Array {
  const bytes = stored.slice();
  change(bytes);
  return withRightCrcs(bytes);
}

/** A stored block of another writer. */
export function written(
  key: BlockKey,
  identity: typeof suiteIdentity,
  keys?: MacKeys,
  encrypts: boolean = false,
): Uint8Array {
  const stored = new Uint8Array(storedBlockBytes);
  new BlockCodec(identity, crc32, keys, encrypts).encodeInto(key, suiteBytes(key), stored);
  return stored;
}

/** Loads a block and compares its bytes. */
export async function readBack(tier: TamperableTier, key: BlockKey): Promise<void> {
  const into = fresh();
  expect(await tier.load(key, into, signal)).toBeUndefined();
  expect(into).toEqual(suiteBytes(key));
}

const [a, b] = [suiteKey('a'), suiteKey('b')];
export const anotherModel = { ...suiteIdentity, fingerprint: 'another model' };

/** An attacker reads and writes the store, and has no key. Each attack has the reason for which the block is refused. */
const attacks: readonly (readonly [what: string, reason: string, attack: (seen: Seen) => Uint8Array])[] = [
  ['a flipped bit', 'corrupt', ({ own }) => own.map((byte, i) => (i === headerBytes + 9 ? byte ^ 4 : byte))],
  ['a flipped bit, with right checksums', 'macWrong', ({ own }) => changed(own, (x) => (x[headerBytes + 9]! ^= 4))],
  ['a flipped bit of the MAC', 'macWrong', ({ own }) => changed(own, (x) => (x[140]! ^= 1))],
  ['a removed MAC', 'macMissing', ({ own }) => changed(own, (x) => x.fill(0, 136, 156))],
  ['a block without a key', 'macMissing', () => written(a, suiteIdentity)],
  ['a block with another key', 'macKeyUnknown', () => written(a, suiteIdentity, keysOf(9))],
  [
    'a block with another key and the id of the right key',
    'macWrong',
    ({ own }) => changed(written(a, suiteIdentity, keysOf(9)), (x) => x.set(own.subarray(136, 140), 136)),
  ],
  ['the file of another block', 'wrongKey', ({ other }) => other],
  [
    'the file of another block under this key',
    'macWrong',
    ({ own, other }) => changed(other, (x) => x.set(own.subarray(104, 136), 104)),
  ],
  [
    'the payload and the MAC of another block',
    'macWrong',
    ({ own, other }) => changed(other, (x) => x.set(own.subarray(0, 136))),
  ],
  ['the block of another model', 'wrongModel', () => written(a, anotherModel, keysOf(1))],
  [
    'the block of another model under the name of this model',
    'macWrong',
    ({ own }) => changed(written(a, anotherModel, keysOf(1)), (x) => x.set(own.subarray(16, 48), 16)),
  ],
  ['a truncated block', 'truncated', ({ own }) => own.subarray(0, storedBlockBytes - 1)],
  ['only the header', 'truncated', ({ own }) => own.subarray(0, headerBytes)],
];

/** The contract of tiers outside of the process with keys. `open`: a tier on one store, which is empty at first. */
export function tierMacSuite(
  name: string,
  newStore: () => Promise<{ open(macKeys?: MacKeys): Promise<TamperableTier> }>,
): void {
  const put = (tier: TamperableTier, key: BlockKey) => tier.store(key, suiteBytes(key), signal);

  describe(`${name} with keys`, () => {
    it('refuses every block that was changed or made without the key, and stores it again', async () => {
      const store = await newStore();
      const tier = await store.open(keysOf(1));
      await put(tier, a);
      await put(tier, b);
      let other: Uint8Array = fresh();
      await tier.tamper(b, (stored) => (other = stored.slice()));
      for (const [what, reason, attack] of attacks) {
        expect(await tier.tamper(a, (stored) => attack({ own: stored, other })), what).toBe(true);
        expect([what, await tier.load(a, fresh(), signal)]).toEqual([what, reason]);
        expect([what, await put(tier, a)]).toEqual([what, 'stored']);
        await readBack(tier, a);
      }
      await tier.close();
    });

    it('writes blocks that engines without keys load, and refuses theirs', async () => {
      const store = await newStore();
      const without = await store.open();
      await put(without, b);
      const tier = await store.open(keysOf(1));
      await put(tier, a);
      await readBack(tier, a);
      expect(await tier.load(b, fresh(), signal)).toBe('macMissing');
      expect(await put(tier, b)).toBe('stored');
      await readBack(tier, b);
      await readBack(without, a);
      await Promise.all([tier.close(), without.close()]);
    });

    it('loads blocks of each of its keys, and writes with the first', async () => {
      const store = await newStore();
      const [old, both, newest] = [
        await store.open(keysOf(1)),
        await store.open(keysOf(2, 1)),
        await store.open(keysOf(2)),
      ];
      await put(old, a);
      await readBack(both, a);
      await put(both, b);
      expect(await old.load(b, fresh(), signal)).toBe('macKeyUnknown');
      expect(await newest.load(a, fresh(), signal)).toBe('macKeyUnknown');
      await put(both, b);
      await readBack(newest, b);
      await Promise.all([old.close(), both.close(), newest.close()]);
    });

    it('writes the payload’s CRC32 from before the store, so that a change in memory is found', async () => {
      const store = await newStore();
      const tier = await store.open(keysOf(1));
      const bytes = suiteBytes(a);
      const payloadCrc = crc32(bytes);
      bytes[5]! ^= 1;
      await tier.store(a, bytes, signal, { payloadCrc });
      let header: Uint8Array = new Uint8Array(headerBytes);
      await tier.tamper(a, (stored) => (header = stored.slice()));
      expect(payloadCrcOf(header)).toBe(payloadCrc);
      expect(await tier.load(a, fresh(), signal)).toBe('corrupt');
      await tier.close();
    });
  });
}
