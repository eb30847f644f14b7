import { randomUUID } from 'node:crypto';
import { open, readdir, rename, stat, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

/**
 * Writes a whole file or none: a temporary file of the same folder is filled, synced to the disk and renamed. After a power
 * cut the name leads to the old bytes or to the new ones. Several processes may write one path at once. Throws what the
 * file system throws, and leaves nothing behind then.
 */
export async function writeDurably(path: string, bytes: Uint8Array): Promise<void> {
  const temporary = join(dirname(path), `.${basename(path)}.${randomUUID()}.tmp`);
  try {
    const handle = await open(temporary, 'wx', 0o600);
    try {
      await handle.writeFile(bytes);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await unlink(temporary).catch(() => undefined);
    throw error;
  }
  await syncFolder(dirname(path));
}

/** Some systems sync no folders: a power cut may lose the newest names there. */
async function syncFolder(path: string): Promise<void> {
  try {
    const handle = await open(path, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  } catch {
    return;
  }
}

/** Removes temporary files of `writeDurably` whose writers are gone: no write takes a day. Never throws. */
export async function removeAbandoned(folder: string, wallNowMs: number = Date.now()): Promise<void> {
  for (const name of await readdir(folder).catch(() => [])) {
    if (!/^\..+\.tmp$/.test(name)) continue;
    const path = join(folder, name);
    const found = await stat(path).catch(() => undefined);
    if (found !== undefined && wallNowMs - found.mtimeMs > 24 * 3_600_000) await unlink(path).catch(() => undefined);
  }
}
