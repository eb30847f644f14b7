/** Mapping memory before it is used. */
import { loadMadvise } from './madvise.ts';
import { addressOfBytes } from './native-memory.ts';

/** Since Linux 5.14. */
const MADV_POPULATE_WRITE = 23;
const pageBytes = 4096;

/** Memory by its address. */
export interface AddressRange {
  readonly address: number;
  readonly byteLength: number;
}

/**
 * Lets the system map the pages of these bytes, on a thread of libuv's pool, so that their first use needs no page faults. The
 * content does not change, also if another thread writes it meanwhile. Resolves with false if the system cannot do this.
 */
export async function mapMemory(bytes: Uint8Array): Promise<boolean> {
  const { base, offset, length } = addressOfBytes(bytes);
  // Pages that the bytes share with their neighbours belong to the same buffer, or are left out.
  const start = Math.max(roundUp(base), roundDown(base + offset));
  const isMapped = await mapRange({ address: start, byteLength: base + offset + length - start });
  // The memory is kept until the call has returned.
  return isMapped && bytes.length >= 0;
}

/** As `mapMemory`, without a partial page at the end. The caller keeps the memory until this resolves. */
export function mapRange({ address, byteLength }: AddressRange): Promise<boolean> {
  if (process.platform !== 'linux') return Promise.resolve(false);
  const start = roundDown(address);
  const end = roundDown(address + byteLength);
  if (end <= start) return Promise.resolve(true);
  return new Promise((resolve) => {
    try {
      loadMadvise().async(start, end - start, MADV_POPULATE_WRITE, (error, status) =>
        resolve(error === null && status === 0),
      );
    } catch {
      // The symbol is missing, for example in a statically linked Node.
      resolve(false);
    }
  });
}

const roundDown = (address: number): number => address - (address % pageBytes);
const roundUp = (address: number): number => roundDown(address + pageBytes - 1);
