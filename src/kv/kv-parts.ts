import type { BlockId } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { BlockPool } from './block-pool.ts';
import type { KvGroup } from './group.ts';
import type { KvRequest } from './kv-request.ts';
import type { PrefixIndex } from './prefix-index.ts';
import type { Residency } from './residency.ts';

/** What the cache consists of; `KvCache` owns it, the files around it each do one thing with it. */
export interface KvParts {
  readonly spec: KvCacheSpec;
  readonly enablePrefixCaching: boolean;
  readonly groups: readonly KvGroup[];
  readonly pool: BlockPool;
  readonly residency: Residency;
  /** Pages whose content is confirmed (I4). */
  readonly cached: PrefixIndex;
  /** Pages that their owner has promised to fill, by the content they will have. */
  readonly computing: PrefixIndex;
  /** Open requests by slot. */
  readonly requests: (KvRequest | undefined)[];
  /** Told of each block whose rows have made it valid: what a connector may save. */
  onBlockCached?: (block: BlockId, request: KvRequest, group: number, index: number) => void;
}
