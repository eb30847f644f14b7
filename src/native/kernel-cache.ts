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
 *   <source>-<digest of what it was compiled from>-<sha256 of the library>.so
 *
 * The name says what the content must be, so a library that was torn by a power cut, cut in half or changed is found before
 * it is loaded: loading it could end the process. There is no second file that could disagree. Two compilers that give one
 * source different bytes give it two files, and either of them will do.
 */
export interface CachedLibrary {
  /** The whole library; undefined when there is none. */
  readonly path: string | undefined;
  /** Its content, as it was checked. */
  readonly library: Uint8Array | undefined;
  /** Files whose content is not what their name says. */
  readonly damaged: number;
}

const cacheName = (key: string, digest: string): string => `${key}-${digest}.so`;

/** Never throws: a cache that cannot be read counts as empty. */
export async function findLibrary(folder: string, key: string): Promise<CachedLibrary> {
  let damaged = 0;
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
  for (const { name } of entries.filter((entry) => entry.isFile() && entry.name.startsWith(`${key}-`))) {
    const path = join(folder, name);
    const bytes = await readFile(path).catch(() => undefined);
    if (bytes === undefined) continue;
    if (name === cacheName(key, sha256(bytes))) return { path, library: bytes, damaged };
    damaged++;
  }
  return { path: undefined, library: undefined, damaged };
}

/** Copies in memory of libraries that this process has loaded, by digest. */
const sealed = new Map<string, string | undefined>();

/**
 * Where to load a library from, so that its bytes cannot change after they were checked: a process that has loaded a file ends with
 * SIGBUS if the file is truncated in place. Undefined where the system cannot do it.
 */
export function sealedPath(key: string, library: Uint8Array): string | undefined {
  const digest = sha256(library);
  if (!sealed.has(digest)) sealed.set(digest, sealedFile(`kvasir-${key}`, library));
  return sealed.get(digest);
}

/** Keeps a library for later starts; returns where it lies. Throws what the file system throws. */
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

/** A library in it is in use until the process ends. */
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
