import koffi from 'koffi';
import { configureKoffi } from './koffi-config.ts';

/** Linux's `madvise`. Addresses are numbers. */
export interface Madvise {
  (address: number, bytes: number, advice: number): number;
  /** On a thread of libuv's pool. */
  async(address: number, bytes: number, advice: number, ended: (error: unknown, status: number) => void): void;
}

let madvise: Madvise | undefined;

/** Throws if the C library is not linked dynamically, for example in a statically linked Node. */
export function loadMadvise(): Madvise {
  configureKoffi();
  madvise ??= koffi.load(null).func('madvise', 'int', ['uintptr_t', 'size_t', 'int']) as unknown as Madvise;
  return madvise;
}
