/** File systems of their own for tests: full, read-only, or without `O_DIRECT`. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const mount = (args: readonly string[]): boolean => spawnSync('mount', args).status === 0;

/** Whether this process may mount a file system. */
export const canMount: boolean = (() => {
  const folder = mkdtempSync(join(tmpdir(), 'kvasir-mount-'));
  const isMounted = mount(['-t', 'tmpfs', '-o', 'size=4096', 'tmpfs', folder]);
  if (isMounted) unmount(folder);
  rmSync(folder, { recursive: true });
  return isMounted;
})();

/** Calls `use` with a file system in memory that has room for `bytes`, and removes it. */
export async function withSmallDisk(bytes: number, use: (folder: string) => Promise<void>): Promise<void> {
  await withMounted('tmpfs', [`size=${Math.ceil(bytes / 4096) * 4096}`], use);
}

/** Calls `use` with a file system that refuses `O_DIRECT`, and removes it. */
export async function withoutDirectIo(use: (folder: string) => Promise<void>): Promise<void> {
  await withMounted('ramfs', [], use);
}

export function makeReadOnly(folder: string): void {
  if (!mount(['-o', 'remount,ro', folder])) throw new Error(`${folder} cannot be made read-only`);
}

async function withMounted(
  type: string,
  options: readonly string[],
  use: (folder: string) => Promise<void>,
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'kvasir-mount-'));
  const flags = options.length === 0 ? [] : ['-o', options.join(',')];
  if (!mount(['-t', type, ...flags, type, folder])) throw new Error(`${type} cannot be mounted at ${folder}`);
  try {
    await use(folder);
  } finally {
    unmount(folder);
    rmSync(folder, { recursive: true });
  }
}

function unmount(folder: string): void {
  spawnSync('umount', ['-l', folder]);
}
