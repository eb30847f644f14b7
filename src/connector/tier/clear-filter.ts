import { saltTagBytes } from '../salt-tag.ts';
import { saltTagAt, saltTagIn } from './block-header.ts';

/** Whether a stored block is one of the salt, by its header; undefined: any. A header that is cut off has no salt. */
export const hasSaltTag = (stored: Uint8Array, saltTag: string | undefined): boolean =>
  saltTag === undefined || (stored.length >= saltTagAt + saltTagBytes && saltTagIn(stored) === saltTag);
