import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomFillSync } from 'node:crypto';
import { assert, assertDefined } from '../../base/assert.ts';
import type { MacKeys } from '../connector.ts';
import type { MissReason } from '../reasons.ts';
import type { PayloadReader } from './block-header.ts';
import { keyIdOf } from './block-mac.ts';

/** Encrypted at once. Node makes new memory for each part, and small parts reuse it. */
export const cipherPartBytes = 64 * 1024;

const tagBytes = 16;
const algorithm = 'aes-256-gcm';

/**
 * The fields of an encrypted block's header that the cipher reads or writes. They are views of the header, so writing a field changes the
 * header.
 */
export interface CipherFields {
  /** Random, new for each store: 12 bytes. */
  readonly nonce: Uint8Array;
  /** All that names the block, with `nonce` and the id of the key. No one can change it without the key. */
  readonly named: () => Uint8Array;
  /** The tag of the cache salt, which chooses the key. */
  readonly saltTag: Uint8Array;
  /** The CRC32 of the payload, encrypted as the payload's first 4 bytes. */
  readonly crc: Uint8Array;
  readonly keyId: Uint8Array;
  readonly tag: Uint8Array;
}

/**
 * Encrypts and decrypts stored blocks: AES-256-GCM, with a key for each block and each time that it is stored.
 *
 *     salt key  = HKDF-SHA256(key of the file, tag of the cache salt)
 *     block key = HMAC-SHA256(salt key, named fields)         they have the block's digest and the nonce
 *     ciphertext, tag = AES-256-GCM(block key, nonce, CRC32 || payload; additional data: named fields)
 *
 * GCM must never use a nonce twice with one key. Here both come from 96 random bits and the block's name. Two stores have the same key and
 * nonce only if they have the same bits and are of the same block, which has the same bytes. So the number of blocks has no limit in practice, and
 * a machine that is restored from a snapshot, with the state of its random numbers, does no harm.
 */
export class BlockCipher {
  readonly #newest: number;
  /** By the id in the headers of blocks. */
  readonly #byId = new Map<number, Uint8Array>();
  readonly #saltKeys = new Map<string, Uint8Array>();

  constructor(keys: MacKeys) {
    assert(keys.length > 0, 'no key');
    for (const key of keys) this.#byId.set(keyIdOf(key), key);
    this.#newest = keyIdOf(keys[0]!);
  }

  /** Whether a block with this key id can be decrypted. */
  hasKey(keyId: Uint8Array): boolean {
    return this.#byId.has(idIn(keyId));
  }

  /** Writes the ciphertext of the payload to `out`, and completes the fields. */
  encrypt(fields: CipherFields, payload: Uint8Array, payloadCrc: number, out: Uint8Array): void {
    assert(out.length === payload.length, `${out.length} bytes for a payload of ${payload.length}`);
    randomFillSync(fields.nonce);
    viewOf(fields.keyId).setUint32(0, this.#newest, true);
    viewOf(fields.crc).setUint32(0, payloadCrc, true);
    const named = fields.named();
    const cipher = createCipheriv(algorithm, this.#blockKey(fields, named), fields.nonce, { authTagLength: tagBytes });
    cipher.setAAD(named);
    fields.crc.set(cipher.update(fields.crc));
    for (let at = 0; at < payload.length; at += cipherPartBytes)
      out.set(cipher.update(payload.subarray(at, at + cipherPartBytes)), at);
    cipher.final();
    fields.tag.set(cipher.getAuthTag());
  }

  /** Decrypts a payload that arrives in parts. The key of the fields is known. */
  reader(fields: CipherFields): PayloadReader {
    const named = fields.named();
    const decipher = createDecipheriv(algorithm, this.#blockKey(fields, named), fields.nonce, {
      authTagLength: tagBytes,
    });
    decipher.setAAD(named);
    decipher.setAuthTag(fields.tag);
    const wanted = viewOf(decipher.update(fields.crc)).getUint32(0, true);
    return {
      plainOf: (part) => decipher.update(part),
      verdict: (crc): MissReason | undefined => {
        try {
          decipher.final();
        } catch {
          return 'decryptionFailed';
        }
        // The block changed in memory after it had left the pool and before it was encrypted.
        return crc === wanted ? undefined : 'corrupt';
      },
    };
  }

  #blockKey({ keyId, saltTag }: CipherFields, named: Uint8Array): Uint8Array {
    return createHmac('sha256', this.#saltKey(idIn(keyId), saltTag))
      .update(named)
      .digest();
  }

  #saltKey(id: number, saltTag: Uint8Array): Uint8Array {
    const name = `${id} ${Buffer.from(saltTag.buffer, saltTag.byteOffset, saltTag.length).toString('hex')}`;
    let key = this.#saltKeys.get(name);
    if (key === undefined) {
      const fileKey = assertDefined(this.#byId.get(id), 'a block of an unknown key');
      const use = Buffer.concat([Buffer.from('kvasir block encryption 1'), saltTag]);
      key = new Uint8Array(hkdfSync('sha256', fileKey, new Uint8Array(0), use, 32));
      // Each client can have many salts.
      if (this.#saltKeys.size >= saltKeysMax) this.#saltKeys.clear();
      this.#saltKeys.set(name, key);
    }
    return key;
  }
}

const saltKeysMax = 1024;

const idIn = (field: Uint8Array): number => viewOf(field).getUint32(0, true);
const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
