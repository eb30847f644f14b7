import type { BlockKey } from '../../src/connector/block-key.ts';
import type { Crc32, KvIdentity, MacKeys } from '../../src/connector/connector.ts';

/**
 * One tier to measure, and what limits it: the same bytes moved without headers, checksums, keys and verification. Blocks of
 * the limit are named by their index.
 */
export interface TierSubject {
  /** For the table. */
  readonly name: string;
  /** What moves the bytes of the limit, such as `memcpy`. */
  readonly limit: Readonly<Record<Direction, string>>;
  /** Calls at once, of the tier and of its limit. */
  readonly callsAtOnce: Readonly<Record<Direction, number>>;
  /** Throws if the tier does not store the block. */
  store(key: BlockKey, bytes: Uint8Array): Promise<void>;
  /** Throws if the tier does not give the verified block. */
  load(key: BlockKey, into: Uint8Array): Promise<void>;
  /** Removes the blocks of a repetition, which later ones do not load. */
  delete(keys: readonly BlockKey[]): Promise<void>;
  /** Called once per index between calls of `clearLimit`. */
  storeLimit(index: number, bytes: Uint8Array): Promise<void>;
  /** A client of a server may drop the bytes instead of copying them to `into`. */
  loadLimit(index: number, into: Uint8Array): Promise<void>;
  clearLimit(): Promise<void>;
  close(): Promise<void>;
}

export const directions = ['store', 'load'] as const;
export type Direction = (typeof directions)[number];

/** The options of `openTier` for a measured tier, and its name in the table. */
export function tierOptions(kind: string, { identity, crc32, macKeys }: SubjectOptions) {
  const encrypts = macKeys !== undefined;
  return {
    name: encrypts ? `${kind} encrypted` : kind,
    options: { identity, crc32, macKeys, encrypts, movesBlocks: true },
  };
}

export interface SubjectOptions {
  readonly identity: KvIdentity;
  /** The implementation for engines; undefined: Node's. */
  readonly crc32: Crc32 | undefined;
  /** Blocks are encrypted with these keys; undefined: they are not. */
  readonly macKeys?: MacKeys | undefined;
  /** Blocks of one measurement. */
  readonly blocks: number;
}
