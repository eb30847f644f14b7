import { randomUUID } from 'node:crypto';
import { open, readdir, stat, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { replaceFile } from './replace-file.ts';

/**
 * Writes a file atomically: writes a temporary file in the same folder, syncs it to the disk and renames it. After a
 * power cut the path has the old bytes or the new bytes. Several processes may write the same path at the same time.
 * Throws the error of the file system, and then removes the temporary file.
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
    await replaceFile(temporary, path);
  } catch (error) {
    await unlink(temporary).catch(() => undefined);
    throw error;
  }
  await syncFolder(dirname(path));
}

/** Some systems cannot sync folders; there a power cut may lose the newest names. */
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

/** Removes temporary files of `writeDurably` that are older than a day: their writers have ended. Never throws. */
export async function removeAbandoned(folder: string, wallNowMs: number = Date.now()): Promise<void> {
  for (const name of await readdir(folder).catch(() => [])) {
    if (!/^\..+\.tmp$/.test(name)) continue;
    const path = join(folder, name);
    const found = await stat(path).catch(() => undefined);
    if (found !== undefined && wallNowMs - found.mtimeMs > 24 * 3_600_000) await unlink(path).catch(() => undefined);
  }
}
