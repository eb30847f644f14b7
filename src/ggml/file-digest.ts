import { createHash } from 'node:crypto';
import { lstat, readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { defaultCacheFolder } from '../base/cache-folder.ts';
import { CallThread, threadEntry } from '../base/call-thread.ts';
import { removeAbandoned, writeDurably } from '../base/durable-file.ts';
import { isJsonObject } from '../base/json.ts';
import { makeFolders } from '../base/make-folders.ts';
import { modelFileChanged, withModelFile } from './errors.ts';
import { type FileState, isSameState, stateNow } from './file-state.ts';

/** Every byte of a file as one name, and of which state of the file it is. Plain data. */
export interface FileDigest {
  readonly sha256: string;
  readonly state: FileState;
}

export interface DigestOptions {
  /** Default: the user's cache folder. */
  readonly cacheFolder?: string | undefined;
  /** Called while a file is hashed, and not when its digest is known. */
  readonly onProgress?: ((hashedBytes: number, totalBytes: number) => void) | undefined;
  /** Called if the digest cannot be stored. */
  readonly event?: ((message: string) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly wallNowMs?: () => number;
}

/** What the thread answers: how far it is, and the digest when that is the whole file. */
export interface DigestedPart {
  readonly hashedBytes: number;
  readonly before: FileState;
  readonly whole?: { readonly sha256: string; readonly after: FileState };
}

/**
 * The sha256 of a file, as `sha256sum` has it. The file is hashed once, on a thread of its own, and the digest is kept in the
 * cache folder for the file's path, size, inode and dates. In any doubt the file is hashed again: see `readRecord`.
 * Throws `modelFileUnreadable`, `modelFileChanged`, or the reason of `signal`.
 */
export async function digestFile(path: string, options: DigestOptions = {}): Promise<FileDigest> {
  const { cacheFolder = defaultCacheFolder(), wallNowMs = Date.now, signal } = options;
  const record = cacheFolder === undefined ? undefined : recordPath(cacheFolder, path);
  const startedMs = wallNowMs();
  const state = await stateNow(path);
  const known = record === undefined ? undefined : await readRecord(record, path);
  if (known !== undefined && isSameState(known.state, state) && isSettled(state, startedMs)) return known;
  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    signal?.throwIfAborted();
    const digest = await hashOnThread(path, options);
    if (digest === undefined) continue;
    if (record !== undefined && isSettled(digest.state, startedMs)) await keep(record, path, digest, options);
    return digest;
  }
  throw modelFileChanged({ path, problem: `something wrote it ${attemptsMax} times while it was hashed` });
}

const attemptsMax = 3;

/**
 * Whether a later change gives the file other dates: clocks of file systems tick every few milliseconds, some only every two
 * seconds. Dates in the future come from another clock, or from this one before it was set back: they prove nothing.
 */
function isSettled({ modifiedNs, changedNs }: FileState, nowMs: number): boolean {
  const latestMs = Math.max(Number(modifiedNs), Number(changedNs)) / 1e6;
  return latestMs < nowMs - 2_000;
}

/** Undefined when the file changed meanwhile. */
async function hashOnThread(path: string, { onProgress, signal }: DigestOptions): Promise<FileDigest | undefined> {
  const thread = new CallThread<undefined, DigestedPart>(
    threadEntry(import.meta.url, 'file-digest-main'),
    path,
    'hash',
  );
  try {
    for (;;) {
      const { hashedBytes, before, whole } = await thread.call(undefined);
      signal?.throwIfAborted();
      onProgress?.(Math.min(hashedBytes, before.bytes), before.bytes);
      if (whole === undefined) continue;
      const isWhole = hashedBytes === before.bytes && isSameState(before, whole.after);
      return isWhole && isSameState(before, await stateNow(path)) ? { sha256: whole.sha256, state: before } : undefined;
    }
  } catch (error) {
    throw withModelFile(path, error);
  } finally {
    thread.end();
  }
}

// --- Digests that are kept -----------------------------------------------------------------------------------------

const recordPath = (cacheFolder: string, path: string): string =>
  join(cacheFolder, 'digests', `${sha256(resolve(path)).slice(0, 32)}.json`);

/** A record that was cut, changed, written for another path or by another version is ignored. */
async function readRecord(record: string, path: string): Promise<FileDigest | undefined> {
  try {
    if (!(await lstat(record)).isFile()) return undefined;
    const value: unknown = JSON.parse(await readFile(record, 'utf8'));
    if (!isJsonObject(value) || !isJsonObject(value.state) || typeof value.sha256 !== 'string') return undefined;
    const digest = { sha256: value.sha256, state: value.state as unknown as FileState };
    return value.checksum === checksumOf(path, digest) ? digest : undefined;
  } catch {
    return undefined;
  }
}

async function keep(record: string, path: string, digest: FileDigest, { event }: DigestOptions): Promise<void> {
  const text = `${JSON.stringify({ path: resolve(path), ...digest, checksum: checksumOf(path, digest) }, undefined, 2)}\n`;
  try {
    const folder = join(record, '..');
    await makeFolders(folder, 0o700);
    await removeAbandoned(folder);
    await writeDurably(record, new TextEncoder().encode(text));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    event?.(
      `The digest of ${path} cannot be kept: ${reason}. The file is hashed again at each start. Set XDG_CACHE_HOME to a folder that can be written.`,
    );
  }
}

const checksumOf = (path: string, { sha256: digest, state }: FileDigest): string => {
  const { bytes, inode, modifiedNs, changedNs } = state;
  return sha256(JSON.stringify(['kvasir digest 1', resolve(path), digest, bytes, inode, modifiedNs, changedNs]));
};

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
