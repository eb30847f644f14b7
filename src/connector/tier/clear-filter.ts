import { readSaltTag, saltTagBytes } from '../salt-tag.ts';

/** Where headers have the tag of the cache salt (`block-header.ts`). */
export const saltTagAt = 56;

/** Whether a stored block is one of the salt, by its header; undefined: any. A header that is damaged or cut off has no salt. */
export function hasSaltTag(stored: Uint8Array, saltTag: string | undefined): boolean {
  return (
    saltTag === undefined || (stored.length >= saltTagAt + saltTagBytes && readSaltTag(stored, saltTagAt) === saltTag)
  );
}
