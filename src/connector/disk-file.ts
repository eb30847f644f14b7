import { close, open as openNumbered, readv } from 'node:fs';
import { type FileHandle, open, rename, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { makeFolders } from '../base/make-folders.ts';
import { headerBytes } from './block-header.ts';

/**
 * One block in one file, header first. Writing is atomic: the bytes go into a temporary file of the same folder, which
 * is renamed when it is whole, so that a reader, another process or a crash meets the whole file or none.
 */

// Reads go by numbers and not by handles, which take more of the event loop than the bytes do of the disk's cache.
const [openFile, readFile, closeFile] = [promisify(openNumbered), promisify(readv), promisify(close)];

/** What a read found. `storedBytes` counts at most one byte more than a block has: enough to know that it is too long. */
export interface ReadBlock {
  readonly header: Uint8Array;
  readonly storedBytes: number;
}

/**
 * Reads header and payload in one call, the payload straight into `into`. Undefined when there is no file. When it has
 * settled, nothing writes `into` any more.
 */
export async function readBlockFile(
  path: string,
  into: Uint8Array,
  signal: AbortSignal,
): Promise<ReadBlock | undefined> {
  const file = await openIfThere(path);
  if (file === undefined) return undefined;
  try {
    signal.throwIfAborted();
    const header = new Uint8Array(headerBytes);
    const storedBytes = await readInto(file, [header, into, new Uint8Array(1)]);
    return { header, storedBytes };
  } finally {
    // Not waited for: the bytes can be looked at meanwhile, and of a file that was read there is nothing left to fail.
    closeFile(file).catch(() => {});
  }
}

async function openIfThere(path: string): Promise<number | undefined> {
  try {
    return await openFile(path, 'r');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** Fills the buffers one after the other; returns how many bytes there were. A file that ends a byte early ends. */
async function readInto(file: number, buffers: readonly Uint8Array[]): Promise<number> {
  const wanted = buffers.reduce((sum, { length }) => sum + length, 0);
  let total = 0;
  while (total < wanted) {
    const { bytesRead } = await readFile(file, remaining(buffers, total), total);
    total += bytesRead;
    // All but the last buffer, which only asks whether there is more: a regular file is read short at its end only.
    if (bytesRead === 0 || total === wanted - 1) break;
  }
  return total;
}

export interface WriteOptions {
  /** Distinguishes temporary files of this process from all others'. */
  readonly temporaryName: string;
  /** Whether the bytes are on the disk, and not only in the system's memory, before the block can be found. */
  readonly fsync: boolean;
}

/** Throws what the file system throws; nothing is left behind then but perhaps a temporary file. */
export async function writeBlockFile(
  path: string,
  parts: readonly Uint8Array[],
  signal: AbortSignal,
  options: WriteOptions,
): Promise<void> {
  const temporary = join(dirname(path), options.temporaryName);
  const handle = await createFile(temporary);
  try {
    try {
      signal.throwIfAborted();
      await writeAll(handle, parts);
      if (options.fsync) await handle.datasync();
    } finally {
      await handle.close();
    }
    signal.throwIfAborted();
    await rename(temporary, path);
  } catch (error) {
    await unlink(temporary).catch(() => {});
    throw error;
  }
  if (options.fsync) await syncFolder(dirname(path));
}

async function createFile(path: string): Promise<FileHandle> {
  try {
    return await open(path, 'wx');
  } catch (error) {
    if (!isMissing(error)) throw error;
    await makeFolders(dirname(path));
    return open(path, 'wx');
  }
}

async function writeAll(handle: FileHandle, parts: readonly Uint8Array[]): Promise<void> {
  const wanted = parts.reduce((sum, { length }) => sum + length, 0);
  for (let total = 0; total < wanted; ) {
    const { bytesWritten } = await handle.writev(remaining(parts, total), total);
    if (bytesWritten === 0) throw new Error('the file system takes no more bytes');
    total += bytesWritten;
  }
}

/** The buffers without their first `skip` bytes. */
function remaining(buffers: readonly Uint8Array[], skip: number): Uint8Array[] {
  const rest: Uint8Array[] = [];
  for (const buffer of buffers) {
    if (skip < buffer.length) rest.push(buffer.subarray(Math.max(0, skip)));
    skip -= buffer.length;
  }
  return rest;
}

/** Not every system lets a folder be synced; without it a power cut may lose the newest names, nothing more. */
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

/** The system's name for what went wrong; an aborted signal's reason has a code too, but a number. */
export function codeOf(error: unknown): string | undefined {
  const code: unknown = (error as NodeJS.ErrnoException | undefined)?.code;
  return typeof code === 'string' ? code : undefined;
}

export const isMissing = (error: unknown): boolean => codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR';
export const isFull = (error: unknown): boolean => ['ENOSPC', 'EDQUOT'].includes(codeOf(error) ?? '');

/**
 * `.<file>.<instance>.<serial>.tmp`. The instance is random and new in each process: containers may share a host name and
 * process ids, so neither of them tells two writers apart.
 */
export const temporaryNameFor = (path: string, instance: string, serial: number): string =>
  `.${basename(path)}.${instance}.${serial}.tmp`;

export const isTemporary = (name: string): boolean => /^\..+\.tmp$/.test(name);
