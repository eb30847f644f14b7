import { createHash } from 'node:crypto';
import { rmSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { removeAbandoned, writeDurably } from '../base/durable-file.ts';
import { makeFolders } from '../base/make-folders.ts';
import { sealedFile } from '../ggml/libc.ts';

/**
 * Compiled libraries in a folder that processes share:
 *
 *   <source>-<digest of all inputs of the compilation>-<sha256 of the library>.so
 *
 * The name has the digest of the content, so a library that is incomplete or changed is found before it is loaded.
 * Loading it could end the process. If two compilations of one source give different bytes, there are two files, and
 * each of them is valid.
 */
export interface CachedLibrary {
  /** Undefined if no file is valid. */
  readonly path: string | undefined;
  /** The content that was checked. */
  readonly library: Uint8Array | undefined;
  /** Files whose content does not have the digest of their name. */
  readonly corruptCount: number;
}

const cacheName = (key: string, digest: string): string => `${key}-${digest}.so`;

/** Never throws: a cache that cannot be read counts as empty. */
export async function findLibrary(folder: string, key: string): Promise<CachedLibrary> {
  let corruptCount = 0;
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
  for (const { name } of entries.filter((entry) => entry.isFile() && entry.name.startsWith(`${key}-`))) {
    const path = join(folder, name);
    const bytes = await readFile(path).catch(() => undefined);
    if (bytes === undefined) continue;
    if (name === cacheName(key, sha256(bytes))) return { path, library: bytes, corruptCount };
    corruptCount++;
  }
  return { path: undefined, library: undefined, corruptCount };
}

/** Copies in memory of libraries that this process has loaded, by digest. */
const sealed = new Map<string, string | undefined>();

/**
 * The path of a copy in memory, whose bytes cannot change after the check. A process that has loaded a file ends with
 * SIGBUS if the file is truncated in place. Undefined if the system has no such files.
 */
export function sealedPath(key: string, library: Uint8Array): string | undefined {
  const digest = sha256(library);
  if (!sealed.has(digest)) sealed.set(digest, sealedFile(`kvasir-${key}`, library));
  return sealed.get(digest);
}

/** Stores a library for later starts; returns its path. Throws errors of the file system. */
export async function keepLibrary(folder: string, key: string, library: Uint8Array): Promise<string> {
  await makeFolders(folder, 0o700);
  await removeAbandoned(folder);
  const path = join(folder, cacheName(key, sha256(library)));
  await writeDurably(path, library);
  return path;
}

/** A folder of this process alone, for one compiler's output. */
export const newWorkFolder = (): Promise<string> => mkdtemp(join(tmpdir(), 'kvasir-kernel-'));

const kept = new Set<string>();

/** Removes the folder when the process exits: until then its library is in use. */
export function keepUntilExit(workFolder: string): void {
  if (kept.size === 0) {
    process.once('exit', () => {
      for (const path of kept) rmSync(path, { recursive: true, force: true });
    });
  }
  kept.add(workFolder);
}

export const removeWorkFolder = (path: string): Promise<void> =>
  rm(path, { recursive: true, force: true }).catch(() => undefined);

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
