import { type FileHandle, open } from 'node:fs/promises';
import { modelFileChanged, withModelFile } from './errors.ts';
import { isSameFile, stateOf } from './file-state.ts';
import type { GgufFile, GgufPart, GgufTensor } from './gguf.ts';

/**
 * The target of a tensor's data: memory in place, or a function that gets all bytes in a staging buffer, used again
 * later.
 */
export type TensorTarget =
  | { readonly tensor: GgufTensor; readonly into: Uint8Array }
  | { readonly tensor: GgufTensor; readonly accept: (bytes: Uint8Array) => void };

const chunkBytes = 4 << 20;
/** With one read at a time the disk is idle between reads; in measurements, four reads saturated the disk. */
const readsInFlight = 4;

/**
 * Reads the data of tensors, several reads at a time: first those in place, then the others, each in the order of the files. The
 * staging buffer has the size of the largest tensor that needs it. Throws `modelFileUnreadable`, and `modelFileChanged` if a file has changed since its
 * header was checked.
 */
export async function readTensors(
  file: GgufFile,
  targets: readonly TensorTarget[],
  onProgress?: (loadedBytes: number, totalBytes: number) => void,
): Promise<void> {
  const totalBytes = targets.reduce((sum, { tensor }) => sum + tensor.byteLength, 0);
  let loadedBytes = 0;
  const staging = new Staging();
  const advance = (bytes: number): void => {
    loadedBytes += bytes;
    onProgress?.(loadedBytes, totalBytes);
  };
  for (const [index, part] of file.parts.entries()) {
    const inPart = targets.filter(({ tensor }) => tensor.part === index);
    await readPart(part, inPart, { staging, advance });
  }
}

async function readPart(
  part: GgufPart,
  targets: readonly TensorTarget[],
  { staging, advance }: { readonly staging: Staging; readonly advance: (bytes: number) => void },
): Promise<void> {
  let handle: FileHandle | undefined;
  try {
    handle = await open(part.path, 'r');
    await checkUnchanged(handle, part);
    const inOrder = targets.toSorted((a, b) => a.tensor.fileOffset - b.tensor.fileOffset);
    const source = { handle, part, advance };
    // Together: a small model has hundreds of tensors that are smaller than a chunk.
    const inPlace = inOrder.flatMap((target) => ('into' in target ? chunksOf(target.tensor, target.into) : []));
    await readChunks(source, inPlace);
    for (const target of inOrder) {
      if ('into' in target) continue;
      const bytes = staging.take(target.tensor.byteLength);
      await readChunks(source, chunksOf(target.tensor, bytes));
      target.accept(bytes);
    }
    await checkUnchanged(handle, part);
  } catch (error) {
    throw withModelFile(part.path, error);
  } finally {
    // Waits for pending reads, so that no read writes into freed memory.
    await handle?.close().catch(() => undefined);
  }
}

/** One buffer that grows. */
class Staging {
  #bytes = new Uint8Array(0);

  take(byteLength: number): Uint8Array {
    if (this.#bytes.length < byteLength) this.#bytes = new Uint8Array(byteLength);
    return this.#bytes.subarray(0, byteLength);
  }
}

interface Chunk {
  readonly into: Uint8Array;
  readonly fileOffset: number;
}

function chunksOf({ fileOffset }: GgufTensor, into: Uint8Array): Chunk[] {
  return Array.from({ length: Math.ceil(into.length / chunkBytes) }, (_, i) => ({
    into: into.subarray(i * chunkBytes, (i + 1) * chunkBytes),
    fileOffset: fileOffset + i * chunkBytes,
  }));
}

interface ChunkSource {
  readonly handle: FileHandle;
  readonly part: GgufPart;
  advance(bytes: number): void;
}

async function readChunks({ handle, part, advance }: ChunkSource, chunks: readonly Chunk[]): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < chunks.length) {
      const { into, fileOffset } = chunks[next++]!;
      for (let at = 0; at < into.length; ) {
        const { bytesRead } = await handle.read(into, at, into.length - at, fileOffset + at);
        if (bytesRead === 0) throw modelFileChanged({ path: part.path, problem: 'it became shorter' });
        at += bytesRead;
        advance(bytesRead);
      }
    }
  };
  await Promise.all(Array.from({ length: readsInFlight }, lane));
}

async function checkUnchanged(handle: FileHandle, { path, state }: GgufPart): Promise<void> {
  const now = stateOf(await handle.stat({ bigint: true }));
  if (!isSameFile(now, state)) throw modelFileChanged({ path, problem: 'its size or date has changed' });
}
