import { createHash } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { Prng } from '../../base/prng.ts';
import type { BlockKey } from '../block-key.ts';
import type { KvIdentity } from '../connector.ts';
import type { LoadFailureReason } from '../reasons.ts';
import { saltTagOf, writeSaltTag } from '../salt-tag.ts';
import { headerBytes, saltTagAt, saltTagIn } from './block-header.ts';
import type { TamperableTier, Tier } from './tier.ts';

export const suiteBlockBytes = 4096;

export const suiteIdentity: KvIdentity = {
  fingerprint: 'fingerprint of the model',
  modelName: 'Tiny/Model 1.0',
  dtype: 'f16',
  rank: 0,
  worldSize: 1,
  blockBytes: suiteBlockBytes,
  groups: [
    { blockSize: 16, layers: [0, 1] },
    { blockSize: 16, layers: [2, 3] },
  ],
};

export const suiteKey = (name: string | number, group = 0): BlockKey =>
  `${group}-${createHash('sha256').update(`${name}`).digest('hex')}` as BlockKey;

/** The bytes that belong to a key: every byte depends on it. */
export function suiteBytes(key: BlockKey, length = suiteBlockBytes): Uint8Array {
  const prng = new Prng(Number.parseInt(key.slice(-8), 16));
  const words = new Uint32Array(Math.ceil(length / 4));
  for (let i = 0; i < words.length; i++) words[i] = prng.uint32();
  return new Uint8Array(words.buffer, 0, length);
}

const open = new AbortController().signal;
// Many calls of a test share it.
setMaxListeners(0, open);
const fresh = (): Uint8Array => new Uint8Array(suiteBlockBytes).fill(0xee);
export const storedBlockBytes = headerBytes + suiteBlockBytes;

export interface TierUnderTest {
  readonly tier: TamperableTier;
  /** Another tier on the same store, as in another process. Undefined if the tier cannot share its store. */
  reopen(identity: KvIdentity): Promise<TamperableTier | undefined>;
}

export interface TierSuiteOptions {
  /** Default true. False: only the store itself limits its bytes, so the tier ignores `maxBytes` and evicts no block. */
  readonly isBounded?: boolean;
  /** Default false. True: the tier encrypts, so changed payloads have another reason. */
  readonly isEncrypted?: boolean;
  /** How many loads gave no block for this reason. Default: the counter of the same name. */
  readonly missCount?: (tier: Tier, reason: LoadFailureReason) => number | undefined;
}

/** The contract of every tier. `make` opens an empty tier of `maxBytes`. */
export function tierSuite(
  name: string,
  make: (maxBytes: number) => Promise<TierUnderTest>,
  {
    isBounded = true,
    isEncrypted = false,
    missCount = (tier, reason) => tier.counters()[reason],
  }: TierSuiteOptions = {},
): void {
  const begin = async (blocks = 100) => (await make(blocks * storedBlockBytes)).tier;
  const put = async (tier: TamperableTier, key: BlockKey) => tier.store(key, suiteBytes(key), open);

  describe(`${name}: the tier's contract`, () => {
    it('loads a stored block into the given memory only', async () => {
      const tier = await begin();
      const [a, b] = [suiteKey('a'), suiteKey('a', 1)];
      expect(await put(tier, a)).toBe('stored');
      expect(await put(tier, b)).toBe('stored');
      const pool = new Uint8Array(suiteBlockBytes * 3).fill(0xee);
      const block = pool.subarray(suiteBlockBytes, suiteBlockBytes * 2);
      expect(await tier.load(a, block, open)).toBeUndefined();
      expect(block).toEqual(suiteBytes(a));
      expect(pool.subarray(0, suiteBlockBytes)).toEqual(fresh());
      expect(pool.subarray(suiteBlockBytes * 2)).toEqual(fresh());
      expect(await tier.load(b, block, open)).toBeUndefined();
      expect(block).toEqual(suiteBytes(b));
      await tier.close();
    });

    it('stores a copy, so that the block in the pool may change afterwards', async () => {
      const tier = await begin();
      const key = suiteKey('a');
      const bytes = suiteBytes(key);
      await tier.store(key, bytes, open);
      bytes.fill(0);
      const block = fresh();
      expect(await tier.load(key, block, open)).toBeUndefined();
      expect(block).toEqual(suiteBytes(key));
      await tier.close();
    });

    it('writes the tag of the cache salt into the header, also if the CRC32 is known', async () => {
      const tier = await begin();
      const saltTag = saltTagOf('tenant 1')!;
      for (const context of [{ saltTag }, { saltTag, payloadCrc: crc32(suiteBytes(suiteKey('a'))) }, undefined]) {
        await tier.store(suiteKey('a'), suiteBytes(suiteKey('a')), open, context);
        let found: string | undefined;
        await tier.tamper(suiteKey('a'), (stored) => {
          found = saltTagIn(stored);
          return stored;
        });
        expect(found).toBe(context?.saltTag);
        expect(await tier.load(suiteKey('a'), fresh(), open)).toBeUndefined();
        await tier.delete(suiteKey('a'));
      }
      await tier.close();
    });

    it('finds its stored blocks, and loads of missing blocks answer `missing`', async () => {
      const tier = await begin();
      await put(tier, suiteKey(1));
      await put(tier, suiteKey(3));
      expect(
        await tier.has(
          [0, 1, 2, 3].map((i) => suiteKey(i)),
          open,
        ),
      ).toEqual([false, true, false, true]);
      expect(await tier.has([], open)).toEqual([]);
      expect(await tier.load(suiteKey(2), fresh(), open)).toBe('missing');
      await tier.close();
    });

    it('stores a key once', async () => {
      const tier = await begin();
      expect(await put(tier, suiteKey('a'))).toBe('stored');
      expect(await put(tier, suiteKey('a'))).toBe('alreadyStored');
      const both = await Promise.all([put(tier, suiteKey('b')), put(tier, suiteKey('b'))]);
      expect(new Set(both)).toEqual(new Set(['alreadyStored', 'stored']));
      await tier.close();
    });

    it('removes deleted blocks, and a delete of a missing block has no effect', async () => {
      const tier = await begin();
      await put(tier, suiteKey('a'));
      await tier.delete(suiteKey('a'));
      await tier.delete(suiteKey('a'));
      expect(await tier.has([suiteKey('a')], open)).toEqual([false]);
      expect(await tier.load(suiteKey('a'), fresh(), open)).toBe('missing');
      expect(await put(tier, suiteKey('a'))).toBe('stored');
      await tier.close();
    });

    it('clears the blocks of a salt, old ones, or all, if it can', async () => {
      const tier = await begin();
      if (tier.clear !== undefined) {
        const keys = ['a', 'b', 'c'].map((name) => suiteKey(name));
        for (const key of keys) await put(tier, key);
        const saltTag = saltTagOf('a tenant')!;
        await tier.tamper(keys[1]!, (stored) => {
          const tagged = stored.slice();
          writeSaltTag(saltTag, tagged, saltTagAt);
          return tagged;
        });
        expect(await tier.clear({ saltTag: saltTagOf('another')! }, open)).toMatchObject({ blocks: 0, failed: 0 });
        expect(await tier.clear({ saltTag }, open)).toEqual({ blocks: 1, bytes: storedBlockBytes, failed: 0 });
        expect(await tier.has(keys, open)).toEqual([true, false, true]);
        expect(await tier.clear({ beforeMs: Date.now() - 3_600_000 }, open)).toMatchObject({ blocks: 0, failed: 0 });
        const block = fresh();
        const [loading, cleared] = [tier.load(keys[0]!, block, open), tier.clear({}, open)];
        expect(await cleared).toMatchObject({ blocks: 2, failed: 0 });
        const reason = await loading;
        expect([undefined, 'missing']).toContain(reason);
        if (reason === undefined) expect(block).toEqual(suiteBytes(keys[0]!));
        expect(await tier.has(keys, open)).toEqual([false, false, false]);
        expect(await put(tier, keys[1]!)).toBe('stored');
        expect(await tier.load(keys[1]!, block, open)).toBeUndefined();
      }
      await tier.close();
    });

    it.each<[LoadFailureReason, (stored: Uint8Array) => Uint8Array]>([
      ['truncated', (stored) => stored.subarray(0, stored.length - 1)],
      ['truncated', (stored) => stored.subarray(0, headerBytes + 5)],
      ['truncated', (stored) => stored.subarray(0, 7)],
      ['truncated', () => new Uint8Array(0)],
      ['oversized', (stored) => Buffer.concat([stored, Buffer.from([0])])],
      [isEncrypted ? 'decryptionFailed' : 'corrupt', (stored) => flip(stored, headerBytes + 17)],
      ['headerCorrupt', (stored) => flip(stored, 100)],
      ['formatVersion', (stored) => flip(stored, 8)],
      ['notABlock', (stored) => flip(stored, 0)],
      ['notABlock', (stored) => stored.slice().fill(0x41)],
    ])('a corrupt block is a miss (%s) and is removed', async (reason, corrupt) => {
      const tier = await begin();
      const key = suiteKey('a');
      await put(tier, key);
      expect(await tier.tamper(key, corrupt)).toBe(true);
      expect(await tier.load(key, fresh(), open)).toBe(reason);
      expect(await tier.has([key], open)).toEqual([false]);
      expect(missCount(tier, reason)).toBe(1);
      expect(await put(tier, key)).toBe('stored');
      const block = fresh();
      expect(await tier.load(key, block, open)).toBeUndefined();
      expect(block).toEqual(suiteBytes(key));
      await tier.close();
    });

    it('a block that is stored under another key is a miss', async () => {
      const tier = await begin();
      const [a, b] = [suiteKey('a'), suiteKey('b')];
      await put(tier, a);
      await put(tier, b);
      let other = new Uint8Array(0);
      await tier.tamper(a, (stored) => (other = stored.slice()));
      await tier.tamper(b, () => other);
      expect(await tier.load(b, fresh(), open)).toBe('wrongKey');
      await tier.close();
    });

    it('a tier of another identity never loads these blocks', async () => {
      const others: readonly Partial<KvIdentity>[] = [
        { fingerprint: 'another model' },
        { dtype: 'q8_0' },
        { rank: 1, worldSize: 2 },
        { groups: suiteIdentity.groups.map((group) => ({ ...group, blockSize: 32 })) },
        { groups: suiteIdentity.groups.map((group) => ({ ...group, layers: [7, 8] })) },
      ];
      for (const other of others) {
        const under = await make(100 * storedBlockBytes);
        await put(under.tier, suiteKey('a'));
        const foreign = await under.reopen({ ...suiteIdentity, ...other });
        if (foreign === undefined) continue;
        expect(await foreign.load(suiteKey('a'), fresh(), open), JSON.stringify(other)).toBeDefined();
        await foreign.close();
        await under.tier.close();
      }
    });

    it('rejects loads and stores with the reason of an aborted signal', async () => {
      const tier = await begin();
      await put(tier, suiteKey('a'));
      const aborted = AbortSignal.abort(new Error('not wanted any more'));
      await expect(tier.load(suiteKey('a'), fresh(), aborted)).rejects.toThrow('not wanted any more');
      await expect(tier.store(suiteKey('b'), suiteBytes(suiteKey('b')), aborted)).rejects.toThrow('not wanted');
      expect(await tier.has([suiteKey('a'), suiteKey('b')], open)).toEqual([true, false]);
      await tier.close();
    });

    it('answers an aborted look-up with the known answers and does not reject', async () => {
      const tier = await begin();
      const keys = [suiteKey('a'), suiteKey('b')];
      await put(tier, keys[0]!);
      expect(await tier.has(keys, AbortSignal.abort())).toEqual([undefined, undefined]);
      const controller = new AbortController();
      const asked = tier.has(keys, controller.signal);
      controller.abort();
      for (const [i, answer] of (await asked).entries()) expect([undefined, i === 0]).toContain(answer);
      expect(await tier.has(keys, open)).toEqual([true, false]);
      await tier.close();
    });

    it('an abort during a store leaves the whole block or none', async () => {
      const tier = await begin();
      for (let i = 0; i < 10; i++) {
        const key = suiteKey(i);
        const controller = new AbortController();
        const storing = tier.store(key, suiteBytes(key), controller.signal);
        for (let turn = 0; turn < i; turn++) await new Promise((resolve) => setImmediate(resolve));
        controller.abort();
        const stored = await storing.catch(() => 'aborted');
        const block = fresh();
        const reason = await tier.load(key, block, open);
        if (stored === 'stored') expect(reason).toBeUndefined();
        expect([undefined, 'missing']).toContain(reason);
        if (reason === undefined) expect(block).toEqual(suiteBytes(key));
      }
      await tier.close();
    });

    it('`close` waits for calls under way, and later calls are refused', async () => {
      const tier = await begin();
      const key = suiteKey('a');
      const storing = put(tier, key);
      await tier.close();
      await tier.close();
      expect(await storing).toBe('stored');
      for (const call of [tier.has([key], open), tier.load(key, fresh(), open), put(tier, key), tier.delete(key)])
        await expect(call).rejects.toMatchObject({ code: 'KVASIR_TIER_CLOSED' });
    });
  });

  const bounded = (): void => {
    it('stays within its bytes by evicting the least recently used blocks', async () => {
      const tier = await begin(3);
      for (const i of [1, 2, 3]) await put(tier, suiteKey(i));
      await tier.load(suiteKey(1), fresh(), open);
      await put(tier, suiteKey(4));
      expect(
        await tier.has(
          [1, 2, 3, 4].map((i) => suiteKey(i)),
          open,
        ),
      ).toEqual([true, false, true, true]);
      expect(tier.takeEvicted()).toEqual([suiteKey(2)]);
      expect(tier.takeEvicted()).toEqual([]);
      for (let i = 10; i < 40; i++) await put(tier, suiteKey(i));
      expect(tier.levels?.().bytes).toBe(3 * storedBlockBytes);
      await tier.close();
    });

    it('answers `full` to a block that is larger than all its bytes', async () => {
      const { tier } = await make(storedBlockBytes - 1);
      expect(await put(tier, suiteKey('a'))).toBe('full');
      expect(await tier.has([suiteKey('a')], open)).toEqual([false]);
      await tier.close();
    });

    it('stores and loads many at once within its bytes', async () => {
      const tier = await begin(8);
      const keys = Array.from({ length: 24 }, (_, i) => suiteKey(i));
      const answers = await Promise.all(keys.map((key) => put(tier, key)));
      expect(answers.filter((answer) => answer === 'stored').length).toBeGreaterThanOrEqual(8);
      expect(tier.levels?.().bytes).toBeLessThanOrEqual(8 * storedBlockBytes);
      const blocks = keys.map(fresh);
      const reasons = await Promise.all(keys.map((key, i) => tier.load(key, blocks[i]!, open)));
      for (const [i, reason] of reasons.entries()) {
        expect([undefined, 'missing']).toContain(reason);
        if (reason === undefined) expect(blocks[i]).toEqual(suiteBytes(keys[i]!));
      }
      expect(reasons.filter((reason) => reason === undefined).length).toBe(tier.levels?.().blocks);
      await tier.close();
    });
  };

  const unbounded = (): void => {
    it('stores and loads many at once, and evicts none', async () => {
      const tier = await begin();
      const keys = Array.from({ length: 24 }, (_, i) => suiteKey(i));
      expect(await Promise.all(keys.map((key) => put(tier, key)))).toEqual(keys.map(() => 'stored'));
      const blocks = keys.map(fresh);
      const reasons = await Promise.all(keys.map((key, i) => tier.load(key, blocks[i]!, open)));
      expect(reasons).toEqual(keys.map(() => undefined));
      expect(blocks).toEqual(keys.map((key) => suiteBytes(key)));
      expect(tier.takeEvicted()).toEqual([]);
      await tier.close();
    });
  };

  describe(`${name}: the tier's bytes`, isBounded ? bounded : unbounded);
}

function flip(stored: Uint8Array, at: number): Uint8Array {
  const bytes = stored.slice();
  bytes[at]! ^= 0x10;
  return bytes;
}
