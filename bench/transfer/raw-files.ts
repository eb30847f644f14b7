import { type FileHandle, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { assert } from '../../src/base/assert.ts';

/** Files in flight: as many as connectors have by default. */
const readsAtOnce = 4;
const writesAtOnce = 2;

/** The limit that a disk tier is measured against: the same bytes in as many files, without a header, a checksum or a name. */
export class RawFiles {
  readonly #root: string;
  #count = 0;

  constructor(root: string) {
    this.#root = root;
  }

  /** Into new files, as blocks go: some file systems write a file that is written over to the disk at once. */
  write(blocks: readonly Uint8Array[]): Promise<void> {
    assert(this.#count === 0, 'the files are there already');
    this.#count = blocks.length;
    return inFlight(blocks, writesAtOnce, (index, i) =>
      withFile(this.#pathOf(i), 'wx', async (file) => void (await file.write(index))),
    );
  }

  /** Fills the pages with what `write` wrote. */
  read(blocks: readonly Uint8Array[]): Promise<void> {
    return inFlight(blocks, readsAtOnce, (index, i) =>
      withFile(this.#pathOf(i), 'r', async (file) => {
        const { bytesRead } = await file.read(index, 0, index.length, 0);
        assert(bytesRead === index.length, 'a file has the bytes that were written');
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
