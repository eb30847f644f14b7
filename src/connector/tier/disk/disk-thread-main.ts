/** The main file of a `DiskTier`'s threads: calls of the file system, which may never return, and checksums. */
import { readFileSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import { assertNever } from '../../../base/assert.ts';
import { readFifo } from '../../../base/fifo.ts';
import { type MemoryRange, MemoryViews } from '../../../base/native-memory.ts';
import type { BlockKey } from '../../block-key.ts';
import { BlockCodec } from '../block-header.ts';
import { crc32In } from '../thread-crc32.ts';
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
import { checkRoot, DiskFolder, isExpired } from './disk-folder.ts';
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
    const { root, identity, crc32Library, macKeys, encrypts, fsync, cell } = setup;
    this.#setup = setup;
    this.#cell = new CallCell(cell);
    this.#folder = new DiskFolder(root, identity);
    const crc32 = crc32In(crc32Library);
    const codec = new BlockCodec(identity, crc32, macKeys, encrypts);
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
        return this.#lookUp(call.keys, new SharedAnswers(call.answers), call.nowMs);
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
        return this.#folder.scan(call.nowMs, this.#setup.ttlMs);
      case 'saltTags':
        return this.#folder.saltTags(call.keys, this.#stillWanted);
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

  #lookUp(keys: readonly BlockKey[], answers: SharedAnswers, nowMs: number): DiskAnswers['has'] {
    const failed: [BlockKey, string][] = [];
    for (let index = answers.take(); index !== undefined && !this.#cell.isAbandoned; index = answers.take()) {
      const key = keys[index]!;
      try {
        answers.answer(index, this.#stateOf(key, nowMs) === 'stored');
      } catch (error) {
        failed.push([key, codeOf(error) ?? 'error']);
      }
    }
    return failed;
  }

  #load(key: BlockKey, into: MemoryRange, options: ReadOptions): DiskAnswers['load'] {
    const { ttlMs } = this.#setup;
    if (ttlMs !== undefined && this.#stateOf(key, options.nowMs) === 'expired') {
      this.#remove(key);
      return 'missing';
    }
    const reason = this.#reader.read(this.#folder.fileOf(key), key, this.#views.bytesAt(into), { ...options, ttlMs });
    if (reason === undefined) return 'loaded';
    this.#stillWanted();
    if (reason !== 'missing') this.#folder.quarantine(key, reason);
    return reason;
  }

  #store({ key, bytes, victims, ...options }: DiskCallOf<'store'>): DiskAnswers['store'] {
    if (this.#stateOf(key, options.nowMs) === 'stored') return 'alreadyStored';
    this.#stillWanted();
    // First, so that the folder never has more than its bytes.
    for (const victim of victims) this.#remove(victim);
    const path = this.#folder.fileOf(key);
    const temporaryName = this.#folder.newTemporaryName(path);
    this.#writer.write(path, key, this.#views.bytesAt(bytes), { ...options, temporaryName });
    return 'stored';
  }

  /** Without an exception for a missing file, which takes longer than the call. */
  #stateOf(key: BlockKey, nowMs: number): 'missing' | 'stored' | 'expired' {
    const stats = statSync(this.#folder.fileOf(key), { throwIfNoEntry: false });
    if (stats === undefined) return 'missing';
    return isExpired(stats.mtimeMs, nowMs, this.#setup.ttlMs) ? 'expired' : 'stored';
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

serveIoCalls((setup: DiskThreadSetup) => {
  const thread = new DiskThread(setup);
  return (call: DiskCall) => thread.answer(call);
});
