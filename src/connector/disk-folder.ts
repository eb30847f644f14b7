import { randomBytes } from 'node:crypto';
import { readdir, readFile, rename, stat, unlink, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isJsonObject } from '../base/json.ts';
import { makeFolders } from '../base/make-folders.ts';
import { type BlockKey, digestHexOfKey, groupOfKey, isBlockKey } from './block-key.ts';
import type { KvIdentity } from './connector.ts';
import { isMissing, isTemporary, temporaryNameFor } from './disk-file.ts';
import { storageUnusable } from './errors.ts';
import { differences, type IdentityRecord, identityRecord, modelFolder, rankFolder } from './identity.ts';

/**
 * How blocks lie on a disk:
 *
 *   <root>/kv-<digest of fingerprint, dtype, block sizes>/rank0of1/config.json     what this is, in clear text
 *                                                                 /3f/<digest>-g0.kv
 *                                                                 /quarantine/<file>.<reason>
 */
export class DiskFolder {
  readonly path: string;
  /** What was found at the start and an operator should know: other models' blocks and none of ours, a foreign record. */
  readonly notices: readonly string[];
  readonly #wallNowMs: () => number;

  private constructor(path: string, notices: readonly string[], wallNowMs: () => number) {
    this.path = path;
    this.notices = notices;
    this.#wallNowMs = wallNowMs;
  }

  /** Throws `storageUnusable` when it cannot be written. `wallNowMs` is what ages of files are compared with. */
  static async open(root: string, identity: KvIdentity, wallNowMs: () => number): Promise<DiskFolder> {
    const path = join(root, modelFolder(identity), rankFolder(identity));
    try {
      await makeFolders(path);
      const record = identityRecord(identity);
      // Several models may share a directory: neighbours are news to somebody who finds nothing of his own.
      const hasBlocks = (await entriesOf(path)).some(({ name }) => blockFolder.test(name));
      const notices = hasBlocks ? [] : await neighbours(root, path, record);
      const folder = new DiskFolder(path, notices, wallNowMs);
      const mismatch = await folder.#claim(record);
      if (mismatch !== undefined) notices.unshift(mismatch);
      return folder;
    } catch (error) {
      throw storageUnusable({ path: root, reason: messageOf(error) }, error);
    }
  }

  fileOf(key: BlockKey): string {
    const digest = digestHexOfKey(key);
    return join(this.path, digest.slice(0, 2), `${digest}-g${groupOfKey(key)}.kv`);
  }

  newTemporaryName(path: string): string {
    return temporaryNameFor(path, thisInstance, serial++);
  }

  /** Every block with its size, oldest first. Removes temporary files that dead writers have left. */
  async scan(): Promise<{ readonly key: BlockKey; readonly bytes: number }[]> {
    await this.#markUsed();
    const found: { key: BlockKey; bytes: number; writtenMs: number }[] = [];
    const visit = async (folder: string, name: string): Promise<void> => {
      const path = join(folder, name);
      const key = keyOfFile(name);
      if (key === undefined && !isTemporary(name)) return;
      try {
        const { size, mtimeMs } = await stat(path);
        if (key !== undefined) found.push({ key, bytes: size, writtenMs: mtimeMs });
        else if (this.#wallNowMs() - mtimeMs > abandonedAfterMs) await unlink(path);
      } catch (error) {
        // Another process was quicker.
        if (!isMissing(error)) throw error;
      }
    };
    for (const { name } of await entriesOf(this.path)) {
      if (isTemporary(name)) await visit(this.path, name);
      if (!blockFolder.test(name)) continue;
      const folder = join(this.path, name);
      await forEachLimited(await entriesOf(folder), 8, (file) => visit(folder, file.name));
    }
    return found.sort((a, b) => a.writtenMs - b.writtenMs);
  }

  /** Moves a file that is not what its name says out of the way, to be looked at; only so many of them. */
  async quarantine(key: BlockKey, reason: string): Promise<void> {
    const file = this.fileOf(key);
    const folder = join(this.path, 'quarantine');
    try {
      const kept = await entriesOf(folder);
      if (kept.length >= quarantinedMax) await unlink(file);
      else {
        await makeFolders(folder);
        await rename(file, join(folder, `${digestHexOfKey(key)}-g${groupOfKey(key)}.kv.${reason}`));
      }
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
  }

  /** The date of the record tells engines of other models that this folder is in use (`other-folders.ts`). */
  async #markUsed(): Promise<void> {
    const now = this.#wallNowMs() / 1000;
    // A store that cannot be written is still read.
    await utimes(join(this.path, 'config.json'), now, now).catch(() => undefined);
  }

  /** Writes the record, or says how the one that lies there differs. Blocks are judged by their headers either way. */
  async #claim(record: IdentityRecord): Promise<string | undefined> {
    const path = join(this.path, 'config.json');
    const theirs = await readRecord(path);
    const different = theirs === undefined ? ['nothing readable'] : differences(theirs, record);
    if (different.length === 0) {
      await this.#markUsed();
      return undefined;
    }
    const temporary = join(this.path, this.newTemporaryName(path));
    await writeFile(temporary, `${JSON.stringify(record, undefined, 2)}\n`);
    await rename(temporary, path);
    return theirs === undefined ? undefined : `${path} was another's: ${different.join('; ')}`;
  }
}

const quarantinedMax = 64;
/**
 * A temporary file that was not written for so long has no living writer: no save takes a fraction of this time, and clocks
 * of machines that share a directory do not differ by as much. A writer that lives all the same finds its file gone, its
 * save fails, and the block is a miss.
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

async function neighbours(root: string, ours: string, record: IdentityRecord): Promise<string[]> {
  const notices: string[] = [];
  for (const model of await entriesOf(root)) {
    for (const rank of await entriesOf(join(root, model.name))) {
      const path = join(root, model.name, rank.name);
      if (path === ours || !rank.name.startsWith('rank')) continue;
      const theirs = await readRecord(join(path, 'config.json'));
      if (theirs === undefined) continue;
      // The other ranks of this very run are no news.
      if (dirname(path) === dirname(ours) && theirs.worldSize === record.worldSize) continue;
      notices.push(`${path} holds KV that does not match: ${differences(theirs, record).join('; ')}`);
      if (notices.length >= noticesMax) return notices;
    }
  }
  return notices;
}

const noticesMax = 8;
/** The first two digits of the keys in it. */
export const blockFolder = /^[0-9a-f]{2}$/;

export async function readRecord(path: string): Promise<Partial<IdentityRecord> | undefined> {
  try {
    const value: unknown = JSON.parse(await readFile(path, 'utf8'));
    return isJsonObject(value) ? (value as Partial<IdentityRecord>) : undefined;
  } catch {
    return undefined;
  }
}

export async function entriesOf(path: string) {
  try {
    return await readdir(path, { withFileTypes: true });
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

/** Runs `each` for all items, so many at a time. */
export async function forEachLimited<T>(
  items: readonly T[],
  limit: number,
  each: (item: T, index: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < items.length) {
      const index = next++;
      await each(items[index]!, index);
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, lane));
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
