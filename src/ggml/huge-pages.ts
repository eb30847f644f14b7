import type { NativeApi, RawPtr } from './ffi.ts';

const hugePageBytes = 2 << 20;
/** Linux's number. */
const MADV_HUGEPAGE = 14;

/**
 * Asks Linux for pages of 2 MiB for memory that is not written yet: reading matrices then causes fewer TLB misses.
 * Linux may ignore it. Used for weights; with such pages for the KV pool too, prompts were a tenth slower.
 */
export function preferHugePages(native: NativeApi, at: number, byteLength: number): void {
  if (process.platform !== 'linux' || process.arch !== 'x64' || byteLength < 2 * hugePageBytes) return;
  const first = Math.ceil(at / hugePageBytes) * hugePageBytes;
  const end = Math.floor((at + byteLength) / hugePageBytes) * hugePageBytes;
  try {
    native.functionIn('libc.so.6', 'madvise', 'i32', 'raw', 'size', 'i32')(first as RawPtr, end - first, MADV_HUGEPAGE);
  } catch {
    // The system has another C library.
  }
}
