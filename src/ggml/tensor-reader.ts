import { type FileHandle, open } from 'node:fs/promises';
import { modelFileChanged, withModelFile } from './errors.ts';
import { isSameFile, stateOf } from './file-state.ts';
import type { GgufFile, GgufTensor } from './gguf.ts';

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
 * Reads the data of tensors, in the order of the file, several reads at a time. The staging buffer has the size of the
 * largest tensor that needs it. Throws `modelFileUnreadable`, and `modelFileChanged` if the file has changed since its
 * header was checked.
 */
export async function readTensors(
  file: GgufFile,
  targets: readonly TensorTarget[],
  onProgress?: (loadedBytes: number, totalBytes: number) => void,
): Promise<void> {
  let handle: FileHandle | undefined;
  try {
    handle = await open(file.path, 'r');
    await checkUnchanged(handle, file);
    const ordered = targets.toSorted((a, b) => a.tensor.fileOffset - b.tensor.fileOffset);
    const totalBytes = ordered.reduce((sum, { tensor }) => sum + tensor.byteLength, 0);
    let loadedBytes = 0;
    const advance = (bytes: number): void => {
      loadedBytes += bytes;
      onProgress?.(loadedBytes, totalBytes);
    };
    let staging = new Uint8Array(0);
    for (const target of ordered) {
      const { byteLength } = target.tensor;
      if ('into' in target) await readInto({ handle, file }, target.tensor, target.into, advance);
      else {
        if (staging.length < byteLength) staging = new Uint8Array(byteLength);
        await readInto({ handle, file }, target.tensor, staging.subarray(0, byteLength), advance);
        target.accept(staging.subarray(0, byteLength));
      }
    }
    await checkUnchanged(handle, file);
  } catch (error) {
    throw withModelFile(file.path, error);
  } finally {
    // Waits for pending reads, so that no read writes into freed memory.
    await handle?.close().catch(() => undefined);
  }
}

async function readInto(
  { handle, file }: { readonly handle: FileHandle; readonly file: GgufFile },
  tensor: GgufTensor,
  into: Uint8Array,
  advance: (bytes: number) => void,
): Promise<void> {
  let next = 0;
  const readChunks = async (): Promise<void> => {
    while (next < into.length) {
      const start = next;
      const end = Math.min(start + chunkBytes, into.length);
      next = end;
      for (let at = start; at < end; ) {
        const { bytesRead } = await handle.read(into, at, end - at, tensor.fileOffset + at);
        if (bytesRead === 0) throw modelFileChanged({ path: file.path, problem: 'it became shorter' });
        at += bytesRead;
        advance(bytesRead);
      }
    }
  };
  await Promise.all(Array.from({ length: readsInFlight }, readChunks));
}

async function checkUnchanged(handle: FileHandle, file: GgufFile): Promise<void> {
  const state = stateOf(await handle.stat({ bigint: true }));
  if (!isSameFile(state, file.state))
    throw modelFileChanged({ path: file.path, problem: 'its size or date has changed' });
}
