import { createHash } from 'node:crypto';
import { open, readdir, readFile } from 'node:fs/promises';
import { basename, join, sep } from 'node:path';
import { type BlockKey, blockKey, digestHexOfKey, groupOfKey } from '../../connector/block-key.ts';
import { headerBytes, payloadCrcOf } from '../../connector/tier/block-header.ts';
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

/** The blocks whose files a store has on every rank. The content of the files is not checked. */
export async function storedKeys(root: string, keys: Iterable<BlockKey>, ranks: number): Promise<Set<BlockKey>> {
  const files = new Set<string>();
  for (const entry of await readdir(root, { recursive: true, withFileTypes: true }))
    if (entry.isFile()) files.add(nameOf(rankOf(entry.parentPath), entry.name));
  const isOn = (key: BlockKey, rank: number): boolean => files.has(nameOf(onRank(rank, ranks), fileOf(key)));
  const everyRank = Array.from({ length: ranks }, (_, rank) => rank);
  return new Set([...keys].filter((key) => everyRank.every((rank) => isOn(key, rank))));
}

/** Whether both stores have a block on every rank, and whether its KV has equal CRCs on every rank. */
export function compareBlock(
  key: BlockKey,
  ranks: number,
  failedKeys: StoredCrcs,
  computed: StoredCrcs,
): { readonly isThere: boolean; readonly isEqual: boolean } {
  const file = fileOf(key);
  let [there, equal] = [0, 0];
  for (let rank = 0; rank < ranks; rank++) {
    const name = nameOf(onRank(rank, ranks), file);
    const [before, after] = [failedKeys.get(name), computed.get(name)];
    if (before === undefined || after === undefined) continue;
    there++;
    if (before === after) equal++;
  }
  return { isThere: there === ranks, isEqual: equal === ranks };
}

/** The fingerprint from the record beside the blocks; every block's key depends on it. */
export async function readFingerprint(root: string): Promise<string> {
  const files = await readdir(root, { recursive: true });
  const record = files.map(String).find((name) => basename(name) === 'config.json');
  const { fingerprint } = JSON.parse(await readFile(join(root, record ?? 'config.json'), 'utf8')) as {
    fingerprint: string;
  };
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
