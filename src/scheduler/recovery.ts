import { assert } from '../base/assert.ts';
import type { JsonObject } from '../base/json.ts';
import type { LoadOutcome } from '../connector/connector.ts';
import { type BlockPlace, placeName } from '../core/block-place.ts';
import { kvLoadFailed } from '../core/errors.ts';
import type { BlockId, RequestId } from '../core/ids.ts';
import { InvalidBlocks } from '../core/invalid-blocks.ts';
import type { RequestUpdate } from '../core/request.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import type { KvRequest } from '../kv/kv-request.ts';
import type { ExecutedStep, ScheduledStep, SchedulerOptions, SchedulerStats } from './contract.ts';
import type { ExternalKv, RequestLoad } from './external-kv.ts';
import type { RequestState } from './request-state.ts';
import type { RunningList } from './running-list.ts';
import { spansOf } from './spans-of.ts';

type RecoveryStats = Pick<
  SchedulerStats['transfers'],
  'failedLoads' | 'recoveries' | 'recoveredTokens' | 'failedRequests' | 'affectedTokens'
>;

/** How often one request asks the connector again after failed loads. The death of a worker does not count. */
const retriesMax = 4;

/** The parts of the scheduler that recovery uses. */
export interface RecoveryParts {
  readonly kv: KvCache;
  /** Undefined without a connector. */
  readonly external: ExternalKv | undefined;
  readonly policy: NonNullable<SchedulerOptions['kvLoadFailurePolicy']>;
  /** Every request that has not ended. */
  readonly requests: ReadonlyMap<RequestId, RequestState>;
  /**
   * Ends these requests and releases their blocks. Returns, in the same order, the connector's answers to their
   * clients.
   */
  readonly end: (states: readonly RequestState[]) => readonly { readonly kvTransferParams?: JsonObject }[];
}

/**
 * Recovery from invalid KV: a load fails or is late, a block is invalid, a worker dies. In each case the blocks are not
 * valid, and the requests that have them plan again, or end by the policy `fail`.
 *
 * Before such a request computes full blocks again, it asks the connector for them, as at its admission. Loading a
 * block costs about a hundredth of computing it, so even one block is worth the question. The request keeps its blocks
 * and waits like other requests with loads. The blocks that the connector promises are loaded into its invalid blocks.
 *
 *   running -- invalid KV --> waitingForRemoteKv: asks -- answer or deadline --> loads --> running
 *
 * With window or state groups, the request asks for all blocks whose tokens it would compute. Blocks that it did not
 * need before, such as an earlier checkpoint or the window in front of a failed block, may now save tokens.
 *
 * The scheduler's `apply` calls `apply`, which commits the step in the middle. The next `plan` calls `queryAgain`.
 */
export class Recovery {
  readonly #parts: RecoveryParts;
  /** Blocks that were reported invalid while a step was in flight. */
  #reported: BlockId[] = [];
  /** Requests with invalid KV and no answer yet, with the places to ask for; undefined: all uncomputed blocks. */
  readonly #toReload = new Map<KvRequest, ReadonlySet<string> | undefined>();
  /** Whether a request needs other blocks after a block has failed. */
  readonly #asksForAll: boolean;
  #nowMs: number | undefined;
  #failedLoads = 0;
  #recoveries = 0;
  #recoveredTokens = 0;
  #failedRequests = 0;
  #affectedTokens = 0;

  constructor(parts: RecoveryParts) {
    this.#parts = parts;
    this.#asksForAll = parts.kv.parts.spec.groups.some(({ kind }) => kind !== 'full');
  }

  get stats(): RecoveryStats {
    return {
      failedLoads: this.#failedLoads,
      recoveries: this.#recoveries,
      recoveredTokens: this.#recoveredTokens,
      failedRequests: this.#failedRequests,
      affectedTokens: this.#affectedTokens,
    };
  }

  /** Undefined: times are not measured. */
  setTime(nowMs: number | undefined): void {
    this.#nowMs = nowMs;
  }

  /** Called while a step is in flight: recovery follows when its result is applied. */
  reportInvalid(blocks: readonly BlockId[]): void {
    this.#reported.push(...blocks);
  }

  /**
   * Applies what a step reports of loads and invalid blocks. Loaded blocks are valid from here on. `commit` commits the tokens
   * of the step without those that depend on unavailable blocks. Then owners compute failed blocks, and requests wait for
   * late blocks. Returns the updates of requests that end by the policy `fail`.
   */
  apply(
    plan: ScheduledStep,
    result: ExecutedStep,
    commit: (unavailable: readonly BlockId[]) => void,
  ): readonly RequestUpdate[] {
    const { kv, external } = this.#parts;
    const reported = this.#reported;
    this.#reported = [];
    const invalid = result.invalidBlocks === undefined ? reported : [...result.invalidBlocks, ...reported];
    const loads = external?.receive(result.connectorOutputs ?? nothing, plan.tokenCount > 0) ?? nothing;
    const late = external?.lateIn(plan.connectorMetadata) ?? nothing;
    const unavailable = [...invalid, ...late];
    for (const { blocks, mode } of loads)
      for (const block of blocks) {
        if (block.result === 'loaded') kv.loadArrived(block);
        // No token reads a block of an async load.
        else if (mode === 'sync') unavailable.push(block.block);
      }
    commit(unavailable);
    kv.loadLate(late);
    return this.#lost(loads, invalid);
  }

  /** These blocks are invalid. No step is in flight. Returns the updates of requests that end by the policy `fail`. */
  invalidate(blocks: readonly BlockId[]): readonly RequestUpdate[] {
    return this.#lost(nothing, blocks);
  }

  /** The requests that have failed blocks of these loads, or invalid blocks, plan again, and ask the connector for these blocks. */
  #lost(loads: readonly RequestLoad[], invalid: readonly BlockId[]): readonly RequestUpdate[] {
    const failed = loads.map(({ blocks }) => blocks.filter(({ result }) => result !== 'loaded'));
    if (invalid.length === 0 && failed.every(({ length }) => length === 0)) return nothing;
    const { kv, external } = this.#parts;
    const affected = this.#affectedBy([...failed.flat().map(({ block }) => block), ...invalid]);
    const ending = new Set<KvRequest>();
    for (const [i, { state }] of loads.entries()) {
      const blocks = failed[i]!;
      if (blocks.length === 0) continue;
      this.#failedLoads += blocks.length;
      state.loadsFailed(blocks.length);
      const users = this.#stopLoading(blocks);
      this.#reloadFailed(users, blocks);
      // Requests that share the load try themselves: their own load may succeed. The request of the load ends by the policy `fail`, also if
      // it has planned again since, because a shared block failed, and no longer has the failed blocks.
      if (state.kv.admitted) ending.add(state.kv);
    }
    if (invalid.length > 0) {
      external?.dropInvalid(invalid);
      // A transfer that fills such a block cannot be trusted any more, so no request waits for it.
      const users = this.#stopLoading(invalid.map((block) => ({ block, isBlockBusy: true })));
      for (const user of kv.invalidate(invalid)) users.add(user);
      for (const user of users) {
        ending.add(user);
        if (external !== undefined) this.#toReload.set(user, undefined);
      }
    }
    const ended = this.#fail(ending);
    this.#count(affected, new Set(ended.map(({ requestId }) => requestId)));
    return ended;
  }

  /** Nothing fills these blocks any more, except I/O in busy blocks. Returns the requests that waited for them. */
  #stopLoading(blocks: readonly Pick<LoadOutcome, 'block' | 'isBlockBusy'>[]): Set<KvRequest> {
    const users = new Set<KvRequest>();
    for (const { block, isBlockBusy } of blocks)
      for (const user of this.#parts.kv.loadFailed(block, isBlockBusy)) users.add(user);
    return users;
  }

  /** Asks the connector for invalid blocks. Requests that wait for an answer or a load leave their running slots. */
  queryAgain(running: RunningList, waitingForRemoteKv: RequestState[]): void {
    const { kv, external } = this.#parts;
    if (external === undefined) return;
    for (const user of this.#toReload.keys()) {
      const state = external.stateOf(user.slot);
      if (!user.isOpen || !user.admitted) {
        this.#toReload.delete(user);
        continue;
      }
      if (this.#uncomputed(user).length === 0) {
        state.isQueryingConnector = false;
        // While another request fills its blocks, it may still become their owner.
        if (!kv.awaitsOthers(user)) this.#toReload.delete(user);
        continue;
      }
      state.isQueryingConnector = true;
      if ((this.isQueryingConnector(state) || kv.awaitsLoad(user)) && state.status === 'running') {
        running.remove(state);
        state.status = 'waitingForRemoteKv';
        waitingForRemoteKv.push(state);
      }
    }
  }

  /** Whether the request still waits for the connector's answer. If there is an answer, opens the load. */
  isQueryingConnector(state: RequestState): boolean {
    if (!state.isQueryingConnector) return false;
    const { kv, external } = this.#parts;
    assert(external !== undefined, `request ${state.request.id} asks a connector, but there is none`);
    const match = external.match(state, this.#uncomputed(state.kv));
    if (match === undefined) return true;
    state.isQueryingConnector = false;
    this.#toReload.delete(state.kv);
    external.admitted(state, match, kv.startLoads(state.kv, match.blocks));
    return false;
  }

  #uncomputed(user: KvRequest): BlockPlace[] {
    const places = this.#parts.kv.uncomputed(user);
    const wanted = this.#toReload.get(user);
    return wanted === undefined ? places : places.filter((place) => wanted.has(placeName(place)));
  }

  /** Loads of these blocks failed. Another store may have them; for other blocks the earlier answers stay. */
  #reloadFailed(users: Iterable<KvRequest>, places: readonly BlockPlace[]): void {
    const { external } = this.#parts;
    assert(external !== undefined, 'a load has failed without a connector');
    const names = places.map(placeName);
    for (const user of users) {
      if (++external.stateOf(user.slot).failedLoadRetries > retriesMax) continue;
      const before = this.#toReload.get(user);
      if (before === undefined && this.#toReload.has(user)) continue;
      this.#toReload.set(user, this.#asksForAll ? undefined : new Set([...(before ?? []), ...names]));
    }
  }

  /** Called before these blocks become invalid: the requests that have one, and their tokens. */
  #affectedBy(blocks: readonly BlockId[]): ReadonlyMap<RequestId, number> {
    const tokensOf = new Map<RequestId, number>();
    if (blocks.length === 0) return tokensOf;
    const { kv, requests } = this.#parts;
    const invalid = new InvalidBlocks(kv.parts.spec, blocks);
    for (const state of requests.values()) {
      const affected = state.kv.admitted ? kv.invalidPlaces(state.kv, invalid) : nothing;
      if (affected.length === 0) continue;
      state.lost.add(kv.parts, state.kv, affected);
      state.lostKv(this.#nowMs);
      const tokens = spansOf(kv, affected).reduce((sum, { start, end }) => sum + end - start, 0);
      tokensOf.set(state.request.id, tokens);
    }
    return tokensOf;
  }

  /** `affected`: requests with invalid blocks, and the tokens of these. `ended`: those that ended because of them. */
  #count(affected: ReadonlyMap<RequestId, number>, ended: ReadonlySet<RequestId>): void {
    this.#failedRequests += ended.size;
    for (const [id, tokens] of affected) {
      this.#affectedTokens += tokens;
      if (ended.has(id)) continue;
      this.#recoveries++;
      this.#recoveredTokens += tokens;
    }
  }

  /** By the policy `fail`, requests with invalid KV end, and requests whose own load failed. */
  #fail(users: ReadonlySet<KvRequest>): readonly RequestUpdate[] {
    const { policy, requests, end } = this.#parts;
    if (policy !== 'fail' || users.size === 0) return nothing;
    const states: RequestState[] = [];
    for (const state of requests.values()) {
      if (!users.has(state.kv)) continue;
      states.push(state);
    }
    const finish = { reason: 'error', error: kvLoadFailed() } as const;
    return end(states).map((kvTransferParams, i) => ({
      requestId: states[i]!.request.id,
      newTokens: [],
      finish: { ...finish, ...kvTransferParams },
      stats: states[i]!.stats(),
    }));
  }
}

const nothing: readonly never[] = [];
