/** Files in memory: the system reads their pages when they are used, shares them among processes, and drops them when memory is short. */
import { type BigIntStats, closeSync, fstatSync, openSync } from 'node:fs';
import koffi from 'koffi';
import { configureKoffi } from './koffi-config.ts';

/** Numbers of Linux and macOS. */
const PROT_READ = 1;
const MAP_SHARED = 1;

interface MapCalls {
  mmap(address: number, bytes: number, protection: number, flags: number, file: number, offset: number): number;
  munmap(address: number, bytes: number): number;
}

let calls: MapCalls | undefined;

/** Throws if the C library is not linked dynamically, for example in a statically linked Node. */
function loadCalls(): MapCalls {
  if (calls === undefined) {
    configureKoffi();
    const library = koffi.load(null);
    calls = {
      mmap: library.func('mmap', 'intptr_t', ['uintptr_t', 'size_t', 'int', 'int', 'int', 'int64_t']),
      munmap: library.func('munmap', 'int', ['uintptr_t', 'size_t']),
    };
  }
  return calls;
}

/** Whether files can be mapped here: Windows has other calls, and a statically linked Node has none. */
export function canMapFiles(platform: NodeJS.Platform = process.platform): boolean {
  if (platform === 'win32') return false;
  try {
    loadCalls();
    return true;
  } catch {
    return false;
  }
}

/**
 * A file that is mapped for reading. Writing there ends the process, and so does reading a part that another program has cut off.
 */
export class MappedFile {
  readonly path: string;
  readonly address: number;
  readonly byteLength: number;
  /** When it was mapped. */
  readonly stats: BigIntStats;
  readonly #file: number;

  /** @throws errors of the system */
  constructor(path: string) {
    this.path = path;
    this.#file = openSync(path, 'r');
    try {
      this.stats = fstatSync(this.#file, { bigint: true });
      this.byteLength = Number(this.stats.size);
      this.address = loadCalls().mmap(0, this.byteLength, PROT_READ, MAP_SHARED, this.#file, 0);
      if (this.address === -1) throw notMapped(path);
    } catch (error) {
      closeSync(this.#file);
      throw error;
    }
  }

  /** Whether it was written since. A file that took its name does not count: this one lives until it is closed. */
  get isChanged(): boolean {
    const { size, mtimeNs } = fstatSync(this.#file, { bigint: true });
    return mtimeNs !== this.stats.mtimeNs || size !== this.stats.size;
  }

  /** Nothing may read the memory from now on. */
  close(): void {
    loadCalls().munmap(this.address, this.byteLength);
    closeSync(this.#file);
  }
}

/** An empty file, a file system without maps, or a limit of the address space: the number of the error is not known here. */
const notMapped = (path: string): Error =>
  Object.assign(new Error(`the system cannot map ${path} into memory; use --no-mmap`), { code: 'ENODEV' });
