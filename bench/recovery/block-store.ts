import { execFile } from 'node:child_process';
import { cp, readdir, readFile, rename, rm, stat, symlink, truncate, unlink, writeFile } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { promisify } from 'node:util';
import type { Prng } from '../../src/base/prng.ts';

const run = promisify(execFile);

/** One stored block of one rank. */
export interface StoredBlock {
  readonly path: string;
  /** The key in the connector's format, `<group>-<digest>`. */
  readonly key: string;
  readonly rank: number;
}

/**
 * The files in the directory of a SharedStorageConnector: `<model>/rank<r>of<n>/<aa>/<digest>-g<group>.kv`. The bench
 * damages them with system calls, also while an engine uses them.
 */
export class BlockStore {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  /** Every block, in an order that does not depend on the file system. */
  async blocks(): Promise<StoredBlock[]> {
    const found: StoredBlock[] = [];
    for (const entry of await readdir(this.path, { recursive: true, withFileTypes: true })) {
      const match = /^([0-9a-f]{64})-g(\d+)\.kv$/.exec(entry.name);
      const rank = /(?:^|\W)rank(\d+)of\d+(?:\W|$)/.exec(entry.parentPath.split(sep).slice(-2).join('/'));
      if (match === null || rank === null) continue;
      const path = join(entry.parentPath, entry.name);
      found.push({ path, key: `${match[2]}-${match[1]}`, rank: Number(rank[1]) });
    }
    return found.sort((a, b) => a.rank - b.rank || (a.key < b.key ? -1 : 1));
  }

  /** The size of all blocks with their headers. */
  async bytes(): Promise<number> {
    const sizes = await Promise.all((await this.blocks()).map(async ({ path }) => (await stat(path)).size));
    return sizes.reduce((total, size) => total + size, 0);
  }

  /** The path of the copy is a symbolic link, so that the copy can be taken down and brought back in one step. */
  async copyTo(path: string): Promise<BlockStore> {
    await cp(this.path, blocksOf(path), { recursive: true });
    const copy = new BlockStore(path);
    await copy.#pointTo(blocksOf(path));
    return copy;
  }

  /** Takes a copy down: every call of the file system fails with ELOOP, as on a dead mount. */
  takeDown(): Promise<void> {
    return this.#pointTo(this.path);
  }

  bringBack(): Promise<void> {
    return this.#pointTo(blocksOf(this.path));
  }

  async remove(): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
    await rm(blocksOf(this.path), { recursive: true, force: true });
  }

  async #pointTo(target: string): Promise<void> {
    const link = `${this.path}.link`;
    await symlink(target, link);
    await rename(link, this.path);
  }
}

const blocksOf = (path: string): string => `${path}.blocks`;

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
