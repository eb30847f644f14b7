import { crc32 as zlibCrc32 } from 'node:zlib';
import { assert } from '../base/assert.ts';
import type { NativeApi } from '../ggml/ffi.ts';
import { CompileFailure, type CompileOptions, doWithout, type NativeSource, openNative } from './compiler.ts';

/** The kernels of `crc32.c`. */
export interface NativeCrc32 {
  (bytes: Uint8Array): number;
  /** Copies `from` into `into`, which does not overlap it, and returns the CRC32 of the bytes, in one pass. */
  readonly copy: (into: Uint8Array, from: Uint8Array) => number;
  readonly library: string;
}

export const crc32Source: NativeSource = { file: 'native/crc32.c', headers: [], definitions: {} };

/**
 * zlib's CRC32, several times as fast as Node's. Undefined without a compiler, or if the CPU lacks carry-less
 * multiplication.
 */
export async function openCrc32(native: NativeApi, options: CompileOptions = {}): Promise<NativeCrc32 | undefined> {
  try {
    const { compiled, compiledCopy, library } = await openNative(crc32Source, options, ({ path }) => ({
      compiled: native.functionIn(path, 'kvasir_crc32', 'i64', 'data', 'i64'),
      compiledCopy: native.functionIn(path, 'kvasir_crc32_copy', 'i64', 'data', 'data', 'i64'),
      library: path,
    }));
    const crc32 = (bytes: Uint8Array): number => compiled(bytes, bytes.length);
    const copy = (into: Uint8Array, from: Uint8Array): number => {
      assert(into.length === from.length, `a copy of ${from.length} bytes into ${into.length}`);
      return compiledCopy(into, from, from.length);
    };
    const opened = Object.assign(crc32, { copy, library });
    if (probes.every((probe) => isRight(opened, probe))) return opened;
    throw new CompileFailure('its checksums are wrong on this machine', { isAvoidable: true });
  } catch (error) {
    return doWithout(error, 'The kernel for checksums', "Node's is used instead, which is slower.", options);
  }
}

function isRight(crc32: NativeCrc32, probe: Uint8Array): boolean {
  const copied = new Uint8Array(probe.length);
  const wanted = zlibCrc32(probe);
  return crc32(probe) === wanted && crc32.copy(copied, probe) === wanted && Buffer.compare(copied, probe) === 0;
}

/** Shorter than what the kernel folds at once, equally long, and longer with a remainder. */
const probes = [0, 5, 64, 256, 1_003].map((length) => Uint8Array.from({ length }, (_, i) => i * i + 7));
