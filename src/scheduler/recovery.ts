import { assert } from '../base/assert.ts';
import type { JsonObject } from '../base/json.ts';
import type { BlockPlace } from '../core/block-place.ts';
import { kvLoadFailed } from '../core/errors.ts';
import type { BlockId, RequestId } from '../core/ids.ts';
import { InvalidBlocks } from '../core/invalid-blocks.ts';
import type { RequestUpdate } from '../core/request.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import type { KvRequest } from '../kv/kv-request.ts';
import { spansOf } from './admit.ts';
import type { ExecutedStep, ScheduledStep, SchedulerOptions, SchedulerStats } from './contract.ts';
import type { ExternalKv, OpenLoadOutcome } from './external-kv.ts';
import type { RequestState } from './request-state.ts';
import type { RunningList } from './running-list.ts';

/** How often one request asks again because a load failed. A worker's death does not count: it says nothing about stores. */
const retriesMax = 4;

/** What recovery knows of the scheduler, and the one thing that it makes the scheduler do. */
export interface RecoveryParts {
  readonly kv: KvCache;
  /** Undefined without a connector: KV is lost then only with its worker. */
  readonly external: ExternalKv | undefined;
  readonly policy: NonNullable<SchedulerOptions['kvLoadFailurePolicy']>;
  /** Every request that has not ended. */
  readonly requests: ReadonlyMap<RequestId, RequestState>;
  /** Ends these requests and gives their blocks back. Returns, in the same order, the connector's words to their clients. */
  readonly end: (states: readonly RequestState[]) => readonly { readonly kvTransferParams?: JsonObject }[];
}

/** KV that a step did not find where its plan counted on it. */
export interface StepLosses {
  /** Blocks whose content was found lost or wrong, in the step or while it was out. */
  readonly invalid: readonly BlockId[];
  /** Blocks of loads that were to arrive within the step, and have not arrived yet. */
  readonly late: readonly BlockId[];
  /** Loads that have ended; some of their blocks may have failed. */
  readonly outcomes: readonly OpenLoadOutcome[];
}

/**
 * Everything that happens when KV is lost: a load fails or is late, a block is invalid, a worker dies. In each case the
 * blocks are no longer valid, and the requests that have them plan again (or end, by the policy `fail`).
 *
 * Before such a request computes full blocks again, the connector is asked for them, as at its admission: loading a block
 * costs a hundredth of computing it, so one block is worth the question. The request keeps its pages, waits beside the
 * others like one whose blocks are loading, and what the connector has is loaded into the pages that lost it.
 *
 *   running -- lost --> loading, asking -- answer or deadline --> loading --> running
 *
 * Only where all groups keep all pages of a request: elsewhere the plan decides which pages are needed at all.
 *
 * Each step calls `receive` and then `recover` when its result is applied, and `askAgain` when the next step is planned.
 */
export class Recovery {
  readonly #parts: RecoveryParts;
  /** Blocks that were reported invalid while a step was out. */
  #reported: BlockId[] = [];
  /** Requests that have lost KV and have no answer yet, with the blocks to ask for; undefined: all that they lack. */
  readonly #toReload = new Map<KvRequest, ReadonlySet<string> | undefined>();
  #failedLoads = 0;
  #recoveries = 0;
  #affectedTokens = 0;

  constructor(parts: RecoveryParts) {
    this.#parts = parts;
  }

  get stats(): Pick<SchedulerStats['transfers'], 'failedLoads' | 'recoveries' | 'affectedTokens'> {
    return { failedLoads: this.#failedLoads, recoveries: this.#recoveries, affectedTokens: this.#affectedTokens };
  }

  /** A step is out: what is lost meanwhile is dealt with when its result is applied. */
  reportInvalid(blocks: readonly BlockId[]): void {
    this.#reported.push(...blocks);
  }

  /** Takes what a step reports of loads and lost blocks. Blocks that have arrived are valid from here on. */
  receive(plan: ScheduledStep, result: ExecutedStep): StepLosses {
    const { kv, external } = this.#parts;
    const reported = this.#reported;
    this.#reported = [];
    const invalid = result.invalidBlocks === undefined ? reported : [...result.invalidBlocks, ...reported];
    if (external === undefined) return { invalid, late: nothing, outcomes: nothing };
    const outcomes = external.receive(result.connectorOutput);
    const late = external.lateIn(plan.connectorMetadata);
    for (const { decided, placed } of outcomes) {
      const failed = new Set(decided.failed.map(({ block }) => block));
      for (const index of placed) if (!failed.has(index.block)) kv.loadArrived(index);
    }
    return { invalid, late, outcomes };
  }

  /** Blocks that rows of the step may have counted on in vain. */
  untrueBlocks({ invalid, late, outcomes }: StepLosses): readonly BlockId[] {
    if (outcomes.length === 0 && late.length === 0) return invalid;
    const blocks = [...invalid, ...late];
    for (const { decided } of outcomes) for (const { block } of decided.failed) blocks.push(block);
    return blocks;
  }

  /** After the rows of the step are committed. Blocks that failed are computed by their owner, late blocks are waited for. */
  recover({ invalid, late, outcomes }: StepLosses): readonly RequestUpdate[] {
    const { kv } = this.#parts;
    kv.loadLate(late);
    if (outcomes.length === 0) return this.invalidate(invalid);
    this.#countAffected(outcomes.flatMap(({ decided }) => decided.failed.map(({ block }) => block)));
    const users = new Set<KvRequest>();
    for (const { decided, state } of outcomes) {
      if (decided.failed.length === 0) continue;
      this.#failedLoads += decided.failed.length;
      state.loadsFailed(decided.failed.length);
      const affected = new Set<KvRequest>();
      for (const { block, isBlockBusy } of decided.failed)
        for (const user of kv.loadFailed(block, isBlockBusy)) affected.add(user);
      this.#loadsFailed(affected, decided.failed);
      for (const user of affected) users.add(user);
    }
    return [...this.#fail(users), ...this.invalidate(invalid)];
  }

  /** The content of these blocks is lost. No step is out. Returns the ends of requests, by the policy `fail`. */
  invalidate(blocks: readonly BlockId[]): readonly RequestUpdate[] {
    if (blocks.length === 0) return nothing;
    const { kv, external } = this.#parts;
    external?.dropInvalid(blocks);
    this.#countAffected(blocks);
    const users = new Set<KvRequest>();
    // What a transfer has written so far is lost too, and what it will write is unknown: it is not waited for.
    for (const block of blocks) for (const user of kv.loadFailed(block, true)) users.add(user);
    for (const user of kv.invalidate(blocks)) users.add(user);
    if (external !== undefined) for (const user of users) this.#toReload.set(user, undefined);
    return this.#fail(users);
  }

  /** No step is out: asks for what was lost. Requests that wait for an answer or a load leave their seats. */
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
        // While another request fills its blocks, it may still inherit them.
        if (!kv.awaitsOthers(user)) this.#toReload.delete(user);
        continue;
      }
      state.isQueryingConnector = true;
      if ((this.isQueryingConnector(state) || kv.awaitsLoad(user)) && state.status === 'running') {
        running.remove(state);
        state.status = 'loading';
        waitingForRemoteKv.push(state);
      }
    }
  }

  /** Whether the request still waits for the connector's answer. Orders the load when there is one. */
  isQueryingConnector(state: RequestState): boolean {
    if (!state.isQueryingConnector) return false;
    const { kv, external } = this.#parts;
    assert(external !== undefined, `request ${state.request.id} asks a connector, and there is none`);
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
    return wanted === undefined ? places : places.filter((place) => wanted.has(nameOf(place)));
  }

  /** Loads of these blocks have failed. Another place may have them; what the stores said of other blocks still holds. */
  #loadsFailed(users: Iterable<KvRequest>, places: readonly BlockPlace[]): void {
    const { external } = this.#parts;
    assert(external !== undefined, 'a load has failed without a connector');
    const names = places.map(nameOf);
    for (const user of users) {
      if (++external.stateOf(user.slot).failedLoadRetries > retriesMax) continue;
      const before = this.#toReload.get(user);
      if (before === undefined && this.#toReload.has(user)) continue;
      this.#toReload.set(user, new Set([...(before ?? []), ...names]));
    }
  }

  /** These blocks are about to become invalid: counts the requests that have one, and the tokens. */
  #countAffected(blocks: readonly BlockId[]): void {
    if (blocks.length === 0) return;
    const { kv, requests } = this.#parts;
    const invalid = new InvalidBlocks(kv.parts.spec, blocks);
    for (const state of requests.values()) {
      const toReload = state.kv.admitted ? kv.blocksOn(state.kv, invalid) : nothing;
      if (toReload.length === 0) continue;
      this.#recoveries++;
      for (const { start, end } of spansOf(kv, toReload)) this.#affectedTokens += end - start;
    }
  }

  /** By the policy `fail`, requests that have lost KV end. */
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

const nameOf = ({ group, index }: BlockPlace): string => `${group}/${index}`;

const nothing: readonly never[] = [];
