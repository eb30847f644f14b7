import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { isJsonObject } from '../../../base/json.ts';
import { makeFoldersSync } from '../../../base/make-folders.ts';
import { type BlockKey, digestHexOfKey, groupOfKey, isBlockKey } from '../../block-key.ts';
import type { KvIdentity } from '../../connector.ts';
import { differences, type IdentityRecord, identityRecord, modelFolder, rankFolder } from '../identity.ts';
import { isMissing, isTemporary, removeIfThere, temporaryNameFor } from './disk-file.ts';

/**
 * How blocks lie on a disk:
 *
 *   <root>/kv-<digest of fingerprint, dtype, block sizes>/rank0of1/config.json     what this is, in clear text
 *                                                                 /3f/<digest>-g0.kv
 *                                                                 /quarantine/<file>.<reason>
 *
 * All calls block and may never return, except those that only make names. They run on I/O threads (`disk-thread-main.ts`).
 */
export class DiskFolder {
  readonly path: string;

  constructor(root: string, identity: KvIdentity) {
    this.path = join(root, modelFolder(identity), rankFolder(identity));
  }

  /**
   * Makes the folder and its record. Returns a notice if the record was another model's. Reads nothing outside the folder.
   * Throws what the file system throws when it cannot be written.
   */
  prepare(identity: KvIdentity, nowMs: number): { readonly hasBlocks: boolean; readonly events: readonly string[] } {
    makeFoldersSync(this.path);
    const hasBlocks = entriesOf(this.path).some(({ name }) => blockFolder.test(name));
    const mismatch = this.#claim(identityRecord(identity), nowMs);
    return { hasBlocks, events: mismatch === undefined ? [] : [mismatch] };
  }

  /** Notices of other models' blocks in the directory. For an operator whose own folder has no blocks. */
  neighbours(root: string, identity: KvIdentity): readonly string[] {
    return neighbours(root, this.path, identityRecord(identity));
  }

  fileOf(key: BlockKey): string {
    const digest = digestHexOfKey(key);
    return join(this.path, digest.slice(0, 2), `${digest}-g${groupOfKey(key)}.kv`);
  }

  newTemporaryName(path: string): string {
    return temporaryNameFor(path, thisInstance, serial++);
  }

  /**
   * Every block with its size, oldest first; a folder that cannot be read has none. Removes temporary files that dead writers
   * have left: `nowMs` is what ages of files are compared with.
   */
  scan(nowMs: number): { readonly key: BlockKey; readonly bytes: number }[] {
    this.#markUsed(nowMs);
    const found: { key: BlockKey; bytes: number; writtenMs: number }[] = [];
    const visit = (folder: string, name: string): void => {
      const path = join(folder, name);
      const key = keyOfFile(name);
      if (key === undefined && !isTemporary(name)) return;
      try {
        const { size, mtimeMs } = statSync(path);
        if (key !== undefined) found.push({ key, bytes: size, writtenMs: mtimeMs });
        else if (nowMs - mtimeMs > abandonedAfterMs) unlinkSync(path);
      } catch (error) {
        // Another process has done this already.
        if (!isMissing(error)) throw error;
      }
    };
    for (const { name } of entriesOf(this.path)) {
      if (isTemporary(name)) visit(this.path, name);
      if (!blockFolder.test(name)) continue;
      const folder = join(this.path, name);
      for (const file of readableEntriesOf(folder)) visit(folder, file.name);
    }
    return found.sort((a, b) => a.writtenMs - b.writtenMs);
  }

  /** Moves a file that is not what its name says out of the way, to be looked at; only so many of them. */
  quarantine(key: BlockKey, reason: string): void {
    const file = this.fileOf(key);
    const folder = join(this.path, 'quarantine');
    try {
      const kept = entriesOf(folder);
      if (kept.length >= quarantinedMax) unlinkSync(file);
      else {
        makeFoldersSync(folder);
        renameSync(file, join(folder, `${digestHexOfKey(key)}-g${groupOfKey(key)}.kv.${reason}`));
      }
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
  }

  /** The date of the record tells engines of other models that this folder is in use (`other-folders.ts`). */
  #markUsed(nowMs: number): void {
    try {
      utimesSync(join(this.path, 'config.json'), nowMs / 1000, nowMs / 1000);
    } catch {
      // A store that cannot be written is still read.
      return;
    }
  }

  /** Writes the record, or says how the one that lies there differs. Blocks are judged by their headers either way. */
  #claim(record: IdentityRecord, nowMs: number): string | undefined {
    const path = join(this.path, 'config.json');
    // Our own folder must answer: where it does not, the store is down.
    const theirs = readRecord(path, 0);
    const different = theirs === undefined ? ['nothing readable'] : differences(theirs, record);
    if (different.length === 0) {
      this.#markUsed(nowMs);
      return undefined;
    }
    const temporary = join(this.path, this.newTemporaryName(path));
    try {
      writeFileSync(temporary, `${JSON.stringify(record, undefined, 2)}\n`);
      renameSync(temporary, path);
    } catch (error) {
      removeIfThere(temporary);
      throw error;
    }
    return theirs === undefined ? undefined : `${path} was another's: ${different.join('; ')}`;
  }
}

const quarantinedMax = 64;
/**
 * A temporary file that was not written for so long has no living writer: no save takes a fraction of this time, and clocks
 * of machines that share a directory do not differ by as much. If the writer is still alive, its save fails and the block
 * is a miss.
 */
export const abandonedAfterMs = 24 * 3_600_000;

/** Of this process and thread: one for all folders, because a rank may open one folder twice. */
const thisInstance = randomBytes(12).toString('hex');
let serial = 0;

export function keyOfFile(name: string): BlockKey | undefined {
  const match = /^([0-9a-f]{64})-g(\d+)\.kv$/.exec(name);
  if (match === null) return undefined;
  const key = `${match[2]}-${match[1]}`;
  return isBlockKey(key) ? key : undefined;
}

function neighbours(root: string, ours: string, record: IdentityRecord): string[] {
  const events: string[] = [];
  for (const model of entriesOf(root)) {
    for (const rank of entriesOf(join(root, model.name))) {
      const path = join(root, model.name, rank.name);
      if (path === ours || !rank.name.startsWith('rank')) continue;
      const theirs = readRecord(join(path, 'config.json'));
      if (theirs === undefined) continue;
      // The other ranks of this very run are no news.
      if (dirname(path) === dirname(ours) && theirs.worldSize === record.worldSize) continue;
      events.push(`${path} holds KV that does not match: ${differences(theirs, record).join('; ')}`);
      if (events.length >= eventsMax) return events;
    }
  }
  return events;
}

const eventsMax = 8;
/** The first two digits of the keys in it. */
export const blockFolder = /^[0-9a-f]{2}$/;

/** A record may be anything: a FIFO among those of other engines must not stop the start, nor a large file fill the memory. */
export function readRecord(path: string, flags = constants.O_NONBLOCK): Partial<IdentityRecord> | undefined {
  try {
    const file = openSync(path, constants.O_RDONLY | flags);
    try {
      const stats = fstatSync(file);
      if (!stats.isFile() || stats.size > recordBytesMax) return undefined;
      const value: unknown = JSON.parse(readFileSync(file, 'utf8'));
      return isJsonObject(value) ? (value as Partial<IdentityRecord>) : undefined;
    } finally {
      closeSync(file);
    }
  } catch {
    return undefined;
  }
}

/** A model of a thousand layers needs a hundredth of it. */
const recordBytesMax = 1024 ** 2;

export function entriesOf(path: string) {
  try {
    return readdirSync(path, { withFileTypes: true });
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

function readableEntriesOf(path: string) {
  try {
    return entriesOf(path);
  } catch {
    return [];
  }
}
