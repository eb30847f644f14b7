import { crc32 as zlibCrc32 } from 'node:zlib';
import type { NativeApi } from '../ggml/ffi.ts';
import { CompileFailure, type CompileOptions, doWithout, openNative } from './compiler.ts';

/**
 * zlib's CRC32, several times as fast as Node's. Undefined without a compiler, or if the CPU lacks carry-less
 * multiplication.
 */
export async function openCrc32(
  native: NativeApi,
  options: CompileOptions = {},
): Promise<(((bytes: Uint8Array) => number) & { readonly library: string }) | undefined> {
  try {
    const source = { file: 'native/crc32.c', headers: [], definitions: {} };
    const { compiled, path } = await openNative(source, options, (found) => ({
      compiled: native.functionIn(found.path, 'kvasir_crc32', 'i64', 'data', 'i64'),
      path: found.path,
    }));
    const crc32 = (bytes: Uint8Array): number => compiled(bytes, bytes.length);
    if (probes.every((probe) => crc32(probe) === zlibCrc32(probe))) return Object.assign(crc32, { library: path });
    throw new CompileFailure('its checksums are wrong on this machine', { isAvoidable: true });
  } catch (error) {
    return doWithout(error, 'The kernel for checksums', "Node's is used instead, which is slower.", options);
  }
}

/** Shorter than what the kernel folds at once, equally long, and longer with a remainder. */
const probes = [0, 5, 64, 256, 1_003].map((length) => Uint8Array.from({ length }, (_, i) => i * i + 7));
