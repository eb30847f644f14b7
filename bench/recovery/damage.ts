import { execFile } from 'node:child_process';
import { readFile, rename, truncate, unlink, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import type { Prng } from '../../src/base/prng.ts';

const run = promisify(execFile);

/** Damages one stored file. */
export type Damage = (file: StoredFile, prng: Prng) => Promise<void>;

interface StoredFile {
  readonly path: string;
}

export const removeFile: Damage = ({ path }) => unlink(path);

/** Flips one random bit of the payload or the header. */
export const flipBit: Damage = async ({ path }, prng) => {
  const bytes = await readFile(path);
  const at = prng.between(0, bytes.length - 1);
  bytes[at] = bytes[at]! ^ (1 << prng.between(0, 7));
  await writeFile(path, bytes);
};

/** Flips a random bit of each 4 KiB in the second half, as bad memory may. The file's header stays whole. */
export const flipBitsOfTail: Damage = async ({ path }, prng) => {
  const bytes = await readFile(path);
  for (let from = bytes.length >> 1; from < bytes.length; from += 4096) {
    const at = prng.between(from, Math.min(from + 4096, bytes.length) - 1);
    bytes[at] = bytes[at]! ^ (1 << prng.between(0, 7));
  }
  await writeFile(path, bytes);
};

/** The second half reads as zeros, as after a loss of power. */
export const zeroTail: Damage = async ({ path }) => {
  const bytes = await readFile(path);
  await writeFile(path, bytes.fill(0, bytes.length >> 1));
};

/** Cuts the file to a random shorter length, perhaps 0. */
export const cutShort: Damage = async ({ path }, prng) => {
  const { length } = await readFile(path);
  await truncate(path, prng.between(0, length - 1));
};

/** Opening a FIFO without a writer does not return, like a read from a dead network mount. */
export const makeHang: Damage = async ({ path }) => {
  await rename(path, `${path}.whole`);
  await run('mkfifo', [path]);
};

/** Undoes `makeHang`. A short-lived writer of the FIFO ends the hanging calls. */
export async function endHang({ path }: StoredFile): Promise<void> {
  await run('sh', ['-c', 'exec 3<>"$1"', 'sh', path]).catch(() => undefined);
  await rename(`${path}.whole`, path);
}
