import { mkdirSync, statSync } from 'node:fs';
import { mkdir, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

/**
 * Creates a folder and the folders above it. At most one attempt per folder of the path: Node's own recursive `mkdir` never
 * ends where the system answers ENOENT for a child of a folder that exists, as it does below `/proc`. Throws what `mkdir`
 * throws.
 */
export async function makeFolders(path: string, mode = 0o777): Promise<void> {
  const whole = resolve(path);
  try {
    await makeFolder(whole, mode);
  } catch (error) {
    const parent = dirname(whole);
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || parent === whole) throw error;
    await makeFolders(parent, mode);
    await makeFolder(whole, mode);
  }
}

/** A folder that exists already is fine, whatever the system says about it. */
async function makeFolder(path: string, mode: number): Promise<void> {
  try {
    await mkdir(path, { mode });
  } catch (error) {
    const found = await stat(path).catch(() => undefined);
    if (found?.isDirectory() !== true) throw error;
  }
}

/** The same for a thread that may block. */
export function makeFoldersSync(path: string, mode = 0o777): void {
  const whole = resolve(path);
  try {
    makeFolderSync(whole, mode);
  } catch (error) {
    const parent = dirname(whole);
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || parent === whole) throw error;
    makeFoldersSync(parent, mode);
    makeFolderSync(whole, mode);
  }
}

function makeFolderSync(path: string, mode: number): void {
  try {
    mkdirSync(path, { mode });
  } catch (error) {
    if (!isFolder(path)) throw error;
  }
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}
