import { assert } from '../../../base/assert.ts';
import type { Brand } from '../../../base/brand.ts';
import { type BlockKey, digestHexOfKey, groupOfKey } from '../../block-key.ts';
import type { KvIdentity } from '../../connector.ts';
import { modelFolder, rankFolder } from '../identity.ts';

/**
 * The name of an object lists its blocks, so a listing of names is an index of the blocks:
 *
 *     <prefix>/<model folder>/<rank folder>/ <time> - <random> - <short key> <short key> ...
 *
 * `time` is 12 hex digits of milliseconds, so names are in the order of writing. `random` makes the names of two servers
 * differ. A `/` stands after each 240 characters, because servers on a file system limit a name between two slashes to 255
 * bytes. All blocks have the same length, so the n-th short key also says at which offset the block begins.
 */
export interface ObjectName {
  readonly writtenAtMs: number;
  /** The short keys of the blocks, without a separator. */
  readonly shortKeys: string;
}

/**
 * 72 bits of the key, as 12 characters. If two keys have the same 72 bits, one block is found in place of the other. Its
 * header has the whole key, so the load is a miss.
 */
export type ShortKey = Brand<string, 'ShortKey'>;

export const shortKeyLength = 12;
const shortKeyBytes = 9;
const timeDigits = 12;
const randomLength = 8;
const headLength = timeDigits + 1 + randomLength + 1;
const partLength = 240;
const nameBytesMax = 1024;
const blocksMax = 64;
const namePattern = /^([0-9a-f]{12})-[\w-]{8}-((?:[\w-]{12})+)$/;

/** The prefix of all objects of one model, layout and rank (I10). Ends with a slash. */
export function folderOf(prefix: string, identity: KvIdentity): string {
  const trimmed = prefix.replace(/^\/+|\/+$/g, '');
  const folder = `${modelFolder(identity)}/${rankFolder(identity)}/`;
  return trimmed === '' ? folder : `${trimmed}/${folder}`;
}

/** How many blocks the name of an object in this folder can list. */
export function blocksPerName(folder: string): number {
  const room = nameBytesMax - Buffer.byteLength(folder);
  // Of each 241 bytes, one is a slash.
  const characters = room - Math.ceil(room / (partLength + 1));
  return Math.max(0, Math.min(blocksMax, Math.floor((characters - headLength) / shortKeyLength)));
}

/** The group changes the last two bytes, because the blocks of a group have the same digest as those of the others. */
export function shortKeyOf(key: BlockKey): ShortKey {
  const bytes = Buffer.from(digestHexOfKey(key).slice(0, shortKeyBytes * 2), 'hex');
  const group = groupOfKey(key);
  bytes[shortKeyBytes - 2]! ^= group >>> 8;
  bytes[shortKeyBytes - 1]! ^= group & 255;
  return bytes.toString('base64url') as ShortKey;
}

/** `random`: 8 characters of base64url. */
export function objectNameOf(writtenAtMs: number, random: string, shortKeys: readonly ShortKey[]): string {
  assert(random.length === randomLength, `a random part of ${random.length} characters`);
  const text = `${timeText(writtenAtMs)}-${random}-${shortKeys.join('')}`;
  const parts: string[] = [];
  for (let at = 0; at < text.length; at += partLength) parts.push(text.slice(at, at + partLength));
  return parts.join('/');
}

/** Names of objects that were written from then on are greater. */
export const timeText = (atMs: number): string =>
  Math.max(0, Math.floor(atMs)).toString(16).padStart(timeDigits, '0').slice(-timeDigits);

/** Undefined for the name of an object that no tier has written. */
export function parseObjectName(name: string): ObjectName | undefined {
  const match = namePattern.exec(name.replaceAll('/', ''));
  if (match === null) return undefined;
  return { writtenAtMs: Number.parseInt(match[1]!, 16), shortKeys: match[2]! };
}

export const shortKeyAt = (shortKeys: string, slot: number): ShortKey =>
  shortKeys.slice(slot * shortKeyLength, (slot + 1) * shortKeyLength) as ShortKey;

export const countOfShortKeys = (shortKeys: string): number => shortKeys.length / shortKeyLength;
