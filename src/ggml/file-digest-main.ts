/**
 * The thread that hashes a file for `digestFile`: one part of the file per call, so that the caller can report
 * progress.
 */
import { createHash } from 'node:crypto';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { serveCalls } from '../base/call-thread.ts';
import type { DigestedPart } from './file-digest.ts';
import { stateOf } from './file-state.ts';

const partBytes = 64 << 20;
const buffer = new Uint8Array(1 << 20);
serveCalls((path: string) => {
  const hash = createHash('sha256');
  const file = openSync(path, 'r');
  const before = stateOf(fstatSync(file, { bigint: true }));
  let hashedBytes = 0;
  return (): DigestedPart => {
    for (const end = hashedBytes + partBytes; hashedBytes < end; ) {
      const count = readSync(file, buffer, 0, buffer.length, hashedBytes);
      if (count === 0) {
        const after = stateOf(fstatSync(file, { bigint: true }));
        closeSync(file);
        return { hashedBytes, before, whole: { sha256: hash.digest('hex'), after } };
      }
      hash.update(buffer.subarray(0, count));
      hashedBytes += count;
    }
    return { hashedBytes, before };
  };
});
