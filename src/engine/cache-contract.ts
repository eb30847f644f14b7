import type { RequestStats } from '../core/request.ts';
import type { RequestPhase } from '../scheduler/contract.ts';
import type { KvEventMonitor } from './kv-events/contract.ts';

/** The KV pool and the requests for people who watch them. Without watchers, the monitor costs nothing. */
export interface CacheMonitor {
  readonly shape: CacheShape;
  /** Grows whenever blocks or requests may have changed. O(1). */
  readonly version: number;
  /** Notes the phases of requests from now on. The caller closes the watch. */
  watch(): CacheWatch;
  /**
   * Loses blocks between two steps as if a load had failed: their KV is invalid, and requests that have them compute it
   * again (or end, by `kv_load_failure_policy`). In this process and without a connector, the blocks are overwritten too.
   * Rejects with `requestEnded`, `engineClosed` or `engineBroken`.
   */
  loseBlocks(choice: LossChoice): Promise<Loss>;
  /**
   * Empties the prefix cache of the pool. Returns how many blocks stay: those that a request or a transfer uses. Tiers keep their
   * blocks. Throws `engineClosed` or `engineBroken`.
   */
  reset(): number;
  /** Undefined: KV events are off. */
  readonly kvEvents: KvEventMonitor | undefined;
}

/** Which blocks are lost. `count`: as many random blocks that have KV, of one request if there is one, by its id or its name. */
export type LossChoice =
  | { readonly blocks: readonly number[] }
  | { readonly count: number; readonly request?: string; readonly seed?: number };

export interface Loss {
  readonly blocks: readonly number[];
  /** Requests that had one of the blocks. */
  readonly requests: number;
  /** Tokens of these blocks. */
  readonly tokens: number;
}

export interface CacheShape {
  /** The null block included. */
  readonly blockCount: number;
  readonly blockBytes: number;
  readonly groups: readonly {
    readonly kind: 'full' | 'window' | 'state';
    readonly blockSize: number;
    readonly window?: number;
    readonly layers: number;
  }[];
}

export interface CacheWatch {
  /** Draws every block; see `cellOf`. O(blocks). */
  drawBlocks(cells: Uint8Array): void;
  /** Requests in order of arrival, the last ones that have ended included. O(requests). */
  timelines(): readonly RequestTimeline[];
  /** The block tables of a request that has not ended, by group; 0: no block. */
  tablesOf(id: string): readonly (readonly number[])[] | undefined;
  close(): void;
}

export interface RequestTimeline {
  readonly id: string;
  /** For people who may not learn the id: who knows the id of a response can read, continue and delete it. */
  readonly name: string;
  readonly tenant: string | undefined;
  /** Ascending in time. A phase lasts until the next one begins. */
  readonly phases: readonly { readonly phase: RequestPhase | 'finished'; readonly startMs: number }[];
  readonly stats: RequestStats;
}
