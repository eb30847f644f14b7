/** The main file of a `DiskTier`'s threads: calls of the file system, which may never return, and checksums. */
import { readFileSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import koffi from 'koffi';
import { assertNever } from '../../../base/assert.ts';
import { type MemoryRange, MemoryViews } from '../../../base/native-memory.ts';
import type { BlockKey } from '../../block-key.ts';
import type { Crc32 } from '../../connector.ts';
import type { MissReason } from '../../reasons.ts';
import { BlockCodec, headerBytes } from '../block-header.ts';
import { type DiskAnswer, type DiskAnswers, type DiskCall, type DiskThreadSetup, SharedAnswers } from './disk-calls.ts';
import { codeOf, isMissing, readBlockFile, writeBlockFile } from './disk-file.ts';
import { DiskFolder } from './disk-folder.ts';
import { CallCell, serveIoCalls } from './io-pool.ts';
import { boundOthers, countOthers } from './other-folders.ts';

class DiskThread {
  readonly #setup: DiskThreadSetup;
  readonly #cell: CallCell;
  readonly #folder: DiskFolder;
  readonly #codec: BlockCodec;
  readonly #views = new MemoryViews();
  readonly #header = new Uint8Array(headerBytes);
  /** Blocks are read into this buffer first, because an abandoned call must not write the pool. */
  readonly #staging: Uint8Array;
  readonly #oneMore = new Uint8Array(1);
  readonly #stillWanted = (): void => {
    if (this.#cell.isAbandoned) throw new Error('the call was given up');
  };

  constructor(setup: DiskThreadSetup) {
    const { root, identity, crc32Library, cell } = setup;
    this.#setup = setup;
    this.#cell = new CallCell(cell);
    this.#folder = new DiskFolder(root, identity);
    this.#codec = new BlockCodec(identity, crc32Library === undefined ? undefined : crc32In(crc32Library));
    this.#staging = new Uint8Array(identity.blockBytes);
  }

  answer(call: DiskCall): DiskAnswer {
    const { root, identity } = this.#setup;
    switch (call.kind) {
      case 'prepare':
        return this.#folder.prepare(identity, call.nowMs);
      case 'neighbours':
        return this.#folder.neighbours(root, identity);
      case 'has':
        return this.#lookUp(call.keys, new SharedAnswers(call.answers));
      case 'load':
        return this.#load(call.key, call.into);
      case 'store':
        return this.#store(call.key, call.bytes);
      case 'remove':
        for (const key of call.keys) this.#remove(key);
        return undefined;
      case 'scan':
        return this.#folder.scan(call.nowMs);
      case 'countOthers':
        return countOthers(root, identity, this.#stillWanted);
      case 'boundOthers':
        return boundOthers(root, identity, call, this.#stillWanted);
      case 'read':
        return this.#readWhole(call.key);
      case 'overwrite':
        writeFileSync(this.#folder.fileOf(call.key), call.bytes);
        return undefined;
      default:
        return assertNever(call);
    }
  }

  #lookUp(keys: readonly BlockKey[], answers: SharedAnswers): DiskAnswers['has'] {
    const failed: [BlockKey, string][] = [];
    for (let index = answers.take(); index !== undefined && !this.#cell.isAbandoned; index = answers.take()) {
      const key = keys[index]!;
      try {
        answers.answer(index, this.#exists(key));
      } catch (error) {
        failed.push([key, codeOf(error) ?? 'error']);
      }
    }
    return failed;
  }

  #load(key: BlockKey, into: MemoryRange): DiskAnswers['load'] {
    const reason = this.#read(key);
    if (reason === undefined) {
      if (this.#cell.claim()) this.#views.bytesAt(into).set(this.#staging);
      return 'loaded';
    }
    this.#stillWanted();
    if (reason !== 'missing') this.#folder.quarantine(key, reason);
    return reason;
  }

  /** Reads the block into the staging buffer and verifies it. */
  #read(key: BlockKey): MissReason | undefined {
    const [header, staging] = [this.#header, this.#staging];
    try {
      const path = this.#folder.fileOf(key);
      const storedBytes = readBlockFile(path, [header, staging, this.#oneMore], this.#stillWanted);
      return storedBytes === undefined ? 'missing' : this.#codec.verify(key, header, staging, storedBytes);
    } catch (error) {
      if (codeOf(error) === 'EISDIR') return 'notABlock';
      throw error;
    }
  }

  #store(key: BlockKey, range: MemoryRange): DiskAnswers['store'] {
    if (this.#exists(key)) return 'alreadyStored';
    this.#stillWanted();
    const bytes = this.#views.bytesAt(range);
    const path = this.#folder.fileOf(key);
    const options = { temporaryName: this.#folder.newTemporaryName(path), fsync: this.#setup.fsync };
    writeBlockFile(path, [this.#codec.encode(key, bytes), bytes], this.#stillWanted, options);
    return 'stored';
  }

  /** Without an exception for a missing file, which takes longer than the call. */
  #exists(key: BlockKey): boolean {
    return statSync(this.#folder.fileOf(key), { throwIfNoEntry: false }) !== undefined;
  }

  #remove(key: BlockKey): void {
    try {
      unlinkSync(this.#folder.fileOf(key));
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
  }

  #readWhole(key: BlockKey): Uint8Array | undefined {
    try {
      return readFileSync(this.#folder.fileOf(key));
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
  }
}

function crc32In(library: string): Crc32 {
  const compiled = koffi.load(library).func('kvasir_crc32', 'int64_t', ['void *', 'int64_t']);
  return (bytes) => compiled(bytes, bytes.length) as number;
}

serveIoCalls((setup: DiskThreadSetup) => {
  const thread = new DiskThread(setup);
  return (call: DiskCall) => thread.answer(call);
});
