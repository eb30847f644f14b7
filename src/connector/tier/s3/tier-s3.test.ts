import { setMaxListeners } from 'node:events';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { isLongForm } from '../../../../test/support/long-form.ts';
import { needs } from '../../../../test/support/needs.ts';
import { hasS3Server, noS3Server, S3Server, s3Credentials } from '../../../../test/support/s3-server.ts';
import type { BlockKey } from '../../block-key.ts';
import type { KvIdentity } from '../../connector.ts';
import { BlockCodec } from '../block-header.ts';
import { storedBlockBytes, suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey, tierSuite } from '../tier.suite.ts';
import { tierCipherSuite } from '../tier-cipher.suite.ts';
import { suiteMacKey, tierMacSuite } from '../tier-mac.suite.ts';
import { objectNameOf, shortKeyOf } from './object-name.ts';
import { sdkPackage, sdkVersion } from './s3-bucket.ts';
import { S3Tier, type S3TierOptions } from './tier-s3.ts';

const server = hasS3Server ? await S3Server.start('blocks') : undefined;
afterAll(() => server?.stop());
const s3 = needs(hasS3Server, noS3Server);
const codec = new BlockCodec(suiteIdentity);
let serial = 0;
const newPrefix = (): string => `test/${serial++}`;
const never = new AbortController().signal;
// Many calls of a test share it.
setMaxListeners(0, never);
const block = (): Uint8Array => new Uint8Array(suiteBlockBytes).fill(0xee);
const open = (prefix: string, options: Partial<S3TierOptions> = {}): Promise<S3Tier> =>
  S3Tier.open({
    bucket: 'blocks',
    endpoint: server!.endpoint,
    credentials: s3Credentials,
    prefix,
    identity: suiteIdentity,
    ...options,
  });
const put = (tier: S3Tier, key: BlockKey) => tier.store(key, suiteBytes(key), never);
const keysOf = (count: number, from = 0): BlockKey[] => Array.from({ length: count }, (_, i) => suiteKey(from + i));
const objectsIn = (prefix: string): string[] =>
  readdirSync(join(server!.pathOf('blocks'), prefix), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.endsWith('.json'))
    .map((entry) => join(entry.parentPath, entry.name));

async function expectLoads(tier: S3Tier, keys: readonly BlockKey[]): Promise<void> {
  const blocks = keys.map(block);
  expect(await Promise.all(keys.map((key, i) => tier.load(key, blocks[i]!, never)))).toEqual(keys.map(() => undefined));
  for (const [i, key] of keys.entries()) expect(blocks[i]).toEqual(suiteBytes(key));
  tier.checkInvariants();
}

describe('contracts', s3, () => {
  tierSuite('S3Tier', async (maxBytes) => {
    const prefix = newPrefix();
    return { tier: await open(prefix, { maxBytes }), reopen: (identity) => open(prefix, { identity }) };
  });
  tierSuite(
    'S3Tier without maxBytes',
    async () => {
      const prefix = newPrefix();
      return { tier: await open(prefix), reopen: (identity) => open(prefix, { identity }) };
    },
    { isBounded: false },
  );
  if (isLongForm)
    tierSuite(
      'S3Tier with encryption',
      async (maxBytes) => {
        const [prefix, ours] = [newPrefix(), { maxBytes, macKeys: [suiteMacKey(1)], encrypts: true }];
        return { tier: await open(prefix, ours), reopen: (identity) => open(prefix, { ...ours, identity }) };
      },
      { isEncrypted: true },
    );
  tierMacSuite('S3Tier', async () => {
    const prefix = newPrefix();
    return { open: (macKeys) => open(prefix, { macKeys }) };
  });
  tierCipherSuite('S3Tier', async () => {
    const prefix = newPrefix();
    return { open: (macKeys, encrypts) => open(prefix, { macKeys, encrypts }) };
  });
});

describe('a bucket of blocks', s3, () => {
  it('has one object for blocks that are stored at the same time, and loads of neighbours share a request', async () => {
    const prefix = newPrefix();
    const tier = await open(prefix);
    const keys = keysOf(40);
    expect(await Promise.all(keys.map((key) => put(tier, key)))).toEqual(keys.map(() => 'stored'));
    expect(objectsIn(prefix)).toHaveLength(1);
    expect(tier.counters()).toMatchObject({ puts: 1, stored: 40 });
    await expectLoads(tier, keys);
    expect(tier.counters().gets).toBe(1);
    expect(tier.levels()).toEqual({ objects: 1, blocks: 40, bytes: 40 * storedBlockBytes });
    await tier.close();
  });

  it('has several objects if the blocks are larger than packBytes together', async () => {
    const prefix = newPrefix();
    const tier = await open(prefix, { packBytes: 10 * storedBlockBytes });
    const keys = keysOf(25);
    await Promise.all(keys.map((key) => put(tier, key)));
    expect(objectsIn(prefix)).toHaveLength(3);
    await expectLoads(tier, keys.toReversed());
    await tier.close();
  });

  it('has names that list its blocks in the folder of the model and the rank, and a record for people', async () => {
    const prefix = newPrefix();
    const tier = await open(prefix);
    await put(tier, suiteKey('a'));
    const [file] = objectsIn(prefix);
    expect(file).toMatch(/\/test\/\d+\/kv-[0-9a-f]{32}\/rank0of1\/[0-9a-f]{12}-[\w-]{8}-[\w-]{12}$/);
    const recordFile = `${file!.slice(0, file!.lastIndexOf('/'))}.json`;
    // It is written in the background, until the tier is closed.
    await vi.waitUntil(() => existsSync(recordFile) && readFileSync(recordFile, 'utf8').endsWith('}\n'), {
      timeout: 30_000,
    });
    await tier.close();
    const record = JSON.parse(readFileSync(recordFile, 'utf8'));
    expect(record).toMatchObject({ model: 'Tiny/Model 1.0', dtype: 'f16', worldSize: 1, blockBytes: suiteBlockBytes });
  });

  it('is found by a later tier', async () => {
    const prefix = newPrefix();
    const first = await open(prefix);
    const keys = keysOf(10);
    await Promise.all(keys.map((key) => put(first, key)));
    await first.close();
    const second = await open(prefix);
    expect(second.levels().blocks).toBe(10);
    expect(await second.has([...keys, suiteKey('other')], never)).toEqual([...keys.map(() => true), false]);
    await expectLoads(second, keys);
    await second.close();
  });

  it('is shared: a tier finds and loads blocks that another stored after both were opened', async () => {
    const prefix = newPrefix();
    const [a, b] = [await open(prefix), await open(prefix, { refreshMs: 0 })];
    for (let i = 0; i < 5; i++) {
      await put(a, suiteKey(i));
      expect(await b.has([suiteKey(i)], never)).toEqual([true]);
      await expectLoads(b, [suiteKey(i)]);
    }
    // A load asks the server, also if the last listing is new.
    await put(b, suiteKey('of b'));
    await expectLoads(a, [suiteKey('of b')]);
    // A store lists new objects first.
    await put(a, suiteKey('of a'));
    expect(await put(b, suiteKey('of a'))).toBe('alreadyStored');
    await a.close();
    await b.close();
  });

  it('of another model, layout or rank is not found', async () => {
    const prefix = newPrefix();
    const ours = await open(prefix);
    await put(ours, suiteKey('a'));
    const others: Partial<KvIdentity>[] = [
      { fingerprint: 'another model' },
      { dtype: 'q8_0' },
      { rank: 1, worldSize: 2 },
      { groups: suiteIdentity.groups.map((group) => ({ ...group, blockSize: 32 })) },
    ];
    for (const other of others) {
      const theirs = await open(prefix, { identity: { ...suiteIdentity, ...other } });
      expect(await theirs.has([suiteKey('a')], never)).toEqual([false]);
      expect(await theirs.load(suiteKey('a'), block(), never)).toBe('missing');
      await theirs.close();
    }
    await ours.close();
  });

  it('has blocks of the same digest in several groups', async () => {
    const tier = await open(newPrefix());
    const keys = [suiteKey('a', 0), suiteKey('a', 1)];
    await Promise.all(keys.map((key) => put(tier, key)));
    await expectLoads(tier, keys);
    await tier.close();
  });

  it('lists all pages', async () => {
    const prefix = newPrefix();
    const tier = await open(prefix);
    await put(tier, suiteKey('a'));
    await tier.close();
    const folder = join(objectsIn(prefix)[0]!, '..');
    const keys = keysOf(1009);
    for (const [i, key] of keys.entries()) {
      const name = objectNameOf(Date.now() - i, 'by-files', [shortKeyOf(key)]);
      writeFileSync(join(folder, name), Buffer.concat([codec.encode(key, suiteBytes(key)), suiteBytes(key)]));
    }
    const other = await open(prefix);
    expect(other.levels()).toMatchObject({ objects: 1010, blocks: 1010 });
    expect(other.counters().lists).toBe(2);
    await expectLoads(other, [keys[0]!, keys[1008]!]);
    await other.close();
  });

  it('finds the objects of a server whose clock is wrong', async () => {
    const prefix = newPrefix();
    const hourMs = 3_600_000;
    const reader = await open(prefix, { refreshMs: 0 });
    for (const offsetMs of [-hourMs, hourMs, -hourMs]) {
      const writer = await open(prefix, { wallNowMs: () => Date.now() + offsetMs });
      const key = suiteKey(`${offsetMs} ${serial++}`);
      await put(writer, key);
      expect(await reader.has([key], never)).toEqual([true]);
      await writer.close();
    }
    await reader.close();
  });

  it('keeps the other blocks of an object when one is deleted, for all tiers', async () => {
    const prefix = newPrefix();
    const [a, b] = [await open(prefix), await open(prefix, { refreshMs: 0 })];
    const keys = keysOf(5);
    await Promise.all(keys.map((key) => put(a, key)));
    await expectLoads(b, keys);
    await a.delete(keys[2]!);
    expect(await a.has(keys, never)).toEqual([true, true, false, true, true]);
    await expectLoads(
      a,
      keys.filter((_, i) => i !== 2),
    );
    expect(await b.load(keys[2]!, block(), never)).toBe('missing');
    await b.has([suiteKey('unknown')], never);
    await expectLoads(
      b,
      keys.filter((_, i) => i !== 2),
    );
    await a.close();
    await b.close();
  });

  it('with one corrupt block of an object still gives the others, and the block can be stored again', async () => {
    const prefix = newPrefix();
    const tier = await open(prefix);
    const keys = keysOf(5);
    await Promise.all(keys.map((key) => put(tier, key)));
    const [file] = objectsIn(prefix);
    damage(file!, (bytes) => {
      bytes[2 * storedBlockBytes + 500]! ^= 1;
      return bytes;
    });
    const blocks = keys.map(block);
    expect(await Promise.all(keys.map((key, i) => tier.load(key, blocks[i]!, never)))).toEqual([
      undefined,
      undefined,
      'corrupt',
      undefined,
      undefined,
    ]);
    expect(await tier.has(keys, never)).toEqual([true, true, false, true, true]);
    expect(await put(tier, keys[2]!)).toBe('stored');
    await expectLoads(tier, keys);
    const other = await open(prefix);
    await expectLoads(other, keys);
    await other.close();
    await tier.close();
  });

  it('with a truncated object gives the blocks before the end', async () => {
    const prefix = newPrefix();
    const tier = await open(prefix);
    const keys = keysOf(5);
    await Promise.all(keys.map((key) => put(tier, key)));
    damage(objectsIn(prefix)[0]!, (bytes) => bytes.subarray(0, 2 * storedBlockBytes + 300));
    const reasons = await Promise.all(keys.map((key) => tier.load(key, block(), never)));
    expect(reasons).toEqual([undefined, undefined, 'truncated', 'truncated', 'truncated']);
    // Without its neighbours, the range of the last block begins after the end of the object.
    const other = await open(prefix);
    expect(await other.load(keys[4]!, block(), never)).toBe('truncated');
    await other.close();
    await tier.close();
  });

  it("with an object that has another object's content has only misses", async () => {
    const prefix = newPrefix();
    const tier = await open(prefix);
    await Promise.all(keysOf(3).map((key) => put(tier, key)));
    await Promise.all(keysOf(3, 10).map((key) => put(tier, key)));
    const [a, b] = objectsIn(prefix);
    const others = readFileSync(b!);
    damage(a!, () => others);
    const reasons = await Promise.all(
      [...keysOf(3), ...keysOf(3, 10)].map(async (key) => (await tier.load(key, block(), never)) ?? 'loaded'),
    );
    expect(reasons.toSorted((a, b) => (a < b ? -1 : 1))).toEqual([
      'loaded',
      'loaded',
      'loaded',
      'wrongKey',
      'wrongKey',
      'wrongKey',
    ]);
    await tier.close();
  });

  it('forgets an object that was deleted by others', async () => {
    const prefix = newPrefix();
    const [a, b] = [await open(prefix), await open(prefix)];
    const keys = keysOf(3);
    await Promise.all(keys.map((key) => put(a, key)));
    await expectLoads(b, keys.slice(0, 1));
    for (const key of keys) await a.delete(key);
    expect(await b.load(keys[0]!, block(), never)).toBe('missing');
    expect(await b.has(keys, never)).toEqual([false, false, false]);
    expect(b.levels()).toEqual({ objects: 0, blocks: 0, bytes: 0 });
    expect(await put(b, keys[0]!)).toBe('stored');
    await expectLoads(b, keys.slice(0, 1));
    await a.close();
    await b.close();
  });

  it('may have other objects too', async () => {
    const prefix = newPrefix();
    const tier = await open(prefix);
    await put(tier, suiteKey('a'));
    const [file] = objectsIn(prefix);
    writeFileSync(join(file!, '..', 'notes'), 'not a block');
    writeFileSync(join(file!, '..', '000000000000-aaaaaaaa-short'), 'not a block');
    const other = await open(prefix);
    expect(other.levels()).toMatchObject({ objects: 1, blocks: 1 });
    await expectLoads(other, [suiteKey('a')]);
    await other.close();
    await tier.close();
  });
});

describe('settings of S3Tier', s3, () => {
  it.each<[string, Partial<S3TierOptions>, string]>([
    ['a bucket that does not exist', { bucket: 'nobody-has-this' }, 'NoSuchBucket (HTTP 404)'],
    ['an unknown access key', { credentials: { accessKeyId: 'x', secretAccessKey: 'y' } }, 'valid credentials'],
    [
      'a wrong secret',
      { credentials: { ...s3Credentials, secretAccessKey: 'wrong-secret' } },
      'SignatureDoesNotMatch (HTTP 403)',
    ],
    ['a bucket name that no server allows', { bucket: 'A b' }, 'lower-case letters'],
    ['an endpoint that is not a URL', { endpoint: 'localhost:9000' }, 'http:// or https://'],
    ['a password in the endpoint', { endpoint: 'http://user:hunter2@localhost:1' }, 'URLs are logged'],
    ['a prefix with empty parts', { prefix: 'a//b' }, 'the prefix'],
    ['a prefix that leaves no room for a block', { prefix: 'a'.repeat(1000) }, 'too long'],
  ])('%s is an error that says what to do, without secrets', async (_, options, text) => {
    const error = await open(newPrefix(), options).then(
      () => undefined,
      (thrown: unknown) => thrown as Error,
    );
    expect(error).toMatchObject({ code: 'KVASIR_BUCKET_UNUSABLE' });
    expect(error?.message).toContain(text);
    for (const secret of ['hunter2', 'wrong-secret', s3Credentials.secretAccessKey]) {
      expect(`${error?.message} ${JSON.stringify(error)} ${error?.stack}`).not.toContain(secret);
    }
  });

  it('a server that cannot be reached is an event, and the tier works when the server answers', async () => {
    const late = await S3Server.start('blocks');
    await late.killAndWait();
    const events: string[] = [];
    const tier = await open(newPrefix(), { endpoint: late.endpoint, event: (message) => events.push(message) });
    expect(events.join()).toMatch(/does not answer: ECONNREFUSED.*until then, KV is computed/);
    await expect(tier.has([suiteKey('a')], never)).rejects.toMatchObject({ code: 'KVASIR_TIER_FAILED' });
    await late.startAgain();
    expect(await tier.has([suiteKey('a')], never)).toEqual([false]);
    expect(await put(tier, suiteKey('a'))).toBe('stored');
    await expectLoads(tier, [suiteKey('a')]);
    await tier.close();
    await late.stop();
  });

  it('the pinned version of the SDK is that of package.json', () => {
    const { devDependencies, peerDependencies } = JSON.parse(readFileSync('package.json', 'utf8'));
    expect(devDependencies[sdkPackage]).toBe(sdkVersion);
    expect(peerDependencies[sdkPackage]).toBe(`^${sdkVersion}`);
  });
});

function damage(path: string, change: (bytes: Buffer) => Uint8Array): void {
  writeFileSync(path, change(readFileSync(path)));
}
