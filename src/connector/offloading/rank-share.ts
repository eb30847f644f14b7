import { formatBytes } from '../../base/bytes.ts';
import type { KvIdentity } from '../connector.ts';
import { tiersInvalid } from '../errors.ts';
import { headerBytes } from '../tier/block-header.ts';
import type { SecondarySpec } from './tier-spec.ts';

const remoteStoresAtOnce = 8;
export const s3PackBytes = 8 * 1024 ** 2;
const s3StoresMax = 64;

/** The bound of one rank's part: the ranks share the bytes of a tier. */
export const maxBytesOf = ({ maxBytes }: { readonly maxBytes: number }, { worldSize }: KvIdentity): number =>
  Math.max(1, Math.floor(maxBytes / worldSize));

/**
 * The quota of one rank's part.
 * @throws KvasirError `tiersInvalid` if no block fits into it.
 */
export function quotaOf({ quotaBytes }: { readonly quotaBytes?: number }, identity: KvIdentity): number | undefined {
  if (quotaBytes === undefined) return undefined;
  const bytes = maxBytesOf({ maxBytes: quotaBytes }, identity);
  const blockBytes = headerBytes + identity.blockBytes;
  if (bytes >= blockBytes) return bytes;
  const reason = `a quota of ${formatBytes(quotaBytes)} is ${formatBytes(bytes)} for each rank, but one block needs ${formatBytes(blockBytes)}. Make it larger`;
  throw tiersInvalid({ reason });
}

/** How many blocks are written to the tier at once. A bucket packs the blocks that come together into one object. */
export function storesAtOnce(spec: SecondarySpec, { blockBytes }: KvIdentity): number {
  if (spec.kind === 'disk') return spec.writeThreads;
  if (spec.kind === 'redis' || spec.kind === 'own') return remoteStoresAtOnce;
  return Math.min(s3StoresMax, 2 * Math.ceil(s3PackBytes / blockBytes));
}
