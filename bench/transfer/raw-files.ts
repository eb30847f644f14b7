import { type FileHandle, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { assert } from '../../src/base/assert.ts';
import { inFlight } from '../in-flight.ts';

/** Concurrent files: the defaults of connectors. */
const readsAtOnce = 4;
const writesAtOnce = 2;

/** The limit of a disk tier: the same bytes in the same number of files, without headers, checksums and keys. */
export class RawFiles {
  readonly #root: string;
  #count = 0;

  constructor(root: string) {
    this.#root = root;
  }

  /** Writes new files, as for blocks: some file systems sync an overwritten file to the disk at once. */
  write(blocks: readonly Uint8Array[]): Promise<void> {
    assert(this.#count === 0, 'the files are written once');
    return inFlight(blocks, writesAtOnce, (block, i) => this.writeOne(i, block));
  }

  /** Fills the blocks with the bytes of `write`. */
  read(blocks: readonly Uint8Array[]): Promise<void> {
    return inFlight(blocks, readsAtOnce, (block, i) => this.readOne(i, block));
  }

  /** Indices of files count from 0. */
  writeOne(index: number, block: Uint8Array): Promise<void> {
    this.#count = Math.max(this.#count, index + 1);
    return withFile(this.#pathOf(index), 'wx', async (file) => void (await file.write(block)));
  }

  readOne(index: number, block: Uint8Array): Promise<void> {
    return withFile(this.#pathOf(index), 'r', async (file) => {
      const { bytesRead } = await file.read(block, 0, block.length, 0);
      assert(bytesRead === block.length, 'a file has the bytes that were written');
    });
  }

  async remove(): Promise<void> {
    for (let i = 0; i < this.#count; i++) await rm(this.#pathOf(i));
    this.#count = 0;
  }

  #pathOf(index: number): string {
    return join(this.#root, `raw-${index}`);
  }
}

async function withFile(path: string, flags: string, use: (file: FileHandle) => Promise<void>): Promise<void> {
  const file = await open(path, flags);
  try {
    await use(file);
  } finally {
    await file.close();
  }
}
