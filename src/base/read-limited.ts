import { type FileHandle, open } from 'node:fs/promises';

/** A file that has more bytes than a caller accepts. */
export class FileTooLarge extends Error {}

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
