import { execFile } from 'node:child_process';
import { readFile, rename, truncate, unlink, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import type { Prng } from '../../src/base/prng.ts';
import type { StoredBlock } from '../../src/cli/proof/stored-blocks.ts';

const run = promisify(execFile);

/** Damages one stored block. */
export type Damage = (block: StoredBlock, prng: Prng) => Promise<void>;

export const removeFile: Damage = ({ path }) => unlink(path);

/** Flips one random bit of the payload or the header. */
export const flipBit: Damage = async ({ path }, prng) => {
  const bytes = await readFile(path);
  const at = prng.between(0, bytes.length - 1);
  bytes[at] = bytes[at]! ^ (1 << prng.between(0, 7));
  await writeFile(path, bytes);
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
export async function endHang({ path }: StoredBlock): Promise<void> {
  await run('sh', ['-c', 'exec 3<>"$1"', 'sh', path]).catch(() => undefined);
  await rename(`${path}.whole`, path);
}
