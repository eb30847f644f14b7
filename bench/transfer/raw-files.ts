import { type FileHandle, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { assert } from '../../src/base/assert.ts';

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
    this.#count = blocks.length;
    return inFlight(blocks, writesAtOnce, (block, i) =>
      withFile(this.#pathOf(i), 'wx', async (file) => void (await file.write(block))),
    );
  }

  /** Fills the blocks with the bytes of `write`. */
  read(blocks: readonly Uint8Array[]): Promise<void> {
    return inFlight(blocks, readsAtOnce, (block, i) =>
      withFile(this.#pathOf(i), 'r', async (file) => {
        const { bytesRead } = await file.read(block, 0, block.length, 0);
        assert(bytesRead === block.length, 'a file has the bytes that were written');
      }),
    );
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

async function inFlight<T>(
  items: readonly T[],
  countMax: number,
  run: (item: T, index: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    for (let i = next++; i < items.length; i = next++) await run(items[i]!, i);
  };
  await Promise.all(Array.from({ length: countMax }, work));
}
