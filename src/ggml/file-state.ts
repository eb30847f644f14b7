import type { BigIntStats } from 'node:fs';
import { stat } from 'node:fs/promises';
import { modelFileChanged, withModelFile } from './errors.ts';

/**
 * Tells whether a file has changed since it was read. Plain data: it is sent to other processes and written into files.
 */
export interface FileState {
  readonly bytes: number;
  readonly inode: string;
  readonly modifiedNs: string;
  /** The time of the last change of the content or the inode; users cannot set it, unlike `modifiedNs`. */
  readonly changedNs: string;
}

export const stateOf = ({ size, ino, mtimeNs, ctimeNs }: BigIntStats): FileState => ({
  bytes: Number(size),
  inode: `${ino}`,
  modifiedNs: `${mtimeNs}`,
  changedNs: `${ctimeNs}`,
});

/** Whether both are the same file with the same size and date. */
export const isSameFile = (a: FileState, b: FileState): boolean =>
  a.bytes === b.bytes && a.inode === b.inode && a.modifiedNs === b.modifiedNs;

/** Whether the file is unchanged, even if its date was set back. */
export const isSameState = (a: FileState, b: FileState): boolean => isSameFile(a, b) && a.changedNs === b.changedNs;

/** @throws modelFileUnreadable */
export async function stateNow(path: string): Promise<FileState> {
  try {
    return stateOf(await stat(path, { bigint: true }));
  } catch (error) {
    throw withModelFile(path, error);
  }
}

/** @throws modelFileChanged, modelFileUnreadable */
export async function checkState(path: string, state: FileState): Promise<void> {
  const found = await stateNow(path);
  if (!isSameState(found, state)) throw modelFileChanged({ path, problem: 'its size or date has changed' });
}
