import { crc32 as zlibCrc32 } from 'node:zlib';
import { assert } from '../../base/assert.ts';
import { type BlockKey, digestBytes, groupOfKey, isBlockKey, writeKeyDigest } from '../block-key.ts';
import type { Crc32, KvIdentity, MacKeys } from '../connector.ts';
import type { MissReason } from '../reasons.ts';
import { readSaltTag, type SaltTag, saltTagBytes, writeSaltTag } from '../salt-tag.ts';
import { BlockCipher, type CipherFields, cipherPartBytes } from './block-cipher.ts';
import { BlockMac, macFieldBytes } from './block-mac.ts';
import { identityDigest } from './identity.ts';
import type { TierContext } from './tier.ts';

/**
 * The header before every stored block. It identifies the block. Little-endian, 160 bytes:
 *
 *     0  magic, 8 bytes                    72  first layer           u32
 *     8  format version         u32        76  end of layers         u32   (last + 1)
 *    12  bytes of this header   u32        80  number of layers      u32
 *    16  sha256 of fingerprint  32         84  rank                  u32
 *    48  dtype, ASCII, 0-padded 8          88  world size            u32
 *    56  tag of the cache salt  8          92  CRC32 of the bytes    u32
 *    64  block size in tokens   u32        96  number of bytes       u64
 *    68  KV group               u32
 *                                         104  digest of the key     32
 *                                         136  id of the MAC's key   u32   (0: no MAC)
 *                                         140  MAC                   16    (`block-mac.ts`)
 *                                         156  CRC32 of bytes 0..155 u32
 *
 * The reader knows every field except the tag (`salt-tag.ts`) and the checksum of the bytes, so it compares field by field and reports the first
 * difference. CRC32 detects every flipped bit and every burst of up to 32 bits. Of other damage, it misses one case in
 * 2^32. It detects no attacker, who computes it again; the MAC does. An engine without keys ignores the MAC.
 *
 * An encrypted block has the format version 2. Its header has the same fields, and differs in these (`block-cipher.ts`):
 *
 *    16  sha256 of fingerprint  first 20   92  CRC32 of the bytes, encrypted
 *    36  nonce                  12        140  tag of AES-256-GCM instead of the MAC
 */
export const headerBytes = 160;
export const formatVersion = 1;
export const encryptedVersion = 2;

const magic = 0x314b4c42_5253564bn; // "KVSRBLK1"
const at = {
  magic: 0,
  version: 8,
  headerBytes: 12,
  fingerprint: 16,
  /** Of an encrypted block. */
  nonce: 36,
  dtype: 48,
  saltTag: 56,
  blockSize: 64,
  group: 68,
  firstLayer: 72,
  endLayer: 76,
  layerCount: 80,
  rank: 84,
  worldSize: 88,
  payloadCrc: 92,
  payloadBytes: 96,
  digest: 104,
  mac: 136,
  macCode: 140,
  headerCrc: 156,
} as const;
const dtypeBytes = at.saltTag - at.dtype;

assert(at.headerCrc - at.mac === macFieldBytes, 'the MAC has no room in the header');
assert(at.blockSize - at.saltTag === saltTagBytes, 'the tag has no room in the header');

/** Compared in this order: the first field that differs gives the reason. */
const checked: readonly (readonly [reason: MissReason, start: number, end: number])[] = [
  ['wrongModel', at.fingerprint, at.dtype],
  ['wrongDtype', at.dtype, at.saltTag],
  ['wrongBlockSize', at.blockSize, at.group],
  ['wrongGroup', at.group, at.firstLayer],
  ['wrongLayers', at.firstLayer, at.rank],
  ['wrongRank', at.rank, at.payloadCrc],
  ['wrongKey', at.digest, at.digest + digestBytes],
  ['wrongLength', at.payloadBytes, at.digest],
];

/** Reads the payload of one stored block, in parts of any length. */
export interface PayloadReader {
  /** The bytes of the block in the next part, which may be the part itself. */
  plainOf(part: Uint8Array): Uint8Array;
  /** After the last part, once. `crc`: the CRC32 of the block's bytes. Undefined: the block is right. */
  verdict(crc: number): MissReason | undefined;
}

/** Writes and checks the headers of one rank's blocks. */
export class BlockCodec {
  readonly identity: KvIdentity;
  readonly #crc32: Crc32;
  readonly #mac: BlockMac | undefined;
  readonly #cipher: BlockCipher | undefined;
  /** New blocks are encrypted, and others are misses. */
  readonly encrypts: boolean;
  /** Per group, the header fields that are the same for all its blocks. */
  readonly #templates: readonly Uint8Array[];

  /**
   * `crc32`: a faster CRC32 than Node's, if there is one. `macKeys`: blocks get a MAC, and blocks without a right one are
   * misses. `encrypts`: blocks are encrypted with these keys instead, and blocks that are not encrypted are misses.
   */
  constructor(identity: KvIdentity, crc32: Crc32 = zlibCrc32, macKeys?: MacKeys, encrypts = false) {
    assert(!encrypts || macKeys !== undefined, 'encryption without keys');
    this.encrypts = encrypts;
    this.identity = identity;
    this.#crc32 = crc32;
    this.#mac = macKeys && new BlockMac(macKeys);
    this.#cipher = macKeys && new BlockCipher(macKeys);
    this.#templates = identity.groups.map((_, group) => template(identity, group));
  }

  /**
   * The stored block is the header followed by the payload, unless this codec encrypts (`encodeInto`). `payloadCrc`: the payload's CRC32
   * if it is known. `saltTag`: of the cache salt of the block's request.
   */
  encode(key: BlockKey, payload: Uint8Array, payloadCrc = this.#crc32(payload), saltTag?: SaltTag): Uint8Array {
    assert(
      payload.length === this.identity.blockBytes,
      `a payload of ${payload.length} bytes, and the blocks have ${this.identity.blockBytes}`,
    );
    assert(!this.encrypts, 'an encrypted block has another payload: use encodeInto');
    return this.#withChecksums(this.#expected(key, saltTag), payload, payloadCrc);
  }

  /** Writes the stored block: the header, then the payload, encrypted if this codec encrypts. */
  encodeInto(
    key: BlockKey,
    payload: Uint8Array,
    stored: Uint8Array,
    { payloadCrc, saltTag }: Pick<TierContext, 'payloadCrc' | 'saltTag'> = {},
  ): void {
    const { blockBytes } = this.identity;
    assert(payload.length === blockBytes, `a payload of ${payload.length} bytes, and the blocks have ${blockBytes}`);
    assert(stored.length === headerBytes + blockBytes, `memory of ${stored.length} bytes for a stored block`);
    const copy = stored.subarray(headerBytes);
    const header = this.#expected(key, saltTag);
    if (this.encrypts) this.#encrypt(header, payload, payloadCrc ?? this.#crc32(payload), copy);
    else this.#withChecksums(header, copy, this.#copy(copy, payload, payloadCrc));
    stored.set(header);
  }

  /**
   * Copies or decrypts the payload of a stored block. Undefined if it is this block, or the reason why not; `into` then has any bytes.
   * `storedBytes` as in `verify`; `stored` has room for a whole block.
   */
  decode(key: BlockKey, stored: Uint8Array, storedBytes: number, into: Uint8Array): MissReason | undefined {
    const { blockBytes } = this.identity;
    assert(into.length === blockBytes, `memory of ${into.length} bytes, and the blocks have ${blockBytes}`);
    const header = stored.subarray(0, headerBytes);
    const reason = this.verifyHeader(key, header, storedBytes);
    if (reason !== undefined) return reason;
    const payload = stored.subarray(headerBytes, headerBytes + blockBytes);
    if (isEncrypted(header)) return this.#decrypt(header, payload, into);
    const crc = this.#copy(into, payload);
    return this.#verdict(header, into, crc);
  }

  /**
   * Undefined if the header and the payload are this block, or the reason why not. `storedBytes`: how many bytes the store
   * has of header and payload together. Only these bytes are compared. The payload of an encrypted block is decrypted in place; if the
   * block is not this block, it then has any bytes.
   */
  verify(key: BlockKey, header: Uint8Array, payload: Uint8Array, storedBytes: number): MissReason | undefined {
    assert(
      payload.length === this.identity.blockBytes,
      `memory of ${payload.length} bytes, and the blocks have ${this.identity.blockBytes}`,
    );
    const reason = this.verifyHeader(key, header, storedBytes);
    if (reason !== undefined) return reason;
    if (isEncrypted(header)) return this.#decrypt(header, payload, payload);
    return this.#verdict(header, payload, this.#crc32(payload));
  }

  /** Checks all but the checksum and the MAC of the payload. */
  verifyHeader(key: BlockKey, header: Uint8Array, storedBytes: number): MissReason | undefined {
    assert(header.length === headerBytes, `a header of ${header.length} bytes`);
    if (storedBytes < at.fingerprint) return 'truncated';
    const view = viewOf(header);
    if (view.getBigUint64(at.magic, true) !== magic) return 'notABlock';
    if (![formatVersion, encryptedVersion].includes(view.getUint32(at.version, true))) return 'formatVersion';
    if (storedBytes < headerBytes) return 'truncated';
    if (view.getUint32(at.headerCrc, true) !== zlibCrc32(header.subarray(0, at.headerCrc))) return 'headerCorrupt';
    const expected = this.#expected(key);
    for (const [reason, start, end] of checked) {
      const last = start === at.fingerprint && isEncrypted(header) ? at.nonce : end;
      for (let i = start; i < last; i++) if (header[i] !== expected[i]) return reason;
    }
    const wanted = headerBytes + this.identity.blockBytes;
    if (storedBytes < wanted) return 'truncated';
    if (storedBytes > wanted) return 'oversized';
    if (isEncrypted(header))
      return this.#cipher?.hasKey(header.subarray(at.mac, at.macCode)) === true ? undefined : 'encryptionKeyUnknown';
    return this.encrypts ? 'notEncrypted' : this.#mac?.obstacle(header.subarray(at.mac, at.headerCrc));
  }

  /** For a payload that arrives in parts, after `verifyHeader`. The header must not change until the end. */
  reader(header: Uint8Array): PayloadReader {
    if (isEncrypted(header)) return this.#cipher!.reader(cipherFields(header));
    const mac = this.#mac?.check(header.subarray(0, at.mac), header.subarray(at.mac, at.headerCrc));
    return {
      plainOf: (part) => {
        mac?.add(part);
        return part;
      },
      verdict: (crc) => (crc !== payloadCrcOf(header) ? 'corrupt' : mac?.isRight() === false ? 'macWrong' : undefined),
    };
  }

  /** Of a payload that is not encrypted. */
  #verdict(header: Uint8Array, payload: Uint8Array, crc: number): MissReason | undefined {
    const reader = this.reader(header);
    reader.plainOf(payload);
    return reader.verdict(crc);
  }

  #encrypt(header: Uint8Array, payload: Uint8Array, payloadCrc: number, out: Uint8Array): void {
    viewOf(header).setUint32(at.version, encryptedVersion, true);
    this.#cipher!.encrypt(cipherFields(header), payload, payloadCrc, out);
    this.#setHeaderCrc(header);
  }

  /** `into` may be `from`. */
  #decrypt(header: Uint8Array, from: Uint8Array, into: Uint8Array): MissReason | undefined {
    const reader = this.reader(header);
    for (let start = 0; start < from.length; start += cipherPartBytes)
      into.set(reader.plainOf(from.subarray(start, start + cipherPartBytes)), start);
    return reader.verdict(this.#crc32(into));
  }

  /** Copies, and returns the CRC32 of the copied bytes, or the one that is known. */
  #copy(into: Uint8Array, from: Uint8Array, knownCrc?: number): number {
    if (knownCrc === undefined && this.#crc32.copy !== undefined) return this.#crc32.copy(into, from);
    into.set(from);
    return knownCrc ?? this.#crc32(into);
  }

  /** With the MAC, which covers the fields before it. */
  #withChecksums(header: Uint8Array, payload: Uint8Array, payloadCrc: number): Uint8Array {
    viewOf(header).setUint32(at.payloadCrc, payloadCrc, true);
    this.#mac?.sign(header.subarray(0, at.mac), payload, header.subarray(at.mac, at.headerCrc));
    return this.#setHeaderCrc(header);
  }

  #setHeaderCrc(header: Uint8Array): Uint8Array {
    viewOf(header).setUint32(at.headerCrc, zlibCrc32(header.subarray(0, at.headerCrc)), true);
    return header;
  }

  /** A header without its checksums. */
  #expected(key: BlockKey, saltTag?: SaltTag): Uint8Array {
    assert(isBlockKey(key), `not a block's key: ${key}`);
    const group = groupOfKey(key);
    const header = this.#templates[group]?.slice();
    assert(header !== undefined, `key of group ${group}, this model has ${this.#templates.length}`);
    writeKeyDigest(key, header, at.digest);
    if (saltTag !== undefined) writeSaltTag(saltTag, header, at.saltTag);
    return header;
  }
}

/** The cache salt that a header was written for. Undefined: none, or an earlier version has written the header. */
export const saltTagIn = (header: Uint8Array): SaltTag | undefined => readSaltTag(header, at.saltTag);

/** Where a header has the tag. */
export const saltTagAt: number = at.saltTag;

export const isEncrypted = (header: Uint8Array): boolean =>
  viewOf(header).getUint32(at.version, true) === encryptedVersion;

/** Of a block that is not encrypted: the CRC32 of the payload, to compare recomputed KV with stored KV. */
export const payloadCrcOf = (header: Uint8Array): number => viewOf(header).getUint32(at.payloadCrc, true);

function cipherFields(header: Uint8Array): CipherFields {
  const field = (start: number, end: number): Uint8Array => header.subarray(start, end);
  return {
    nonce: field(at.nonce, at.dtype),
    named: () => Buffer.concat([field(0, at.payloadCrc), field(at.payloadBytes, at.macCode)]),
    saltTag: field(at.saltTag, at.blockSize),
    crc: field(at.payloadCrc, at.payloadBytes),
    keyId: field(at.mac, at.macCode),
    tag: field(at.macCode, at.headerCrc),
  };
}

function template(identity: KvIdentity, group: number): Uint8Array {
  const header = new Uint8Array(headerBytes);
  const view = viewOf(header);
  const { blockSize, layers } = identity.groups[group]!;
  const dtype = new TextEncoder().encode(identity.dtype);
  assert(dtype.length <= dtypeBytes, `the name of dtype ${identity.dtype} is longer than ${dtypeBytes} bytes`);
  view.setBigUint64(at.magic, magic, true);
  view.setUint32(at.version, formatVersion, true);
  view.setUint32(at.headerBytes, headerBytes, true);
  header.set(identityDigest(identity.fingerprint), at.fingerprint);
  header.set(dtype, at.dtype);
  view.setUint32(at.blockSize, blockSize, true);
  view.setUint32(at.group, group, true);
  // A pipeline rank may have no layer of a group. It stores no block of this group (`blocks-of-rank.ts`).
  view.setUint32(at.firstLayer, layers.length === 0 ? 0 : Math.min(...layers), true);
  view.setUint32(at.endLayer, layers.length === 0 ? 0 : Math.max(...layers) + 1, true);
  view.setUint32(at.layerCount, layers.length, true);
  view.setUint32(at.rank, identity.rank, true);
  view.setUint32(at.worldSize, identity.worldSize, true);
  view.setBigUint64(at.payloadBytes, BigInt(identity.blockBytes), true);
  return header;
}

const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
