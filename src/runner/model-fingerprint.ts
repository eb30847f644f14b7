import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import type { GgufFile } from '../ggml/gguf.ts';
import type { KvType } from './kv-memory.ts';

const sampleBytes = 4096;

/**
 * A name for "KV computed by this model in this way": blocks match only when it is equal (I10). It covers the whole
 * header (every hyperparameter, shape and type), the beginning of every tensor (weights of a fine-tune differ in all of
 * them), and what decides the meaning and the bits of a block. Reading all weights once more would cost seconds.
 */
export async function modelFingerprint(
  file: GgufFile,
  numerics: string,
  blockSize: number,
  kvType: KvType,
): Promise<string> {
  const hash = createHash('sha256');
  hash.update(`kvasir kv 2\0${kvType.name.toLowerCase()}\0${numerics}\0${blockSize}\0${file.fileBytes}\0`);
  const handle = await open(file.path, 'r');
  try {
    const buffer = new Uint8Array(1 << 20);
    const add = async (start: number, end: number): Promise<void> => {
      for (let at = start; at < end; ) {
        const { bytesRead } = await handle.read(buffer, 0, Math.min(buffer.length, end - at), at);
        if (bytesRead === 0) break;
        hash.update(buffer.subarray(0, bytesRead));
        at += bytesRead;
      }
    };
    await add(0, file.dataOffset);
    for (const { fileOffset, byteLength } of file.tensors.values()) {
      await add(fileOffset, fileOffset + Math.min(sampleBytes, byteLength));
    }
  } finally {
    await handle.close();
  }
  return hash.digest('hex');
}
