import { crc32 as zlibCrc32 } from 'node:zlib';
import { assert } from '../../base/assert.ts';
import { type BlockKey, digestBytes, groupOfKey, isBlockKey, writeKeyDigest } from '../block-key.ts';
import type { Crc32, KvIdentity, MacKeys } from '../connector.ts';
import type { MissReason } from '../reasons.ts';
import { readSaltTag, type SaltTag, saltTagBytes, writeSaltTag } from '../salt-tag.ts';
import { BlockMac, macFieldBytes, type PayloadCheck } from './block-mac.ts';
import { identityDigest } from './identity.ts';

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
 */
export const headerBytes = 160;
export const formatVersion = 1;

const magic = 0x314b4c42_5253564bn; // "KVSRBLK1"
const at = {
  magic: 0,
  version: 8,
  headerBytes: 12,
  fingerprint: 16,
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

/** Writes and checks the headers of one rank's blocks. */
export class BlockCodec {
  readonly identity: KvIdentity;
  readonly #crc32: Crc32;
  readonly #mac: BlockMac | undefined;
  /** Per group, the header fields that are the same for all its blocks. */
  readonly #templates: readonly Uint8Array[];

  /**
   * `crc32`: a faster CRC32 than Node's, if there is one. `macKeys`: blocks get a MAC, and blocks without a right one are
   * misses.
   */
  constructor(identity: KvIdentity, crc32: Crc32 = zlibCrc32, macKeys?: MacKeys) {
    this.identity = identity;
    this.#crc32 = crc32;
    this.#mac = macKeys && new BlockMac(macKeys);
    this.#templates = identity.groups.map((_, group) => template(identity, group));
  }

  /**
   * The stored block is the header followed by the payload. `payloadCrc`: the payload's CRC32 if it is known. `saltTag`: of the cache
   * salt of the block's request.
   */
  encode(key: BlockKey, payload: Uint8Array, payloadCrc = this.#crc32(payload), saltTag?: SaltTag): Uint8Array {
    assert(
      payload.length === this.identity.blockBytes,
      `a payload of ${payload.length} bytes, and the blocks have ${this.identity.blockBytes}`,
    );
    return this.#withChecksums(this.#expected(key), payload, payloadCrc, saltTag);
  }

  /** Writes the stored block: the header, then a copy of the payload. */
  encodeInto(key: BlockKey, payload: Uint8Array, stored: Uint8Array, saltTag?: SaltTag): void {
    const { blockBytes } = this.identity;
    assert(payload.length === blockBytes, `a payload of ${payload.length} bytes, and the blocks have ${blockBytes}`);
    assert(stored.length === headerBytes + blockBytes, `memory of ${stored.length} bytes for a stored block`);
    const copy = stored.subarray(headerBytes);
    const crc = this.#copy(copy, payload);
    stored.set(this.#withChecksums(this.#expected(key), copy, crc, saltTag));
  }

  /**
   * Copies the payload of a stored block. Undefined if it is this block, or the reason why not; `into` then has any bytes.
   * `storedBytes` as in `verify`; `stored` has room for a whole block.
   */
  decode(key: BlockKey, stored: Uint8Array, storedBytes: number, into: Uint8Array): MissReason | undefined {
    const { blockBytes } = this.identity;
    assert(into.length === blockBytes, `memory of ${into.length} bytes, and the blocks have ${blockBytes}`);
    const header = stored.subarray(0, headerBytes);
    const reason = this.verifyHeader(key, header, storedBytes);
    if (reason !== undefined) return reason;
    const crc = this.#copy(into, stored.subarray(headerBytes, headerBytes + blockBytes));
    return crc === payloadCrcOf(header) ? this.#verifyMac(header, into) : 'corrupt';
  }

  /**
   * Undefined if the header and the payload are this block, or the reason why not. `storedBytes`: how many bytes the store
   * has of header and payload together. Only these bytes are compared.
   */
  verify(key: BlockKey, header: Uint8Array, payload: Uint8Array, storedBytes: number): MissReason | undefined {
    assert(
      payload.length === this.identity.blockBytes,
      `memory of ${payload.length} bytes, and the blocks have ${this.identity.blockBytes}`,
    );
    return this.verifyHeader(key, header, storedBytes) ?? this.#verifyPayload(header, payload);
  }

  /** Checks all but the checksum and the MAC of the payload. */
  verifyHeader(key: BlockKey, header: Uint8Array, storedBytes: number): MissReason | undefined {
    assert(header.length === headerBytes, `a header of ${header.length} bytes`);
    if (storedBytes < at.fingerprint) return 'truncated';
    const view = viewOf(header);
    if (view.getBigUint64(at.magic, true) !== magic) return 'notABlock';
    if (view.getUint32(at.version, true) !== formatVersion) return 'formatVersion';
    if (storedBytes < headerBytes) return 'truncated';
    if (view.getUint32(at.headerCrc, true) !== zlibCrc32(header.subarray(0, at.headerCrc))) return 'headerCorrupt';
    const expected = this.#expected(key);
    for (const [reason, start, end] of checked) {
      for (let i = start; i < end; i++) if (header[i] !== expected[i]) return reason;
    }
    const wanted = headerBytes + this.identity.blockBytes;
    if (storedBytes < wanted) return 'truncated';
    if (storedBytes > wanted) return 'oversized';
    return this.#mac?.obstacle(header.subarray(at.mac, at.headerCrc));
  }

  /**
   * For a payload that arrives in parts, after `verifyHeader`: its MAC is right if `isRight` says so after the last part.
   * Undefined: this codec has no keys.
   */
  macCheck(header: Uint8Array): PayloadCheck | undefined {
    return this.#mac?.check(header.subarray(0, at.mac), header.subarray(at.mac, at.headerCrc));
  }

  #verifyPayload(header: Uint8Array, payload: Uint8Array): MissReason | undefined {
    return payloadCrcOf(header) === this.#crc32(payload) ? this.#verifyMac(header, payload) : 'corrupt';
  }

  #verifyMac(header: Uint8Array, payload: Uint8Array): MissReason | undefined {
    const check = this.macCheck(header);
    check?.add(payload);
    return check?.isRight() === false ? 'macWrong' : undefined;
  }

  /** Copies, and returns the CRC32 of the copied bytes. */
  #copy(into: Uint8Array, from: Uint8Array): number {
    if (this.#crc32.copy !== undefined) return this.#crc32.copy(into, from);
    into.set(from);
    return this.#crc32(into);
  }

  /** With the MAC, which covers the fields before it. */
  #withChecksums(
    header: Uint8Array,
    payload: Uint8Array,
    payloadCrc: number,
    saltTag: SaltTag | undefined,
  ): Uint8Array {
    const view = viewOf(header);
    writeSaltTag(saltTag, header, at.saltTag);
    view.setUint32(at.payloadCrc, payloadCrc, true);
    this.#mac?.sign(header.subarray(0, at.mac), payload, header.subarray(at.mac, at.headerCrc));
    view.setUint32(at.headerCrc, zlibCrc32(header.subarray(0, at.headerCrc)), true);
    return header;
  }

  /** A header without its checksums. */
  #expected(key: BlockKey): Uint8Array {
    assert(isBlockKey(key), `not a block's key: ${key}`);
    const group = groupOfKey(key);
    const header = this.#templates[group]?.slice();
    assert(header !== undefined, `key of group ${group}, this model has ${this.#templates.length}`);
    writeKeyDigest(key, header, at.digest);
    return header;
  }
}

/** The cache salt that a header was written for. Undefined: none, or an earlier version has written the header. */
export const saltTagIn = (header: Uint8Array): SaltTag | undefined => readSaltTag(header, at.saltTag);

/** The CRC32 of the payload that a header was written for, to compare recomputed KV with stored KV. */
export const payloadCrcOf = (header: Uint8Array): number => viewOf(header).getUint32(at.payloadCrc, true);

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
