import { createHash } from 'node:crypto';
import { open, readdir, readFile } from 'node:fs/promises';
import { basename, dirname, join, sep } from 'node:path';
import { type BlockKey, blockKey, digestHexOfKey, groupOfKey } from '../../connector/block-key.ts';
import { headerBytes, payloadCrcOf } from '../../connector/tier/block-header.ts';
import { hasKvOn } from '../../connector/tier/blocks-of-rank.ts';
import type { IdentityRecord } from '../../connector/tier/identity.ts';
import { blockIndex, groupIndex } from '../../core/ids.ts';
import { TokenBuffer } from '../../core/tokens.ts';
import { HashChain } from '../../kv/block-hash.ts';
import type { ReferenceGroup } from './needed-tokens.ts';

/** From the headers of a directory's blocks: the CRC32 of the KV, by the rank's folder and the block. */
export type StoredCrcs = ReadonlyMap<string, number>;

/** Reads the header of every block in a store: `<model>/<rank>/<aa>/<digest>-g<group>.kv`. */
export async function readStoredCrcs(root: string): Promise<StoredCrcs> {
  const crcs = new Map<string, number>();
  for (const entry of await readdir(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !entry.name.endsWith('.kv')) continue;
    const file = await open(join(entry.parentPath, entry.name));
    const header = new Uint8Array(headerBytes);
    await file.read(header, 0, headerBytes, 0).finally(() => file.close());
    crcs.set(nameOf(rankOf(entry.parentPath), entry.name), payloadCrcOf(header));
  }
  return crcs;
}

const rankOf = (folder: string): string => folder.split(sep).find((part) => /^rank\d+of\d+$/.test(part)) ?? '';
const nameOf = (rank: string, file: string): string => `${rank}/${file}`;

const fileOf = (key: BlockKey): string => `${digestHexOfKey(key)}-g${groupOfKey(key)}.kv`;
const onRank = (rank: number, ranks: number): string => `rank${rank}of${ranks}`;

/** The ranks with KV in a block: those with a layer of its KV group. */
export type RanksOfBlock = (key: BlockKey) => readonly number[];

/** Reads the layers of each rank from the records beside the blocks. A rank without a record counts as one with all layers. */
export async function readRanksOfBlocks(root: string, ranks: number): Promise<RanksOfBlock> {
  const records = new Map<string, IdentityRecord>();
  for (const path of await recordsIn(root))
    records.set(rankOf(dirname(path)), JSON.parse(await readFile(path, 'utf8')) as IdentityRecord);
  const hasKv = Array.from({ length: ranks }, (_, rank) => hasKvOn(records.get(onRank(rank, ranks)) ?? { groups: [] }));
  return (key) => [...hasKv.keys()].filter((rank) => hasKv[rank]!(key));
}

const recordsIn = async (root: string): Promise<string[]> =>
  (await readdir(root, { recursive: true }))
    .filter((path) => basename(path) === 'config.json')
    .map((path) => join(root, path));

/** The blocks whose files a store has on every rank with KV in them. The content of the files is not checked. */
export async function storedKeys(root: string, keys: Iterable<BlockKey>, ranks: number): Promise<Set<BlockKey>> {
  const files = new Set<string>();
  for (const entry of await readdir(root, { recursive: true, withFileTypes: true }))
    if (entry.isFile()) files.add(nameOf(rankOf(entry.parentPath), entry.name));
  const isOn = (key: BlockKey, rank: number): boolean => files.has(nameOf(onRank(rank, ranks), fileOf(key)));
  const ranksOf = await readRanksOfBlocks(root, ranks);
  return new Set([...keys].filter((key) => ranksOf(key).every((rank) => isOn(key, rank))));
}

/** Whether both stores have a block, with equal CRCs, on every rank with KV in it. `ranks`: of all folders. */
export function isEqualOn(
  key: BlockKey,
  { ranks, ranksOf }: { readonly ranks: number; readonly ranksOf: RanksOfBlock },
  stored: StoredCrcs,
  computed: StoredCrcs,
): boolean {
  return ranksOf(key).every((rank) => {
    const name = nameOf(onRank(rank, ranks), fileOf(key));
    const [before, after] = [stored.get(name), computed.get(name)];
    return before !== undefined && before === after;
  });
}

/** The fingerprint from the record beside the blocks; every block's key depends on it. */
export async function readFingerprint(root: string): Promise<string> {
  const [record = join(root, 'config.json')] = await recordsIn(root);
  const { fingerprint } = JSON.parse(await readFile(record, 'utf8')) as IdentityRecord;
  return fingerprint;
}

/** The keys of a prompt's full blocks in the first KV group, in order. */
export function keysOf(
  tokens: readonly number[],
  blockSize: number,
  fingerprint: string,
  cacheSalt?: string,
): BlockKey[] {
  const sha256 = (bytes: Uint8Array): Uint8Array => createHash('sha256').update(bytes).digest();
  const chain = new HashChain(sha256, blockSize, { fingerprint, cacheSalt });
  chain.extend(new TokenBuffer(Int32Array.from(tokens)));
  return Array.from({ length: chain.count }, (_, block) => blockKey(groupIndex(0), chain.words, blockIndex(block)));
}

/** The keys of a prompt's full blocks in each KV group, in order. */
export function keysInGroups(
  tokens: readonly number[],
  groups: readonly ReferenceGroup[],
  fingerprint: string,
  cacheSalt?: string,
): BlockKey[][] {
  const inGroup = (key: BlockKey, group: number): BlockKey => key.replace(/^\d+/, String(group)) as BlockKey;
  return groups.map(({ blockSize }, group) =>
    keysOf(tokens, blockSize, fingerprint, cacheSalt).map((key) => inGroup(key, group)),
  );
}
