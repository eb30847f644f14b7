import type { BlockId, BlockIndex, GroupIndex } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { BlockPool } from './block-pool.ts';
import type { CacheEventLog } from './cache-events.ts';
import type { KvGroup } from './group.ts';
import type { KvRequest } from './kv-request.ts';
import type { PinnedPrefixes } from './pinned-prefixes.ts';
import type { PrefixIndex } from './prefix-index.ts';
import type { Residency } from './residency.ts';
import type { WantedContent } from './wanted-content.ts';

/** The parts of the cache. `KvCache` owns them; the other files of this folder have functions over them. */
export interface KvParts {
  readonly spec: KvCacheSpec;
  readonly enablePrefixCaching: boolean;
  readonly groups: readonly KvGroup[];
  readonly pool: BlockPool;
  readonly residency: Residency;
  /** The prefix cache: blocks whose KV is valid (I4). */
  readonly cached: PrefixIndex;
  /** Blocks that their owner is computing or loading, by the keys that they will have. */
  readonly computing: PrefixIndex;
  readonly pins: PinnedPrefixes;
  readonly wanted: WantedContent;
  /** Open requests by slot. */
  readonly requests: (KvRequest | undefined)[];
  /** Called for each block that is cached after its tokens were computed: a connector may store it. */
  onBlockCached?: (block: BlockId, request: KvRequest, group: GroupIndex, index: BlockIndex) => void;
  /** Absent: changes of the prefix cache are not recorded. */
  events?: CacheEventLog;
}
