import { createHash, type Hash } from 'node:crypto';
import { constants, type FileHandle, open, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { downloadCorrupt, downloadStopped, hubFolderUnusable } from './errors.ts';
import { HubCache } from './hub-cache.ts';
import type { HubBody, HubFile } from './hub-client.ts';
import { canPass, type Retries } from './retries.ts';

export interface DownloadOptions {
  readonly file: HubFile;
  readonly blobPath: string;
  /** Opens the file on the hub from an offset on. */
  readonly open: (offset: number) => Promise<HubBody>;
  readonly retries: Retries;
  readonly onProgress: (receivedBytes: number) => void;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Downloads a file, continues after lost connections, and compares its hash. Two processes may do this at the same time:
 * each writes the same bytes at the same places.
 * @throws downloadStopped, downloadCorrupt, hubRefused, hubFolderUnusable
 */
export async function downloadFile(options: DownloadOptions): Promise<void> {
  const { file, blobPath } = options;
  const path = HubCache.incompletePath(blobPath);
  const handle = await openIncomplete(path);
  try {
    const sha256 = await new Transfer(handle, options).run();
    if (file.sha256 !== undefined && sha256 !== file.sha256) {
      await rm(path, { force: true });
      throw downloadCorrupt({ file: file.path, expected: file.sha256, found: sha256 });
    }
    await onDisk(blobPath, async () => {
      await handle.truncate(file.bytes);
      await handle.sync();
      if (await isSameFile(handle, path)) await rename(path, blobPath).catch(() => undefined);
    });
    // Another process may have finished the same file, or may have removed it.
    const found = await stat(blobPath).catch(() => undefined);
    if (found?.size !== file.bytes) {
      const reason = 'another process has removed or renamed the file';
      throw downloadStopped({ file: file.path, receivedBytes: file.bytes, totalBytes: file.bytes, reason });
    }
  } finally {
    await handle.close();
  }
}

/** One file, over as many connections as it takes. */
class Transfer {
  readonly #handle: FileHandle;
  readonly #options: DownloadOptions;
  /** Of the bytes before `#position`. */
  #hash: Hash = createHash('sha256');
  #position = 0;

  constructor(handle: FileHandle, options: DownloadOptions) {
    this.#handle = handle;
    this.#options = options;
  }

  /** The sha256 of the file. */
  async run(): Promise<string> {
    const { file, retries, signal } = this.#options;
    await onDisk(this.#options.blobPath, () => this.#readArrived());
    for (let failures = 1; this.#position < file.bytes; failures++) {
      const before = this.#position;
      try {
        await this.#receive();
        if (this.#position < file.bytes) throw new Error('the connection ended early');
      } catch (error) {
        signal?.throwIfAborted();
        if (this.#position > before) failures = 1;
        if (!canPass(error)) throw error;
        if (failures >= retries.attemptsMax) throw this.#stopped(error);
        await retries.wait(failures, error, signal);
      }
    }
    return this.#hash.digest('hex');
  }

  /** Hashes what an earlier attempt has received. */
  async #readArrived(): Promise<void> {
    const buffer = Buffer.alloc(1 << 20);
    const { size } = await this.#handle.stat();
    const end = Math.min(size, this.#options.file.bytes);
    while (this.#position < end) {
      this.#options.signal?.throwIfAborted();
      const { bytesRead } = await this.#handle.read(
        buffer,
        0,
        Math.min(buffer.length, end - this.#position),
        this.#position,
      );
      if (bytesRead === 0) return;
      this.#advance(buffer.subarray(0, bytesRead));
    }
  }

  async #receive(): Promise<void> {
    const { file, blobPath, open: openAt, signal } = this.#options;
    const { offset, chunks } = await openAt(this.#position);
    if (offset !== this.#position) this.#restart();
    for await (const chunk of chunks) {
      signal?.throwIfAborted();
      const part = chunk.subarray(0, file.bytes - this.#position);
      await onDisk(blobPath, () => writeAll(this.#handle, part, this.#position));
      this.#advance(part);
      // More bytes than the hub announced: the hash tells whether they belong to the file.
      if (this.#position === file.bytes) return;
    }
  }

  #restart(): void {
    this.#hash = createHash('sha256');
    this.#position = 0;
  }

  #advance(bytes: Uint8Array): void {
    this.#hash.update(bytes);
    this.#position += bytes.length;
    this.#options.onProgress(this.#position);
  }

  #stopped(error: unknown) {
    const { file } = this.#options;
    const reason = error instanceof Error ? error.message : String(error);
    return downloadStopped({ file: file.path, receivedBytes: this.#position, totalBytes: file.bytes, reason }, error);
  }
}

async function openIncomplete(path: string): Promise<FileHandle> {
  return onDisk(path, async () => {
    try {
      return await open(path, 'wx+', 0o644);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      // A link would lead the bytes to another file.
      return await open(path, constants.O_RDWR | (constants.O_NOFOLLOW ?? 0));
    }
  });
}

async function writeAll(handle: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  let done = 0;
  while (done < bytes.length) {
    const { bytesWritten } = await handle.write(bytes, done, bytes.length - done, position + done);
    done += bytesWritten;
  }
}

async function isSameFile(handle: FileHandle, path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  const { ino } = await handle.stat();
  return found?.ino === ino;
}

async function onDisk<T>(path: string, use: () => Promise<T>): Promise<T> {
  try {
    return await use();
  } catch (error) {
    if ((error as Error).name === 'AbortError' || (error as NodeJS.ErrnoException).code === undefined) throw error;
    throw hubFolderUnusable({ folder: dirname(path), reason: (error as Error).message }, error);
  }
}
