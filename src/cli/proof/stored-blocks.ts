import { createHash } from 'node:crypto';
import { cp, open, readdir, readFile, rename, rm, stat, symlink } from 'node:fs/promises';
import { basename, join, sep } from 'node:path';
import { assert } from '../../base/assert.ts';
import { type BlockKey, blockKey, isBlockKey } from '../../connector/block-key.ts';
import { headerBytes, payloadCrcOf } from '../../connector/tier/block-header.ts';
import { hasKvOn } from '../../connector/tier/blocks-of-rank.ts';
import type { IdentityRecord } from '../../connector/tier/identity.ts';
import { blockIndex, groupIndex } from '../../core/ids.ts';
import { TokenBuffer } from '../../core/tokens.ts';
import { HashChain } from '../../kv/block-hash.ts';
import type { ReferenceGroup } from './needed-tokens.ts';

/** The part of a block that one rank stored. */
export interface StoredBlock {
  readonly path: string;
  readonly key: BlockKey;
  readonly rank: number;
}

/** The ranks with KV in a block: those with a layer of its KV group. */
export type RanksOfBlock = (key: BlockKey) => readonly number[];

/** The CRC32 of the KV, by block and rank. */
export type StoredCrcs = ReadonlyMap<BlockKey, ReadonlyMap<number, number>>;

/**
 * The files in the directory of a disk tier: `<model>/rank<r>of<n>/<aa>/<digest>-g<group>.kv`. Tests damage
 * them with system calls, also while an engine uses them.
 */
export class BlockStore {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  /** Every block, in an order that does not depend on the file system. */
  async blocks(): Promise<StoredBlock[]> {
    const found: StoredBlock[] = [];
    for (const entry of await readdir(this.path, { recursive: true, withFileTypes: true })) {
      const [, digest, group] = /^([0-9a-f]{64})-g(\d+)\.kv$/.exec(entry.name) ?? [];
      const key = `${group}-${digest}`;
      if (isBlockKey(key))
        found.push({ path: join(entry.parentPath, entry.name), key, rank: rankOf(entry.parentPath) });
    }
    return found.sort((a, b) => a.rank - b.rank || (a.key < b.key ? -1 : 1));
  }

  /** The blocks that are stored on every rank with KV in them. The content of the files is not checked. */
  async keys(): Promise<Set<BlockKey>> {
    const ranksOf = await this.ranksOfBlocks();
    const stored = new Set<string>();
    const blocks = await this.blocks();
    for (const { key, rank } of blocks) stored.add(`${rank}/${key}`);
    const isComplete = ({ key }: StoredBlock): boolean => ranksOf(key).every((rank) => stored.has(`${rank}/${key}`));
    return new Set(blocks.filter(isComplete).map(({ key }) => key));
  }

  /** The size of all blocks with their headers. */
  async bytes(): Promise<number> {
    const sizes = await Promise.all((await this.blocks()).map(async ({ path }) => (await stat(path)).size));
    return sizes.reduce((total, size) => total + size, 0);
  }

  /** Reads the header of every block. */
  async crcs(): Promise<StoredCrcs> {
    const crcs = new Map<BlockKey, Map<number, number>>();
    for (const { path, key, rank } of await this.blocks()) {
      const file = await open(path);
      const header = new Uint8Array(headerBytes);
      await file.read(header, 0, headerBytes, 0).finally(() => file.close());
      const ofKey = crcs.get(key) ?? new Map<number, number>();
      crcs.set(key, ofKey.set(rank, payloadCrcOf(header)));
    }
    return crcs;
  }

  /** Reads the layers of each rank from the records beside the blocks. A rank without a record counts as one with all layers. */
  async ranksOfBlocks(): Promise<RanksOfBlock> {
    const records = await this.#records();
    const hasKv = Array.from({ length: records[0]!.worldSize }, (_, rank) =>
      hasKvOn(records.find((record) => record.rank === rank) ?? { groups: [] }),
    );
    return (key) => [...hasKv.keys()].filter((rank) => hasKv[rank]!(key));
  }

  /** The fingerprint from the record beside the blocks; every block's key depends on it. */
  async fingerprint(): Promise<string> {
    return (await this.#records())[0]!.fingerprint;
  }

  /** The path of the copy is a symbolic link, so that the copy can be taken down and brought back in one step. */
  async copyTo(path: string): Promise<BlockStore> {
    await cp(this.path, blocksOf(path), { recursive: true });
    const copy = new BlockStore(path);
    await copy.#pointTo(blocksOf(path));
    return copy;
  }

  /** Takes a copy down: every call of the file system fails with ELOOP, as on a dead mount. */
  takeDown(): Promise<void> {
    return this.#pointTo(this.path);
  }

  bringBack(): Promise<void> {
    return this.#pointTo(blocksOf(this.path));
  }

  async remove(): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
    await rm(blocksOf(this.path), { recursive: true, force: true });
  }

  /** At least one: an engine writes it when it opens the store. */
  async #records(): Promise<IdentityRecord[]> {
    const paths = (await readdir(this.path, { recursive: true })).filter((path) => basename(path) === 'config.json');
    const texts = await Promise.all(paths.map((path) => readFile(join(this.path, path), 'utf8')));
    assert(texts.length > 0, `no record of a model in ${this.path}`);
    return texts.map((text) => JSON.parse(text) as IdentityRecord);
  }

  async #pointTo(target: string): Promise<void> {
    const link = `${this.path}.link`;
    await symlink(target, link);
    await rename(link, this.path);
  }
}

const blocksOf = (path: string): string => `${path}.blocks`;

const rankOf = (folder: string): number =>
  Number(/\d+/.exec(folder.split(sep).findLast((part) => /^rank\d+of\d+$/.test(part)) ?? '')?.[0]);

/** Whether both stores have a block on these ranks, and the parts of all ranks that `computed` has are equal to the stored ones. */
export function isEqualOn(ranks: readonly number[], key: BlockKey, stored: StoredCrcs, computed: StoredCrcs): boolean {
  const after = computed.get(key) ?? new Map<number, number>();
  const isEqual = (rank: number): boolean => after.get(rank) === stored.get(key)?.get(rank);
  return ranks.every((rank) => after.has(rank)) && [...after.keys()].every(isEqual);
}

/** What a request's keys have beside its tokens. */
export interface KeyNames {
  readonly cacheSalt?: string | undefined;
  /** The digest of its LoRA adapter. */
  readonly adapter?: string | undefined;
}

/** The keys of a prompt's full blocks in the first KV group, in order. */
export function keysOf(
  tokens: readonly number[],
  blockSize: number,
  fingerprint: string,
  names: KeyNames = {},
): BlockKey[] {
  const sha256 = (bytes: Uint8Array): Uint8Array => createHash('sha256').update(bytes).digest();
  const chain = new HashChain(sha256, blockSize, { fingerprint, cacheSalt: names.cacheSalt, adapter: names.adapter });
  chain.extend(new TokenBuffer(Int32Array.from(tokens)));
  return Array.from({ length: chain.count }, (_, block) => blockKey(groupIndex(0), chain.words, blockIndex(block)));
}

/** The keys of a prompt's full blocks in each KV group, in order. */
export function keysInGroups(
  tokens: readonly number[],
  groups: readonly ReferenceGroup[],
  fingerprint: string,
  names: KeyNames = {},
): BlockKey[][] {
  const inGroup = (key: BlockKey, group: number): BlockKey => key.replace(/^\d+/, String(group)) as BlockKey;
  return groups.map(({ blockSize }, group) =>
    keysOf(tokens, blockSize, fingerprint, names).map((key) => inGroup(key, group)),
  );
}
