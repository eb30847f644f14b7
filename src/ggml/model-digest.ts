import { createHash } from 'node:crypto';
import { type DigestOptions, digestFile } from './file-digest.ts';
import { type FileState, isSameState } from './file-state.ts';
import type { GgufFile } from './gguf.ts';

/** The digest of all bytes of a model's files, and the states of the files to which it belongs. Plain data. */
export interface ModelDigest {
  readonly sha256: string;
  readonly states: readonly FileState[];
}

/** Hashes the files of a model, one after the other. Throws like `digestFile`. */
export async function digestModel({ parts, fileBytes }: GgufFile, options: DigestOptions = {}): Promise<ModelDigest> {
  const { onProgress } = options;
  const digests: string[] = [];
  const states: FileState[] = [];
  let doneBytes = 0;
  for (const { path } of parts) {
    const before = doneBytes;
    const { sha256, state } = await digestFile(path, {
      ...options,
      onProgress: onProgress && ((hashedBytes) => onProgress(before + hashedBytes, fileBytes)),
    });
    digests.push(sha256);
    states.push(state);
    doneBytes += state.bytes;
  }
  const [first = ''] = digests;
  const joined = createHash('sha256').update(digests.join()).digest('hex');
  return { sha256: digests.length === 1 ? first : joined, states };
}

/** Whether a digest belongs to the files as they were when their headers were read. */
export const isDigestOf = ({ states }: ModelDigest, { parts }: GgufFile): boolean =>
  states.length === parts.length && parts.every(({ state }, i) => isSameState(state, states[i]!));
