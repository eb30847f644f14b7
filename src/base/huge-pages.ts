import { loadMadvise } from './madvise.ts';
import { addressOfBytes } from './native-memory.ts';

const hugePageBytes = 2 << 20;
/** Linux's number. */
const MADV_HUGEPAGE = 14;

/**
 * Asks Linux for pages of 2 MiB for memory that is not written yet: the system maps it in a fraction of the time, and reading causes
 * fewer TLB misses. Linux may ignore it. For weights and host memory; with such pages for the KV pool, prompts were a tenth slower.
 */
export function preferHugePages(address: number, byteLength: number): void {
  if (process.platform !== 'linux' || process.arch !== 'x64' || byteLength < 2 * hugePageBytes) return;
  const first = Math.ceil(address / hugePageBytes) * hugePageBytes;
  const end = Math.floor((address + byteLength) / hugePageBytes) * hugePageBytes;
  try {
    loadMadvise()(first, end - first, MADV_HUGEPAGE);
  } catch {
    // The system has another C library.
  }
}

/** Memory without zeroes, since writing them would map all pages. Throws RangeError if there is none. */
export function allocateInHugePages(byteLength: number): Uint8Array {
  const bytes = new Uint8Array(Buffer.allocUnsafeSlow(byteLength).buffer);
  preferHugePages(addressOfBytes(bytes).base, byteLength);
  return bytes;
}
