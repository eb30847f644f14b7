import type { LoadJob } from '../src/connector/connector.ts';
import type { BlockId } from '../src/core/ids.ts';
import type { StoredBlock } from './fake-runner.ts';

/** One rank's part in a load. */
export interface RankLoad {
  readonly job: LoadJob;
  /** The stored content by block; blocks that fail have no entry. */
  readonly content: ReadonlyMap<BlockId, StoredBlock>;
  decideAtMs: number;
  drainAtMs: number;
  readonly failed: Set<BlockId>;
  /** Blocks that arrived and were invalidated before the report; the report does not name them. */
  readonly invalidated: Set<BlockId>;
  readonly isHung: boolean;
  readonly isSilent: boolean;
  /** The report names the whole load as failed, not single blocks. */
  readonly isWhole: boolean;
  /** Blocks that arrive before the load is decided; undefined: it is not known yet. */
  early: ReadonlySet<BlockId> | undefined;
  isEarlyReported: boolean;
  isDecided: boolean;
  /** The bytes arrived, or never will. While a worker is silent, it has not verified them yet. */
  isArrived: boolean;
  /** The failed blocks have been reported, before the forward pass. */
  areFailuresReported: boolean;
  isReported: boolean;
}

/** A load that has begun. */
export const underWay = {
  early: undefined,
  isEarlyReported: false,
  isDecided: false,
  isArrived: false,
  areFailuresReported: false,
  isReported: false,
};
