import { mkdirSync, statSync } from 'node:fs';
import { mkdir, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

/**
 * Creates a folder and the folders above it, with at most one attempt per folder of the path. Node's recursive `mkdir`
 * never ends if the system answers ENOENT for a child of an existing folder, as below `/proc`. Throws the error of
 * `mkdir`.
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

/** Ignores the error if the folder exists. */
async function makeFolder(path: string, mode: number): Promise<void> {
  try {
    await mkdir(path, { mode });
  } catch (error) {
    const found = await stat(path).catch(() => undefined);
    if (found?.isDirectory() !== true) throw error;
  }
}

/** The same, synchronously, for a thread that may block. */
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
