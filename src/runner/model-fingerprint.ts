import { createHash } from 'node:crypto';
import type { FileDigest } from '../ggml/file-digest.ts';
import type { GgufFile } from '../ggml/gguf.ts';
import type { KvType } from './kv-memory.ts';

export interface FingerprintSettings {
  /** `NumericsIdentity`: all that decides the bits of what is computed, beside the file. */
  readonly numerics: string;
  readonly blockSize: number;
  readonly kvType: KvType;
}

/**
 * A name for "KV computed by this model in this way": blocks match only when it is equal (I10). It covers every byte of the
 * model's file, and what decides the meaning and the bits of a block. The name that the model is served under, its path and
 * the number of threads are not part of it.
 *
 * Without a digest the name is valid on this machine only, until the file is changed: no other machine asks for it
 * when no connector is configured, and reading all weights once more would cost seconds.
 */
export function modelFingerprint(
  file: GgufFile,
  digest: FileDigest | undefined,
  { numerics, blockSize, kvType }: FingerprintSettings,
): string {
  const { bytes, inode, modifiedNs } = file.state;
  const content =
    digest === undefined ? `local ${bytes} ${inode} ${modifiedNs} ${file.path}` : `sha256 ${digest.sha256}`;
  const parts = ['kvasir kv 3', content, kvType.name.toLowerCase(), `${blockSize}`, numerics];
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}
