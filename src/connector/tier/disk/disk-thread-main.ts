/** The main file of a `DiskTier`'s threads: calls of the file system, which may never return, and checksums. */
import { readFileSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import { crc32 as zlibCrc32 } from 'node:zlib';
import koffi from 'koffi';
import { assertNever } from '../../../base/assert.ts';
import { readFifo } from '../../../base/fifo.ts';
import { type MemoryRange, MemoryViews } from '../../../base/native-memory.ts';
import type { BlockKey } from '../../block-key.ts';
import type { Crc32 } from '../../connector.ts';

import { BlockCodec } from '../block-header.ts';
import { BlockReader, type ReadOptions } from './block-reader.ts';
import { BlockWriter } from './block-writer.ts';
import { CallCell } from './call-cell.ts';
import {
  type DiskAnswer,
  type DiskAnswers,
  type DiskCall,
  type DiskCallOf,
  type DiskThreadSetup,
  SharedAnswers,
} from './disk-calls.ts';
import { codeOf, gaveUp, isMissing } from './disk-file.ts';
import { checkRoot, DiskFolder } from './disk-folder.ts';
import { serveIoCalls } from './io-threads.ts';
import { boundOthers, countOthers } from './other-folders.ts';

class DiskThread {
  readonly #setup: DiskThreadSetup;
  readonly #cell: CallCell;
  readonly #folder: DiskFolder;
  readonly #reader: BlockReader;
  readonly #writer: BlockWriter;
  readonly #views = new MemoryViews();
  readonly #stillWanted = (): void => {
    if (this.#cell.isAbandoned) throw gaveUp();
  };

  constructor(setup: DiskThreadSetup) {
    const { root, identity, crc32Library, macKeys, fsync, cell } = setup;
    this.#setup = setup;
    this.#cell = new CallCell(cell);
    this.#folder = new DiskFolder(root, identity);
    const crc32 = crc32Library === undefined ? zlibCrc32 : crc32In(crc32Library);
    const codec = new BlockCodec(identity, crc32, macKeys);
    this.#reader = new BlockReader(codec, crc32, this.#cell);
    this.#writer = new BlockWriter(codec, crc32, { fsync, stillWanted: this.#stillWanted });
  }

  answer(call: DiskCall): DiskAnswer {
    const { root, identity } = this.#setup;
    switch (call.kind) {
      case 'checkRoot':
        checkRoot(root);
        return undefined;
      case 'prepare':
        return this.#folder.prepare(identity, call);
      case 'neighbours':
        return this.#folder.neighbours(root, identity);
      case 'has':
        return this.#lookUp(call.keys, new SharedAnswers(call.answers));
      case 'load':
        return this.#load(call.key, call.into, call);
      case 'store':
        return this.#store(call);
      case 'remove':
        for (const key of call.keys) this.#remove(key);
        return undefined;
      case 'clear':
        return this.#folder.clear(call.filter, this.#stillWanted);
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
      case 'hang':
        readFifo(call.fifo);
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

  #load(key: BlockKey, into: MemoryRange, options: ReadOptions): DiskAnswers['load'] {
    const reason = this.#reader.read(this.#folder.fileOf(key), key, this.#views.bytesAt(into), options);
    if (reason === undefined) return 'loaded';
    this.#stillWanted();
    if (reason !== 'missing') this.#folder.quarantine(key, reason);
    return reason;
  }

  #store({ key, bytes, payloadCrc, isDirect, victims }: DiskCallOf<'store'>): DiskAnswers['store'] {
    if (this.#exists(key)) return 'alreadyStored';
    this.#stillWanted();
    // First, so that the folder never has more than its bytes.
    for (const victim of victims) this.#remove(victim);
    const path = this.#folder.fileOf(key);
    const temporaryName = this.#folder.newTemporaryName(path);
    this.#writer.write(path, key, this.#views.bytesAt(bytes), { temporaryName, payloadCrc, isDirect });
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

function crc32In(path: string): Crc32 {
  const library = koffi.load(path);
  const compiled = library.func('kvasir_crc32', 'int64_t', ['void *', 'int64_t']);
  const compiledCopy = library.func('kvasir_crc32_copy', 'int64_t', ['void *', 'void *', 'int64_t']);
  const crc32 = (bytes: Uint8Array): number => compiled(bytes, bytes.length) as number;
  const copy = (into: Uint8Array, from: Uint8Array): number => compiledCopy(into, from, from.length) as number;
  return Object.assign(crc32, { copy });
}

serveIoCalls((setup: DiskThreadSetup) => {
  const thread = new DiskThread(setup);
  return (call: DiskCall) => thread.answer(call);
});
