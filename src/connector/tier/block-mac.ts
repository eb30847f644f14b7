import { createCipheriv, createHash, createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';
import { assert } from '../../base/assert.ts';
import type { MacKeys } from '../connector.ts';
import type { MissReason } from '../reasons.ts';

/**
 * The message authentication code (MAC) of a stored block. Only a process with the key can make it, so a block that another
 * process has written or changed is not loaded. Two steps, because HMAC alone takes five times as long:
 *
 *     hash = GMAC(hash key, payload)                        AES-256-GCM with additional data only, and a fixed nonce
 *     MAC  = HMAC-SHA256(MAC key, header fields || hash)    the first 16 bytes
 *
 * A fixed nonce would break GMAC if its values were visible. Here they are not: only the HMAC of a value leaves the process. A hash
 * with a secret key below a pseudorandom function is a secure MAC (Carter and Wegman's "hash, then PRF"). Of 2^40 blocks with one key,
 * two have the same hash with a probability below 2^-31. The header fields name the model, layout, rank, KV group and content, so a
 * block is no other block.
 */
export const macFieldBytes = 20;

const keyIdBytes = 4;
const macBytes = macFieldBytes - keyIdBytes;
export const keyBytesMin = 32;

const nonce = Buffer.alloc(12);

interface DerivedKey {
  readonly hashKey: Uint8Array;
  readonly macKey: Uint8Array;
}

/** The keys of one process. */
export class BlockMac {
  readonly #newest: number;
  /** By the id in the headers of blocks. */
  readonly #byId = new Map<number, DerivedKey>();

  constructor(keys: MacKeys) {
    assert(keys.length > 0, 'no key');
    for (const key of keys) {
      assert(key.length >= keyBytesMin, `a key of ${key.length} bytes`);
      const id = keyIdOf(key);
      assert(!this.#byId.has(id), 'two keys with one id');
      this.#byId.set(id, { hashKey: derive(key, 'hash'), macKey: derive(key, 'mac') });
    }
    this.#newest = keyIdOf(keys[0]!);
  }

  /** Writes the field `field` of the header, which is the MAC of `fields` and the payload. */
  sign(fields: Uint8Array, payload: Uint8Array, field: Uint8Array): void {
    viewOf(field).setUint32(0, this.#newest, true);
    const check = new PayloadCheck(this.#byId.get(this.#newest)!, fields, field);
    check.add(payload);
    field.set(check.mac(), keyIdBytes);
  }

  /** Why a block with this field cannot be verified, whatever its payload is; undefined if it can. */
  obstacle(field: Uint8Array): MissReason | undefined {
    const id = idIn(field);
    if (id === noKeyId) return 'macMissing';
    return this.#byId.has(id) ? undefined : 'macKeyUnknown';
  }

  /** Verifies a payload that arrives in parts. The field has no `obstacle`. */
  check(fields: Uint8Array, field: Uint8Array): PayloadCheck {
    const key = this.#byId.get(idIn(field));
    assert(key !== undefined, 'a MAC of an unknown key');
    return new PayloadCheck(key, fields, field);
  }
}

/** One payload. `fields` and `field` must not change until the end. */
export class PayloadCheck {
  readonly #key: DerivedKey;
  readonly #fields: Uint8Array;
  readonly #field: Uint8Array;
  readonly #hash;

  constructor(key: DerivedKey, fields: Uint8Array, field: Uint8Array) {
    this.#key = key;
    this.#fields = fields;
    this.#field = field;
    this.#hash = createCipheriv('aes-256-gcm', key.hashKey, nonce);
  }

  add(part: Uint8Array): void {
    if (part.length > 0) this.#hash.setAAD(part);
  }

  /** After the last part, once. */
  isRight(): boolean {
    return timingSafeEqual(this.mac(), this.#field.subarray(keyIdBytes, macFieldBytes));
  }

  mac(): Uint8Array {
    this.#hash.final();
    return createHmac('sha256', this.#key.macKey)
      .update(this.#fields)
      .update(this.#field.subarray(0, keyIdBytes))
      .update(this.#hash.getAuthTag())
      .digest()
      .subarray(0, macBytes);
  }
}

/** In the headers of blocks without a MAC. */
const noKeyId = 0;

/** Says which key a MAC was made with. It tells nothing else about the key. */
export function keyIdOf(key: Uint8Array): number {
  const id = createHash('sha256').update('kvasir key id 1').update(key).digest().readUInt32LE(0);
  return id === noKeyId ? 1 : id;
}

const derive = (key: Uint8Array, use: string): Uint8Array =>
  new Uint8Array(hkdfSync('sha256', key, new Uint8Array(0), `kvasir block ${use} 1`, 32));
const idIn = (field: Uint8Array): number => viewOf(field).getUint32(0, true);
const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
