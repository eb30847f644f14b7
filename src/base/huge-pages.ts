import { loadMadvise } from './madvise.ts';

const hugePageBytes = 2 << 20;
/** Linux's number. */
const MADV_HUGEPAGE = 14;

/**
 * Asks Linux for pages of 2 MiB for memory that is not written yet: reading matrices then causes fewer TLB misses.
 * Linux may ignore it. Used for weights; with such pages for the KV pool too, prompts were a tenth slower.
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
