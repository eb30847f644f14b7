import { closeSync, openSync } from 'node:fs';
import { devNull } from 'node:os';

/** @throws the system's error (EMFILE, ENFILE) if this process cannot open `count` more files now. */
export function checkFreeFiles(count: number): void {
  const files: number[] = [];
  try {
    while (files.length < count) files.push(openSync(devNull, 'r'));
  } finally {
    for (const file of files) closeSync(file);
  }
}
