import { createHash } from 'node:crypto';
import type { KvIdentity } from '../connector.ts';

/** Begins the name of each model's folder. */
export const modelFolderPrefix = 'kv-';

/** For a tier whose settings are checked before there is a model. It addresses no block. */
export const anyIdentity: KvIdentity = {
  fingerprint: 'settings',
  modelName: '',
  dtype: 'f16',
  rank: 0,
  worldSize: 1,
  blockBytes: 1,
  groups: [],
};

/** The digest of a fingerprint of any length: 32 bytes. */
export const identityDigest = (text: string): Uint8Array => createHash('sha256').update(text).digest();

/**
 * The name of the folder with the blocks of one model in one layout. It does not depend on the served model name, so two
 * names of one file share their blocks.
 */
export function modelFolder({ fingerprint, dtype, groups }: KvIdentity): string {
  const what = JSON.stringify([fingerprint, dtype, groups.map(({ blockSize }) => blockSize)]);
  return `${modelFolderPrefix}${Buffer.from(identityDigest(what)).toString('hex').slice(0, 32)}`;
}

export const rankFolder = ({ rank, worldSize }: KvIdentity): string => `rank${rank}of${worldSize}`;

/** The content of `config.json` beside the blocks, for people and for comparison. */
export interface IdentityRecord {
  readonly format: string;
  readonly model: string;
  readonly fingerprint: string;
  readonly dtype: string;
  readonly rank: number;
  readonly worldSize: number;
  readonly blockBytes: number;
  readonly groups: readonly { readonly blockSize: number; readonly layers: readonly number[] }[];
}

export function identityRecord(identity: KvIdentity): IdentityRecord {
  const { modelName: model, fingerprint, dtype, rank, worldSize, blockBytes, groups } = identity;
  return {
    format: 'Kvasir KV blocks, version 1: one file per block, a header of 160 bytes and the bytes of one block',
    model,
    fingerprint,
    dtype,
    rank,
    worldSize,
    blockBytes,
    groups: groups.map(({ blockSize, layers }) => ({ blockSize, layers })),
  };
}

/** The differences between another directory's record and ours, in words. */
export function differences(theirs: Partial<IdentityRecord>, ours: IdentityRecord): string[] {
  const found: string[] = [];
  for (const name of ['format', 'fingerprint', 'dtype', 'rank', 'worldSize', 'blockBytes', 'groups'] as const) {
    const [a, b] = [JSON.stringify(theirs[name] ?? null), JSON.stringify(ours[name])];
    if (a !== b) found.push(`${name}: ${a}, ours ${b}`);
  }
  return found;
}
