import { createCipheriv, createHash, createHmac, hkdfSync } from 'node:crypto';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { BlockCodec, headerBytes } from './block-header.ts';
import { BlockMac, keyIdOf, macFieldBytes } from './block-mac.ts';
import { suiteBytes, suiteIdentity, suiteKey } from './tier.suite.ts';
import { suiteMacKey } from './tier-mac.suite.ts';

const mac = new BlockMac([suiteMacKey(1)]);
const key = suiteKey('a');
const payload = suiteBytes(key);

/** As in the file's comment, from Node's parts alone. */
function macByHand(fields: Uint8Array, bytes: Uint8Array): Buffer {
  const derive = (use: string) => Buffer.from(hkdfSync('sha256', suiteMacKey(1), '', `kvasir block ${use} 1`, 32));
  const gcm = createCipheriv('aes-256-gcm', derive('hash'), Buffer.alloc(12));
  gcm.setAAD(bytes);
  gcm.final();
  const id = createHash('sha256').update('kvasir key id 1').update(suiteMacKey(1)).digest().subarray(0, 4);
  const parts = Buffer.concat([fields, id, gcm.getAuthTag()]);
  const code = createHmac('sha256', derive('mac')).update(parts).digest().subarray(0, 16);
  return Buffer.concat([id, code]);
}

it('is the documented function of the header fields and the payload, and all else in the header is as without keys', () => {
  const [plain, signed] = [new BlockCodec(suiteIdentity), new BlockCodec(suiteIdentity, crc32, [suiteMacKey(1)])].map(
    (codec) => Buffer.from(codec.encode(key, payload)),
  );
  expect(plain!.subarray(136, 156)).toEqual(Buffer.alloc(macFieldBytes));
  expect(signed!.subarray(0, 136)).toEqual(plain!.subarray(0, 136));
  expect(signed!.subarray(136, 156)).toEqual(macByHand(plain!.subarray(0, 136), payload));
});

it('is the same for a payload in any parts', () => {
  const fields = Buffer.alloc(136, 3);
  const sizes = fc.array(fc.integer({ min: 0, max: 100 }), { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(sizes, (lengths) => {
      const bytes = Buffer.alloc(lengths.reduce((sum, length) => sum + length, 0)).map((_, i) => i * 31);
      const field = new Uint8Array(macFieldBytes);
      mac.sign(fields, bytes, field);
      const check = mac.check(fields, field);
      let at = 0;
      for (const length of lengths) {
        check.add(bytes.subarray(at, at + length));
        at += length;
      }
      expect(check.isRight()).toBe(true);
    }),
  );
});

it('differs for every other header field, payload and length', () => {
  const fields = Buffer.alloc(136, 3);
  const signed = (ofFields: Uint8Array, ofPayload: Uint8Array): string => {
    const field = new Uint8Array(macFieldBytes);
    mac.sign(ofFields, ofPayload, field);
    return Buffer.from(field).toString('hex');
  };
  const all = new Set([
    signed(fields, payload),
    signed(fields, payload.subarray(1)),
    signed(fields, new Uint8Array(0)),
  ]);
  for (let i = 0; i < 136; i++) all.add(signed(fields.with(i, 4), payload));
  for (let i = 0; i < payload.length; i += 97) all.add(signed(fields, payload.with(i, payload[i]! ^ 128)));
  all.add(signed(fields, Buffer.concat([payload, Buffer.alloc(1)])));
  expect(all.size).toBe(3 + 136 + Math.ceil(payload.length / 97) + 1);
});

it('has an id that is not that of a block without a MAC', () => {
  expect(mac.obstacle(new Uint8Array(macFieldBytes))).toBe('macMissing');
  expect(mac.obstacle(new Uint8Array(macFieldBytes).fill(1))).toBe('macKeyUnknown');
  expect(keyIdOf(suiteMacKey(1))).not.toBe(keyIdOf(suiteMacKey(2)));
  expect(headerBytes).toBe(160);
});
