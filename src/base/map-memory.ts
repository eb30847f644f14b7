/** Mapping memory before it is used. */
import koffi from 'koffi';
import { configureKoffi } from './koffi-config.ts';
import { addressOfBytes } from './native-memory.ts';

/** Since Linux 5.14. */
const MADV_POPULATE_WRITE = 23;
const pageBytes = 4096;

type Advise = {
  async(address: number, bytes: number, advice: number, ended: (error: unknown, status: number) => void): void;
};
let advise: Advise | undefined;

/**
 * Lets the system map the pages of these bytes, on a thread of libuv's pool, so that their first use needs no page faults. The
 * content does not change, also if another thread writes it meanwhile. Resolves with false if the system cannot do this.
 */
export function mapMemory(bytes: Uint8Array): Promise<boolean> {
  if (process.platform !== 'linux') return Promise.resolve(false);
  const { base, offset, length } = addressOfBytes(bytes);
  // Pages that the bytes share with their neighbours belong to the same buffer, or are left out.
  const start = Math.max(roundUp(base), roundDown(base + offset));
  const end = roundDown(base + offset + length);
  if (end <= start) return Promise.resolve(true);
  return new Promise((resolve) => {
    try {
      configureKoffi();
      advise ??= koffi.load(null).func('madvise', 'int', ['uintptr_t', 'size_t', 'int']) as unknown as Advise;
      // The callback keeps the memory until the call has returned.
      advise.async(start, end - start, MADV_POPULATE_WRITE, (error, status) =>
        resolve(error === null && status === 0 && bytes.length > 0),
      );
    } catch {
      // The symbol is missing, for example in a statically linked Node.
      resolve(false);
    }
  });
}

const roundDown = (address: number): number => address - (address % pageBytes);
const roundUp = (address: number): number => roundDown(address + pageBytes - 1);
