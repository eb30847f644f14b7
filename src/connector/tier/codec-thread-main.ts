/** The main file of a `BlockCoder`'s threads: encryption, decryption and checksums of whole blocks. */
import { type MemoryRange, MemoryViews } from '../../base/native-memory.ts';
import type { BlockKey } from '../block-key.ts';
import type { KvIdentity, MacKeys } from '../connector.ts';
import type { MissReason } from '../reasons.ts';
import type { SaltTag } from '../salt-tag.ts';
import { BlockCodec } from './block-header.ts';
import { CallCell } from './disk/call-cell.ts';
import { gaveUp } from './disk/disk-file.ts';
import { serveIoCalls } from './disk/io-threads.ts';
import { crc32In } from './thread-crc32.ts';

export interface CodecThreadSetup {
  readonly identity: KvIdentity;
  readonly crc32Library: string | undefined;
  readonly macKeys: MacKeys;
  readonly encrypts: boolean;
  /** Memory of a `CallCell`. */
  readonly cell: SharedArrayBuffer;
}

/** The calls of `BlockCodec` of the same names. */
export type CodecCall =
  | {
      readonly kind: 'encodeInto';
      readonly key: BlockKey;
      readonly payload: MemoryRange;
      readonly stored: MemoryRange;
      readonly payloadCrc: number | undefined;
      readonly saltTag: SaltTag | undefined;
    }
  | {
      readonly kind: 'verify';
      readonly key: BlockKey;
      readonly header: Uint8Array;
      readonly payload: MemoryRange;
      readonly storedBytes: number;
    };

serveIoCalls(({ identity, crc32Library, macKeys, encrypts, cell: memory }: CodecThreadSetup) => {
  const codec = new BlockCodec(identity, crc32In(crc32Library), macKeys, encrypts);
  const cell = new CallCell(memory);
  const views = new MemoryViews();
  const answer = (call: CodecCall): MissReason | undefined => {
    const payload = views.bytesAt(call.payload);
    if (call.kind === 'verify') return codec.verify(call.key, call.header, payload, call.storedBytes);
    codec.encodeInto(call.key, payload, views.bytesAt(call.stored), call);
    return undefined;
  };
  return (call: CodecCall): MissReason | undefined => {
    // The memory belongs to the caller until the call ends, also if it is given up.
    if (!cell.claim()) throw gaveUp();
    try {
      return answer(call);
    } finally {
      cell.release();
    }
  };
});
