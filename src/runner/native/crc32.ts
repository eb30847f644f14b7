import { crc32 as zlibCrc32 } from 'node:zlib';
import type { NativeApi } from '../../ggml/ffi.ts';
import { CompileFailure, type CompileOptions, compileNative } from './compiler.ts';

/**
 * zlib's CRC32, several times as fast as Node's. Absent where there is no compiler, or where the CPU has no instruction for
 * it.
 */
export async function openCrc32(
  native: NativeApi,
  options: CompileOptions = {},
): Promise<((bytes: Uint8Array) => number) | undefined> {
  try {
    const { path } = await compileNative({ file: 'crc32.c', headers: [], definitions: {} }, options);
    const compiled = native.functionIn(path, 'kvasir_crc32', 'i64', 'data', 'i64');
    const crc32 = (bytes: Uint8Array): number => compiled(bytes, bytes.length);
    return probes.every((probe) => crc32(probe) === zlibCrc32(probe)) ? crc32 : undefined;
  } catch (error) {
    if (error instanceof CompileFailure) return undefined;
    throw error;
  }
}

/** Shorter than what is taken at once, as long, and longer, with some bytes left over. */
const probes = [0, 5, 64, 256, 1_003].map((length) => Uint8Array.from({ length }, (_, i) => i * i + 7));
