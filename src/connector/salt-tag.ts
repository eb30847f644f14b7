import { createHash } from 'node:crypto';
import type { Brand } from '../base/brand.ts';

/**
 * Says which cache salt a block belongs to, in headers, quotas and metrics: the first 8 bytes of a hash of the salt, as 16 hexadecimal
 * digits. Blocks of requests without a salt have none. A tag hides no salt that can be guessed, and neither do the keys of blocks.
 */
export type SaltTag = Brand<string, 'SaltTag'>;

export const saltTagBytes = 8;

/** The tag of a cache salt, which metrics by salt show. Without a salt: undefined. */
export function saltTagOf(cacheSalt: string | undefined): SaltTag | undefined {
  if (cacheSalt === undefined) return undefined;
  const digest = createHash('sha256').update('kvasir cache salt 1').update(cacheSalt, 'utf16le').digest();
  return readSaltTag(digest, 0);
}

/** Zeros: no tag. */
export function readSaltTag(bytes: Uint8Array, at: number): SaltTag | undefined {
  const field = bytes.subarray(at, at + saltTagBytes);
  if (field.every((byte) => byte === 0)) return undefined;
  return Array.from(field, (byte) => byte.toString(16).padStart(2, '0')).join('') as SaltTag;
}

export function writeSaltTag(tag: SaltTag | undefined, out: Uint8Array, at: number): void {
  for (let i = 0; i < saltTagBytes; i++)
    out[at + i] = tag === undefined ? 0 : Number.parseInt(tag.slice(i * 2, i * 2 + 2), 16);
}
