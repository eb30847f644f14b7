import { randomBytes } from 'node:crypto';
import {
  accessSync,
  closeSync,
  constants,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  statSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { isJsonObject } from '../../../base/json.ts';
import { makeFoldersSync } from '../../../base/make-folders.ts';
import { replaceFileSync } from '../../../base/replace-file.ts';
import { type BlockKey, digestHexOfKey, groupOfKey, isBlockKey } from '../../block-key.ts';
import type { KvIdentity } from '../../connector.ts';
import { type SaltTag, saltTagBytes } from '../../salt-tag.ts';
import type { ClearFilter } from '../../tier-orders.ts';
import { saltTagAt, saltTagIn } from '../block-header.ts';
import { hasSaltTag } from '../clear-filter.ts';
import {
  differences,
  type IdentityRecord,
  identityRecord,
  modelFolder,
  modelFolderPrefix,
  rankFolder,
} from '../identity.ts';
import { whyNotDirect } from './direct-io.ts';
import type { ClearedFiles, DiskAnswers } from './disk-calls.ts';
import { isMissing, isTemporary, removeIfThere, type StillWanted, temporaryNameFor } from './disk-file.ts';

export interface PrepareOptions {
  readonly nowMs: number;
  /** Whether files are to be read and written without the system's cache. */
  readonly isDirect: boolean;
}

/**
 * The layout of blocks on a disk:
 *
 *   <root>/kv-<digest of fingerprint, dtype, block sizes>/rank0of1/config.json     the identity in clear text
 *                                                                 /3f/<digest>-g0.kv
 *                                                                 /quarantine/<file>.<reason>
 *
 * All calls block and may never return, except those that only compose names. They run on I/O threads
 * (`disk-thread-main.ts`).
 */
export class DiskFolder {
  readonly path: string;

  constructor(root: string, identity: KvIdentity) {
    this.path = join(root, modelFolder(identity), rankFolder(identity));
  }

  /**
   * Creates the folder and its record. Returns an event if the record was another model's. Reads nothing outside of the
   * folder. Throws the errors of the file system.
   */
  prepare(identity: KvIdentity, { nowMs, isDirect }: PrepareOptions): DiskAnswers['prepare'] {
    makeFoldersSync(this.path);
    const hasBlocks = entriesOf(this.path).some(({ name }) => blockFolder.test(name));
    const mismatch = this.#claim(identityRecord(identity), nowMs);
    const events = mismatch === undefined ? [] : [mismatch];
    const obstacle = isDirect ? whyNotDirect(join(this.path, 'config.json')) : undefined;
    if (obstacle !== undefined) {
      events.push(`${this.path}: direct_io is not possible here (${obstacle}): files go through the system's cache.`);
    }
    return { hasBlocks, isDirect: isDirect && obstacle === undefined, events };
  }

  /** Events about other models' folders in the directory, for an operator whose own folder has no blocks. */
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
   * All blocks with their sizes, least recently used first, except those in unreadable folders. Removes abandoned temporary files and
   * expired blocks; their age is relative to `nowMs`.
   */
  scan(nowMs: number, ttlMs?: number): DiskAnswers['scan'] {
    this.#markUsed(nowMs);
    const found: { key: BlockKey; bytes: number; usedMs: number }[] = [];
    const expired: BlockKey[] = [];
    const visit = (folder: string, name: string): void => {
      const path = join(folder, name);
      const key = keyOfFile(name);
      if (key === undefined && !isTemporary(name)) return;
      try {
        const { size, mtimeMs } = statSync(path);
        if (key !== undefined && isExpired(mtimeMs, nowMs, ttlMs)) {
          unlinkSync(path);
          expired.push(key);
        } else if (key !== undefined) found.push({ key, bytes: size, usedMs: mtimeMs });
        else if (nowMs - mtimeMs > abandonedAfterMs) unlinkSync(path);
      } catch (error) {
        // Another process has removed the file.
        if (!isMissing(error)) throw error;
      }
    };
    for (const { name } of entriesOf(this.path)) {
      if (isTemporary(name)) visit(this.path, name);
      if (!blockFolder.test(name)) continue;
      const folder = join(this.path, name);
      for (const file of readableEntriesOf(folder)) visit(folder, file.name);
    }
    return { found: found.sort((a, b) => a.usedMs - b.usedMs), expired };
  }

  /** Parallel to `keys`. Undefined: the block has no salt, or its file cannot be read. */
  saltTags(keys: readonly BlockKey[], stillWanted: StillWanted): (SaltTag | undefined)[] {
    return keys.map((key) => {
      stillWanted();
      try {
        const head = headOf(this.fileOf(key));
        return head.length < saltTagAt + saltTagBytes ? undefined : saltTagIn(head);
      } catch {
        return undefined;
      }
    });
  }

  /** Removes the files that were neither written nor read since `beforeMs`, of any salt or of one. Other processes may remove them too. */
  clear({ saltTag, beforeMs = Infinity }: ClearFilter, stillWanted: StillWanted): ClearedFiles {
    const removed: { key: BlockKey; bytes: number }[] = [];
    let failed = 0;
    for (const { name } of entriesOf(this.path)) {
      if (!blockFolder.test(name)) continue;
      const folder = join(this.path, name);
      for (const file of entriesOf(folder)) {
        const key = keyOfFile(file.name);
        if (key === undefined) continue;
        stillWanted();
        try {
          const path = join(folder, file.name);
          const { size, mtimeMs } = statSync(path);
          if (mtimeMs >= beforeMs || (saltTag !== undefined && !hasSaltTag(headOf(path), saltTag))) continue;
          unlinkSync(path);
          removed.push({ key, bytes: size });
        } catch (error) {
          if (!isMissing(error)) failed++;
        }
      }
    }
    return { removed, failed };
  }

  /** Moves a corrupt file to `quarantine/`, so the block can be stored again. Removes it if the quarantine is full. */
  quarantine(key: BlockKey, reason: string): void {
    const file = this.fileOf(key);
    const folder = join(this.path, 'quarantine');
    try {
      const kept = entriesOf(folder);
      if (kept.length >= quarantinedMax) unlinkSync(file);
      else {
        makeFoldersSync(folder);
        replaceFileSync(file, join(folder, `${digestHexOfKey(key)}-g${groupOfKey(key)}.kv.${reason}`));
      }
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
  }

  /** The date of the record shows engines of other models that this folder is in use (`other-folders.ts`). */
  #markUsed(nowMs: number): void {
    try {
      utimesSync(join(this.path, 'config.json'), nowMs / 1000, nowMs / 1000);
    } catch {
      // A read-only store can still be read.
      return;
    }
  }

  /**
   * Writes the record. If it replaces another record, returns the differences. Blocks are always verified by their
   * headers.
   */
  #claim(record: IdentityRecord, nowMs: number): string | undefined {
    const path = join(this.path, 'config.json');
    const theirs = readRecord(path);
    const different = theirs === undefined ? ['nothing readable'] : differences(theirs, record);
    if (different.length === 0) {
      this.#markUsed(nowMs);
      return undefined;
    }
    const temporary = join(this.path, this.newTemporaryName(path));
    try {
      writeFileSync(temporary, `${JSON.stringify(record, undefined, 2)}\n`);
      replaceFileSync(temporary, path);
    } catch (error) {
      removeIfThere(temporary);
      throw error;
    }
    return theirs === undefined ? undefined : `${path} described another model or layout: ${different.join('; ')}`;
  }
}

/**
 * Throws the error of the file system if no model could use the directory: it cannot be created or read, or it cannot be written and has no
 * model's folder, which could be read.
 */
export function checkRoot(root: string): void {
  makeFoldersSync(root);
  if (entriesOf(root).some(({ name }) => name.startsWith(modelFolderPrefix)))
    accessSync(root, constants.R_OK | constants.X_OK);
  else accessSync(root, constants.R_OK | constants.W_OK | constants.X_OK);
}

/** The date of a file is the date of its last use, also for other engines. */
export const isExpired = (usedMs: number, nowMs: number, ttlMs = Number.POSITIVE_INFINITY): boolean =>
  nowMs - usedMs >= ttlMs;

const quarantinedMax = 64;
/**
 * A temporary file of this age is abandoned. A save takes a fraction of this time, and clocks of machines that share a
 * directory differ by less. If the writer still runs, its save fails, and the block is a miss.
 */
export const abandonedAfterMs = 24 * 3_600_000;

/** One for this process and thread, because a rank may open one folder twice. */
const thisInstance = randomBytes(12).toString('hex');
let serial = 0;

export function keyOfFile(name: string): BlockKey | undefined {
  const match = /^([0-9a-f]{64})-g(\d+)\.kv$/.exec(name);
  if (match === null) return undefined;
  const key = `${match[2]}-${match[1]}`;
  return isBlockKey(key) ? key : undefined;
}

/** The bytes up to the tag of the cache salt, or all bytes of a shorter file. */
function headOf(path: string): Uint8Array {
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const head = new Uint8Array(saltTagAt + saltTagBytes);
    return head.subarray(0, readSync(file, head, 0, head.length, 0));
  } finally {
    closeSync(file);
  }
}

function neighbours(root: string, ours: string, record: IdentityRecord): string[] {
  const events: string[] = [];
  for (const model of entriesOf(root)) {
    for (const rank of entriesOf(join(root, model.name))) {
      const path = join(root, model.name, rank.name);
      if (path === ours || !rank.name.startsWith('rank')) continue;
      const theirs = readRecord(join(path, 'config.json'));
      if (theirs === undefined) continue;
      // Skips the other ranks of this run.
      if (dirname(path) === dirname(ours) && theirs.worldSize === record.worldSize) continue;
      events.push(`${path} has KV that does not match: ${differences(theirs, record).join('; ')}`);
      if (events.length >= eventsMax) return events;
    }
  }
  return events;
}

const eventsMax = 8;
/** The name is the first two digits of the keys in the folder. */
export const blockFolder = /^[0-9a-f]{2}$/;

/** Records in a shared folder may be a FIFO or a large file, which must neither block the start nor fill the memory. */
export function readRecord(path: string): Partial<IdentityRecord> | undefined {
  try {
    const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
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

/** A model of a thousand layers needs a hundredth of this. */
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
