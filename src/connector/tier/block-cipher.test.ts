import { createCipheriv, createHash, createHmac, hkdfSync } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { expect, it } from 'vitest';
import { saltTagOf } from '../salt-tag.ts';
import { BlockCodec, headerBytes, saltTagIn } from './block-header.ts';
import { storedBlockBytes, suiteBytes, suiteIdentity, suiteKey } from './tier.suite.ts';
import { suiteMacKey } from './tier-mac.suite.ts';

const codec = new BlockCodec(suiteIdentity, crc32, [suiteMacKey(1)], true);
const key = suiteKey('a');
const payload = suiteBytes(key);

function storedWith(cacheSalt: string | undefined): Buffer {
  const stored = new Uint8Array(storedBlockBytes);
  codec.encodeInto(key, payload, stored, { saltTag: saltTagOf(cacheSalt) });
  return Buffer.from(stored.buffer);
}

/** As in the file's comment, from Node's parts alone. */
function cipherByHand(header: Buffer): { readonly crc: Buffer; readonly tag: Buffer; readonly payload: Buffer } {
  const named = Buffer.concat([header.subarray(0, 92), header.subarray(96, 140)]);
  const use = Buffer.concat([Buffer.from('kvasir block encryption 1'), header.subarray(56, 64)]);
  const saltKey = Buffer.from(hkdfSync('sha256', suiteMacKey(1), '', use, 32));
  const blockKey = createHmac('sha256', saltKey).update(named).digest();
  const gcm = createCipheriv('aes-256-gcm', blockKey, header.subarray(36, 48));
  gcm.setAAD(named);
  const plainCrc = Buffer.alloc(4);
  plainCrc.writeUInt32LE(crc32(payload));
  const text = Buffer.concat([gcm.update(Buffer.concat([plainCrc, payload])), gcm.final()]);
  return { crc: text.subarray(0, 4), tag: gcm.getAuthTag(), payload: text.subarray(4) };
}

it.each([undefined, 'tenant 1'])(
  'is the documented function of the header fields and the payload (salt: %s)',
  (salt) => {
    const stored = storedWith(salt);
    const { crc, tag, payload: text } = cipherByHand(stored);
    const id = createHash('sha256').update('kvasir key id 1').update(suiteMacKey(1)).digest().subarray(0, 4);
    expect(stored.readUInt32LE(8)).toBe(2);
    expect(stored.subarray(92, 96)).toEqual(crc);
    expect(stored.subarray(136, 156)).toEqual(Buffer.concat([id, tag]));
    expect(stored.subarray(headerBytes).equals(text)).toBe(true);
    expect(saltTagIn(stored)).toBe(saltTagOf(salt));
    // All other fields are as in blocks that are not encrypted.
    const plain = Buffer.from(new BlockCodec(suiteIdentity).encode(key, payload, undefined, saltTagOf(salt)));
    const names = (block: Buffer): Buffer =>
      Buffer.concat([block.subarray(16, 36), block.subarray(48, 92), block.subarray(96, 136)]);
    expect(names(stored)).toEqual(names(plain));
  },
);

it('decrypts a payload in parts of any length', () => {
  const stored = storedWith('tenant 1');
  for (const length of [1, 15, 16, 17, 1000, 4096, 5000]) {
    const reader = codec.reader(stored.subarray(0, headerBytes));
    const parts: Uint8Array[] = [];
    for (let at = headerBytes; at < stored.length; at += length)
      parts.push(reader.plainOf(stored.subarray(at, at + length)));
    expect(Buffer.concat(parts).equals(payload)).toBe(true);
    expect(reader.verdict(crc32(payload))).toBeUndefined();
  }
});

it('has no nonce twice', () => {
  const nonces = new Set(Array.from({ length: 200 }, () => storedWith(undefined).subarray(36, 48).toString('hex')));
  expect(nonces.size).toBe(200);
});

it('gives a header alone only without encryption', () => {
  expect(() => codec.encode(key, payload)).toThrow('use encodeInto');
  expect(() => new BlockCodec(suiteIdentity, crc32, undefined, true)).toThrow('encryption without keys');
});
