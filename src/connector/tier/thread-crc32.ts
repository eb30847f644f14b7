import { crc32 as zlibCrc32 } from 'node:zlib';
import koffi from 'koffi';
import type { Crc32 } from '../connector.ts';

/** On a thread: the CRC32 of a library with `kvasir_crc32` (`Crc32.library`), or Node's. */
export function crc32In(path: string | undefined): Crc32 {
  if (path === undefined) return zlibCrc32;
  const library = koffi.load(path);
  const compiled = library.func('kvasir_crc32', 'int64_t', ['void *', 'int64_t']);
  const compiledCopy = library.func('kvasir_crc32_copy', 'int64_t', ['void *', 'void *', 'int64_t']);
  const crc32 = (bytes: Uint8Array): number => compiled(bytes, bytes.length) as number;
  const copy = (into: Uint8Array, from: Uint8Array): number => compiledCopy(into, from, from.length) as number;
  return Object.assign(crc32, { copy });
}
