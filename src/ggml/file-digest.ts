import { createHash } from 'node:crypto';
import { lstat, readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { defaultCacheFolder } from '../base/cache-folder.ts';
import { CallThread } from '../base/call-thread.ts';
import { removeAbandoned, writeDurably } from '../base/durable-file.ts';
import { isJsonObject } from '../base/json.ts';
import { makeFolders } from '../base/make-folders.ts';
import { entryPoint } from '../base/package-files.ts';
import { modelFileChanged, withModelFile } from './errors.ts';
import { type FileState, isSameState, stateNow } from './file-state.ts';

/** The digest of all bytes of a file, and the state of the file to which it belongs. Plain data. */
export interface FileDigest {
  readonly sha256: string;
  readonly state: FileState;
}

export interface DigestOptions {
  /** Default: the user's cache folder. */
  readonly cacheFolder?: string | undefined;
  /** Called while a file is hashed; not called if the digest is cached. */
  readonly onProgress?: ((hashedBytes: number, totalBytes: number) => void) | undefined;
  /** Called if the digest cannot be stored. */
  readonly event?: ((message: string) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly wallNowMs?: () => number;
}

/** The answer of the thread: its progress, and after the last part the digest. */
export interface DigestedPart {
  readonly hashedBytes: number;
  readonly before: FileState;
  readonly whole?: { readonly sha256: string; readonly after: FileState };
}

/**
 * The sha256 of a file, as from `sha256sum`. The file is hashed on another thread, and the digest is cached for the
 * file's path, size, inode and dates. If a cached record is not certain, the file is hashed again: see `readRecord`.
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
  throw modelFileChanged({ path, problem: `it was written ${attemptsMax} times while it was hashed` });
}

const attemptsMax = 3;

/**
 * Whether a later change gives the file other dates. Clocks of file systems advance every few milliseconds, some only
 * every two seconds. Dates in the future come from another clock, or from this clock before it was set back, so they
 * are not used.
 */
function isSettled({ modifiedNs, changedNs }: FileState, nowMs: number): boolean {
  const latestMs = Math.max(Number(modifiedNs), Number(changedNs)) / 1e6;
  return latestMs < nowMs - 2_000;
}

/** Undefined if the file changed while it was hashed. */
async function hashOnThread(path: string, { onProgress, signal }: DigestOptions): Promise<FileDigest | undefined> {
  const thread = new CallThread<undefined, DigestedPart>(entryPoint('src/ggml/file-digest-main'), path, 'hash');
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

// --- Cached digests ------------------------------------------------------------------------------------------------

const recordPath = (cacheFolder: string, path: string): string =>
  join(cacheFolder, 'digests', `${sha256(resolve(path)).slice(0, 32)}.json`);

/** Ignores a record that is truncated or changed, or that belongs to another path or another version. */
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
      `The digest of ${path} cannot be cached: ${reason}. The file is hashed again at each start. Set XDG_CACHE_HOME to a folder that can be written.`,
    );
  }
}

const checksumOf = (path: string, { sha256: digest, state }: FileDigest): string => {
  const { bytes, inode, modifiedNs, changedNs } = state;
  return sha256(JSON.stringify(['kvasir digest 1', resolve(path), digest, bytes, inode, modifiedNs, changedNs]));
};

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
