import { closeSync, openSync } from 'node:fs';
import { devNull } from 'node:os';

/** @throws the system's error (EMFILE or ENFILE) if this process cannot open `count` more files now. */
export function checkFreeFiles(count: number): void {
  const files: number[] = [];
  try {
    while (files.length < count) files.push(openSync(devNull, 'r'));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // Where there is no such file, descriptors cannot be counted.
    if (code === 'EMFILE' || code === 'ENFILE') throw error;
  } finally {
    for (const file of files) close(file);
  }
}

/** Nothing was written, and the system frees the descriptor also if it reports an error. */
function close(file: number): void {
  try {
    closeSync(file);
  } catch {
    // See above.
  }
}
