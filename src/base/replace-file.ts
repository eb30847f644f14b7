import { randomUUID } from 'node:crypto';
import { renameSync, unlinkSync } from 'node:fs';
import { rename, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

/**
 * Renames a file, and replaces a file of that name. Windows refuses to replace a file that another thread or process has open, but lets it be
 * renamed. Then the old file is moved away first, and for a moment the path has no file. Throws the error of the first rename, and then
 * the old file has its name again.
 */
export async function replaceFile(from: string, to: string, calls = { rename, unlink }): Promise<void> {
  try {
    await calls.rename(from, to);
  } catch (error) {
    if (!isHeldOpen(error)) throw error;
    const old = temporaryBeside(to);
    await calls.rename(to, old).catch(() => {
      throw error;
    });
    await calls.rename(from, to).catch(async () => {
      await calls.rename(old, to).catch(() => undefined);
      throw error;
    });
    await calls.unlink(old).catch(() => undefined);
  }
}

/** The same, synchronously. */
export function replaceFileSync(from: string, to: string, calls = { renameSync, unlinkSync }): void {
  try {
    calls.renameSync(from, to);
  } catch (error) {
    if (!isHeldOpen(error)) throw error;
    const old = temporaryBeside(to);
    try {
      calls.renameSync(to, old);
    } catch {
      throw error;
    }
    try {
      calls.renameSync(from, to);
    } catch {
      attempt(() => calls.renameSync(old, to));
      throw error;
    }
    // If it stays, it is removed as an abandoned temporary file later.
    attempt(() => calls.unlinkSync(old));
  }
}

function attempt(call: () => void): void {
  try {
    call();
  } catch {
    return;
  }
}

/** Of Windows. On other systems, the folder has no permission for either rename. */
const isHeldOpen = (error: unknown): boolean =>
  ['EPERM', 'EACCES', 'EBUSY'].includes((error as NodeJS.ErrnoException).code ?? '');

const temporaryBeside = (path: string): string => join(dirname(path), `.${basename(path)}.${randomUUID()}.tmp`);
