import { type BlockKey, blockKey } from '../connector/block-key.ts';
import { type BlockId, blockIndex, groupIndex, NULL_BLOCK, type RequestId } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { RequestStats } from '../core/request.ts';
import { cellOf, drawBlocks, stateOfCell } from '../kv/draw-blocks.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import type { RequestPhase } from './contract.ts';
import type { RequestState } from './request-state.ts';

/** A request that has not ended, for people. */
export interface RequestView {
  readonly id: RequestId;
  readonly tenant: string | undefined;
  readonly phase: RequestPhase;
  readonly stats: RequestStats;
}

/** Shows the state of pool and requests to people. Changes nothing. May be called at any time, also while a step is in flight. */
export class Inspector {
  readonly spec: KvCacheSpec;
  readonly #kv: KvCache;
  readonly #requests: ReadonlyMap<RequestId, RequestState>;

  constructor(kv: KvCache, requests: ReadonlyMap<RequestId, RequestState>) {
    this.spec = kv.parts.spec;
    this.#kv = kv;
    this.#requests = requests;
  }

  /** O(requests + lost blocks). */
  requests(): RequestView[] {
    return Array.from(this.#requests.values(), (state) => ({
      id: state.request.id,
      tenant: state.request.tenant,
      phase: this.#phaseOf(state),
      stats: state.stats(),
    }));
  }

  /** Undefined: the request has ended. O(lost blocks). */
  phaseOf(id: RequestId): RequestPhase | undefined {
    const state = this.#requests.get(id);
    return state === undefined ? undefined : this.#phaseOf(state);
  }

  statsOf(id: RequestId): RequestStats | undefined {
    return this.#requests.get(id)?.stats();
  }

  /** See `draw-blocks.ts`. O(blocks of the pool + blocks of all tables). */
  drawBlocks(cells: Uint8Array): void {
    const { parts } = this.#kv;
    drawBlocks(parts, cells);
    for (const { kv, lost } of this.#requests.values()) {
      if (lost.size === 0) continue;
      for (const { block, group, isValid } of lost.placed(parts, kv))
        if (stateOfCell(cells[block]!) === 'referenced')
          cells[block] = cellOf(isValid ? 'recomputed' : 'invalid', group);
    }
  }

  /** The block tables of a request, by group; 0 where the group has no block. Undefined: the request has ended. */
  tablesOf(id: RequestId): number[][] | undefined {
    return this.#requests.get(id)?.kv.tables.map(({ ids, length }) => Array.from(ids.subarray(0, length)));
  }

  /** The blocks that have KV: of one request, or of all requests and the prefix cache. Ascending. */
  blocksWithContent(id?: RequestId): BlockId[] {
    const { residency, cached, pool } = this.#kv.parts;
    const found = new Set<BlockId>();
    for (const { request, kv } of this.#requests.values()) {
      if (id !== undefined && id !== request.id) continue;
      for (let group = groupIndex(0); group < kv.tables.length; group++) {
        const table = kv.tables[group]!;
        for (let index = blockIndex(kv.firstAllocated[group]!); index < table.length; index++) {
          const block = table.at(index);
          if (block === NULL_BLOCK) continue;
          if (!residency.isOwned(block) || residency.validTokens[block]! > 0) found.add(block);
        }
      }
    }
    if (id === undefined)
      for (let block = (NULL_BLOCK + 1) as BlockId; block < pool.blockCount; block++)
        if (cached.has(block)) found.add(block);
    return [...found].sort((a, b) => a - b);
  }

  /** The keys of the prefix cache, each once. O(blocks of the pool). */
  cachedKeys(): Set<BlockKey> {
    const { cached, pool } = this.#kv.parts;
    const keys = new Set<BlockKey>();
    for (let block = (NULL_BLOCK + 1) as BlockId; block < pool.blockCount; block++) {
      const group = cached.groupOf(block);
      if (group !== undefined) keys.add(blockKey(group, cached.digestOf(block), blockIndex(0)));
    }
    return keys;
  }

  #phaseOf({ status, kv, lost, outputTokens }: RequestState): RequestPhase {
    if (status === 'waiting') return 'queued';
    if (status === 'waitingForRemoteKv') return 'loading';
    if (lost.size > 0 && lost.isAnyPending(this.#kv.parts, kv)) return 'recovering';
    return outputTokens === 0 || kv.tokensLeft() > 1 ? 'prefill' : 'decode';
  }
}
