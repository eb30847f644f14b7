import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

/** A file that has more bytes than a caller accepts. */
export class FileTooLarge extends Error {}

/** A pipe, a device or a socket. A folder too. */
export class NotRegularFile extends Error {}

const chunkBytes = 64 * 1024;

/**
 * The bytes of a file, also of a pipe. A file may have no size and no end (`/dev/zero`), so at most `bytesMax` bytes are kept.
 * @throws FileTooLarge, and the errors of the file system.
 */
export async function readLimited(path: string, bytesMax: number): Promise<Buffer> {
  const file = await open(path);
  try {
    return await readChunks(file, bytesMax);
  } finally {
    await file.close();
  }
}

/**
 * The same of a regular file only: a pipe may have no writer, and a device no end.
 * @throws NotRegularFile, FileTooLarge, and the errors of the file system.
 */
export async function readRegular(path: string, bytesMax: number): Promise<Buffer> {
  // Without a writer, a pipe is opened at once.
  const file = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  try {
    if (!(await file.stat()).isFile()) throw new NotRegularFile('it is not a regular file');
    return await readChunks(file, bytesMax);
  } finally {
    await file.close();
  }
}

async function readChunks(file: FileHandle, bytesMax: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for (let length = 0; ; ) {
    // A pipe has no position.
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(chunkBytes), 0, chunkBytes, null);
    if (bytesRead === 0) return Buffer.concat(chunks, length);
    length += bytesRead;
    if (length > bytesMax) throw new FileTooLarge(`more than ${bytesMax} bytes`);
    chunks.push(buffer.subarray(0, bytesRead));
  }
}
