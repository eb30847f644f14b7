/** Blocks of several pieces: what `BlockReader` and `BlockWriter` do that needs blocks larger than those of the tier's suite. */
import { mkdtempSync, readFileSync, rmSync, statSync, truncateSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import type { Crc32, KvIdentity, MacKeys } from '../../connector.ts';
import { BlockCodec, headerBytes } from '../block-header.ts';
import { suiteBytes, suiteIdentity, suiteKey } from '../tier.suite.ts';
import { suiteMacKey } from '../tier-mac.suite.ts';
import { BlockReader } from './block-reader.ts';
import { BlockWriter } from './block-writer.ts';
import { CallCell } from './call-cell.ts';
import { whyNotDirect } from './direct-io.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-block-files-'));
afterAll(() => rmSync(folder, { recursive: true }));
const pieceBytes = 256 * 1024;
const key = suiteKey('a');
let serial = 0;

const macKeys: MacKeys = [suiteMacKey(1)];

const withCopy: Crc32 = Object.assign((bytes: Uint8Array) => crc32(bytes), {
  copy: (into: Uint8Array, from: Uint8Array): number => {
    into.set(from);
    return crc32(from);
  },
});

function make(blockBytes: number, crc: Crc32 = crc32, macKeys?: MacKeys, encrypts = false) {
  const identity: KvIdentity = { ...suiteIdentity, blockBytes };
  const cell = new CallCell();
  const codec = new BlockCodec(identity, crc, macKeys, encrypts);
  const path = join(folder, `${serial++}.kv`);
  const writer = new BlockWriter(codec, crc, { fsync: false, stillWanted: () => undefined });
  const reader = new BlockReader(codec, crc, cell);
  const block = suiteBytes(key, blockBytes);
  const into = new Uint8Array(blockBytes);
  return {
    path,
    block,
    into,
    cell,
    expected: Buffer.concat([new BlockCodec(identity, crc, macKeys).encode(key, block), block]),
    write: (isDirect = false, payloadCrc?: number) =>
      writer.write(path, key, block, { temporaryName: '.a.tmp', payloadCrc, saltTag: undefined, isDirect }),
    read: (isDirect = false, nowMs = Date.now()) => reader.read(path, key, into, { nowMs, isDirect }),
  };
}

const sizes = [1, 4096 - headerBytes, 4096, pieceBytes - 1, pieceBytes, pieceBytes + 1, 2 * pieceBytes + 4096];

describe.each(sizes)('a block of %d bytes', (blockBytes) => {
  it.each([
    ['through the cache', false, crc32 as Crc32],
    ['through the cache, with a kernel that copies', false, withCopy],
    ['directly', true, crc32 as Crc32],
    ['directly, with a kernel that copies', true, withCopy],
    ['through the cache, with a MAC', false, crc32 as Crc32, macKeys],
    ['directly, with a MAC', true, withCopy, macKeys],
  ])('is written and read %s, and the files are the same', (_, isDirect, crc, keys?: MacKeys) => {
    const { write, read, path, into, block, expected } = make(blockBytes, crc, keys);
    write(isDirect);
    expect(readFileSync(path).equals(expected)).toBe(true);
    expect(read(isDirect)).toBeUndefined();
    expect(Buffer.compare(into, block)).toBe(0);
  });

  it.each([
    ['through the cache', false, false],
    ['directly', true, true],
    ['directly and read through the cache', true, false],
  ])('is written encrypted %s, and refused if a bit changed', (_, isDirectWrite, isDirectRead) => {
    const { write, read, path, into, block } = make(blockBytes, crc32, macKeys, true);
    write(isDirectWrite, isDirectRead ? crc32(block) : undefined);
    const stored = readFileSync(path);
    expect(stored).toHaveLength(headerBytes + blockBytes);
    if (blockBytes > 1000) expect(stored.subarray(headerBytes).equals(block)).toBe(false);
    expect(read(isDirectRead)).toBeUndefined();
    expect(Buffer.compare(into, block)).toBe(0);
    for (const at of [headerBytes, headerBytes + Math.floor(blockBytes / 2), stored.length - 1]) {
      writeFileSync(path, stored.with(at, stored[at]! ^ 1));
      expect([at, read(isDirectRead)]).toEqual([at, 'decryptionFailed']);
    }
  });

  it.each([false, true])('is refused if a bit changed and all checksums are right again (direct: %s)', (isDirect) => {
    const { write, read, path, expected } = make(blockBytes, crc32, macKeys);
    write();
    for (const at of [headerBytes, headerBytes + Math.floor(blockBytes / 2), expected.length - 1]) {
      const forged = Buffer.from(expected);
      forged[at]! ^= 1;
      forged.writeUInt32LE(crc32(forged.subarray(headerBytes)), 92);
      forged.writeUInt32LE(crc32(forged.subarray(0, 156)), 156);
      writeFileSync(path, forged);
      expect([at, read(isDirect)]).toEqual([at, 'macWrong']);
    }
  });

  it.each([false, true])('is a miss if it is cut, longer or changed anywhere (direct: %s)', (isDirect) => {
    const { write, read, path, expected } = make(blockBytes);
    write();
    const whole = expected.length;
    const cuts = [0, 1, headerBytes - 1, headerBytes, headerBytes + pieceBytes, whole - 1].filter((at) => at < whole);
    for (const length of cuts) {
      writeFileSync(path, expected.subarray(0, length));
      expect(read(isDirect), `${length} bytes`).toBe('truncated');
    }
    for (const more of [1, 4096, pieceBytes]) {
      writeFileSync(path, Buffer.concat([expected, new Uint8Array(more)]));
      expect(read(isDirect), `${more} bytes more`).toBe('oversized');
    }
    const places = [0, pieceBytes - 1, pieceBytes, 2 * pieceBytes, blockBytes - 1].filter((at) => at < blockBytes);
    for (const at of places) {
      const changed = Buffer.from(expected);
      changed[headerBytes + at]! ^= 1;
      writeFileSync(path, changed);
      expect(read(isDirect), `byte ${at}`).toBe('corrupt');
    }
  });
});

describe('a block with a known checksum', () => {
  it.each([false, true])('is stored with that checksum and not with a new one (direct: %s)', (isDirect) => {
    const { write, read, block, path, expected } = make(pieceBytes + 5);
    write(isDirect, crc32(block));
    expect(readFileSync(path).equals(expected)).toBe(true);
    rmSync(path);
    // The block has changed since its checksum was computed.
    write(isDirect, crc32(block) ^ 1);
    expect(read()).toBe('corrupt');
  });
});

describe('a read', () => {
  it('that was given up writes nothing', () => {
    const { write, read, into, cell } = make(2 * pieceBytes);
    write();
    cell.abandon();
    expect(() => read()).toThrow('the call was given up');
    expect(into.every((byte) => byte === 0)).toBe(true);
  });

  it('that is given up while a piece is copied writes this piece only', () => {
    let copies = 0;
    const giveUp: Crc32 = Object.assign((bytes: Uint8Array) => crc32(bytes), {
      copy: (into: Uint8Array, from: Uint8Array): number => {
        copies++;
        expect(made.cell.abandon()).toBe(false);
        return withCopy.copy!(into, from);
      },
    });
    const made = make(3 * pieceBytes, giveUp);
    made.write();
    expect(() => made.read()).toThrow('the call was given up');
    expect(copies).toBe(1);
    expect(Buffer.compare(made.into.subarray(0, pieceBytes), made.block.subarray(0, pieceBytes))).toBe(0);
    expect(made.into.subarray(pieceBytes).every((byte) => byte === 0)).toBe(true);
  });

  it('sets the date of the file to the date of the use, at most once a minute', () => {
    const { write, read, path } = make(4096);
    write();
    const dateOf = (): number => statSync(path).mtimeMs;
    utimesSync(path, 1_000, 1_000);
    read(false, 1_059_000);
    expect(dateOf()).toBe(1_000_000);
    read(false, 1_061_000);
    expect(dateOf()).toBe(1_061_000);
    read(false, 1_120_000);
    expect(dateOf()).toBe(1_061_000);
    read(true, 1_121_000);
    expect(dateOf()).toBe(1_121_000);
  });

  it('of a corrupt file does not set its date', () => {
    const { write, read, path } = make(4096);
    write();
    truncateSync(path, 300);
    utimesSync(path, 1_000, 1_000);
    expect(read(false, 9_000_000)).toBe('truncated');
    expect(statSync(path).mtimeMs).toBe(1_000_000);
  });
});

describe('O_DIRECT', () => {
  it('is not used where a file system refuses it', () => {
    const path = join(folder, 'record');
    writeFileSync(path, '{}');
    const refuse = (): number => {
      throw Object.assign(new Error('refused'), { code: 'EINVAL' });
    };
    expect(whyNotDirect(path, refuse)).toBe('EINVAL');
    expect(whyNotDirect(join(folder, 'no-such-file'))).toBe('ENOENT');
  });
});
