import { closeSync, fsyncSync, openSync, unlinkSync, writevSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { makeFoldersSync } from '../../../base/make-folders.ts';
import { replaceFileSync } from '../../../base/replace-file.ts';

/**
 * One block in one file, header first. Writing is atomic: the bytes go into a temporary file in the same folder, which is
 * renamed when it is complete. Readers and other processes find the whole file or none, also after a crash.
 *
 * All calls block and may never return, so they run on I/O threads (`disk-thread-main.ts`).
 */

/** Called between two system calls: throws if the result is no longer needed. */
export type StillWanted = () => void;

export const gaveUp = (): Error => new Error('the call was given up');

export interface AtomicWriteOptions {
  /** Distinguishes temporary files of this process from all others'. */
  readonly temporaryName: string;
  /** How the temporary file is opened; it must not exist. */
  readonly flag: string | number;
  /** Whether the folder is synced to the disk; `write` syncs the file. */
  readonly fsync: boolean;
  readonly stillWanted: StillWanted;
}

export const newFileFlag = 'wx';

/** Throws the errors of the file system. After an error, only a temporary file may remain. */
export function writeFileAtomically(path: string, options: AtomicWriteOptions, write: (file: number) => void): void {
  const temporary = join(dirname(path), options.temporaryName);
  const file = createFile(temporary, options.flag);
  try {
    try {
      write(file);
    } finally {
      closeSync(file);
    }
    options.stillWanted();
    replaceFileSync(temporary, path);
  } catch (error) {
    removeIfThere(temporary);
    throw error;
  }
  if (options.fsync) syncFolder(dirname(path));
}

function createFile(path: string, flag: string | number): number {
  try {
    return openSync(path, flag);
  } catch (error) {
    if (!isMissing(error)) throw error;
    makeFoldersSync(dirname(path));
    return openSync(path, flag);
  }
}

/** Writes the parts, one after the other, from `position` on. */
export function writeAll(file: number, parts: readonly Uint8Array[], position: number): void {
  const wanted = parts.reduce((sum, { length }) => sum + length, 0);
  for (let total = 0; total < wanted; ) {
    const bytesWritten = writevSync(file, remaining(parts, total), position + total);
    if (bytesWritten === 0) throw new Error('the file system takes no more bytes');
    total += bytesWritten;
  }
}

/** The buffers without their first `skip` bytes. */
export function remaining(buffers: readonly Uint8Array[], skip: number): Uint8Array[] {
  const rest: Uint8Array[] = [];
  for (const buffer of buffers) {
    if (skip < buffer.length) rest.push(buffer.subarray(Math.max(0, skip)));
    skip -= buffer.length;
  }
  return rest;
}

/** Some systems cannot sync a folder. Then the newest files may be missing after a power failure. */
function syncFolder(path: string): void {
  try {
    const file = openSync(path, 'r');
    try {
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
  } catch {
    return;
  }
}

/** Never throws. */
export function removeIfThere(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    return;
  }
}

/** The system's error code, such as `ENOENT`. The reason of an aborted signal has a code too, but a number. */
export function codeOf(error: unknown): string | undefined {
  const code: unknown = (error as NodeJS.ErrnoException | undefined)?.code;
  return typeof code === 'string' ? code : undefined;
}

export const isMissing = (error: unknown): boolean => codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR';
export const isFull = (error: unknown): boolean => ['ENOSPC', 'EDQUOT'].includes(codeOf(error) ?? '');

/**
 * `.<file>.<instance>.<serial>.tmp`. The instance is random and new in each thread, because containers may have equal host
 * names and process ids.
 */
export const temporaryNameFor = (path: string, instance: string, serial: number): string =>
  `.${basename(path)}.${instance}.${serial}.tmp`;

export const isTemporary = (name: string): boolean => /^\..+\.tmp$/.test(name);
