import { createHash } from 'node:crypto';
import { modelFileChanged } from '../ggml/errors.ts';
import { checkState } from '../ggml/file-state.ts';
import type { GgufFile, GgufPart } from '../ggml/gguf.ts';
import { isDigestOf, type ModelDigest } from '../ggml/model-digest.ts';
import { type FreqFactors, llama3Factors } from '../ggml/rope-config.ts';
import type { LayerGroup } from './kv-groups.ts';
import type { KvType } from './kv-memory.ts';

export interface FingerprintSettings {
  /** `numericsIdentity`: all that decides the computed bits, besides the file. */
  readonly numerics: string;
  readonly blockSize: number;
  readonly kvType: KvType;
  /** Of the whole model. */
  readonly groups: readonly LayerGroup[];
  /** The divisors of RoPE's angles. */
  readonly freqFactors?: FreqFactors | undefined;
}

/**
 * The fingerprint of KV: blocks match only if it is equal (I10). It depends on every byte of the model's file, and on
 * all that decides the meaning and the bits of a block. The served name of the model, its path and the number of
 * threads are not part of it.
 *
 * Without a digest, the fingerprint is valid only on this machine, until the file changes. That suffices without a
 * connector, and reading all weights again would take seconds.
 */
export function modelFingerprint(
  file: GgufFile,
  digest: ModelDigest | undefined,
  { numerics, blockSize, kvType, groups, freqFactors }: FingerprintSettings,
): string {
  const content = digest === undefined ? `local ${file.parts.map(localName).join(' ')}` : `sha256 ${digest.sha256}`;
  const parts = ['kvasir kv 3', content, kvType.name.toLowerCase(), `${blockSize}`, numerics];
  // With one group, the layout of blocks follows from the model's file.
  if (groups.length > 1) parts.push(JSON.stringify(groups));
  // Llama 3's divisors follow from the file. The longest sequence chooses one set of LongRoPE.
  if (freqFactors !== undefined && freqFactors !== llama3Factors) parts.push(freqFactors);
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}

const localName = ({ path, state: { bytes, inode, modifiedNs } }: GgufPart): string =>
  `${bytes} ${inode} ${modifiedNs} ${path}`;

/** Checks that the digest belongs to the bytes that were loaded. */
export async function digestOf(
  file: GgufFile,
  digest: Promise<ModelDigest> | undefined,
): Promise<ModelDigest | undefined> {
  if (digest === undefined) return undefined;
  const found = await digest;
  if (!isDigestOf(found, file)) {
    throw modelFileChanged({ path: file.path, problem: 'its size or date has changed' });
  }
  for (const { path, state } of file.parts) await checkState(path, state);
  return found;
}
