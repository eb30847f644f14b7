import { assert } from '../base/assert.ts';
import type { JsonObject } from '../base/json.ts';
import type { BlockId } from '../core/ids.ts';
import { InvalidBlocks } from '../core/invalid-blocks.ts';
import type { RequestUpdate } from '../core/request.ts';
import type { StepPlan, StepResult } from '../core/step.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import type { ExecutedStep } from './contract.ts';
import { finishOf } from './finish.ts';
import type { RequestState } from './request-state.ts';

/** The plan of the step in flight, and the requests of its sequences. */
export interface StepInFlight {
  readonly plan: StepPlan;
  /** Parallel to the plan's sequences. */
  readonly states: readonly RequestState[];
}

/**
 * The KV of the scheduled tokens becomes valid: full blocks are cached, and counters are updated. Tokens that depend on
 * an invalid block do not count. Returns, parallel to `states`, whether the request's sample counts.
 *
 * Requests that were aborted meanwhile are committed too: their KV is valid and can be cached.
 */
export function commitStep(
  kv: KvCache,
  { plan, states }: StepInFlight,
  invalid: readonly BlockId[],
  { leftOut = nothing, partlyComputed = nothing }: Pick<ExecutedStep, 'leftOut' | 'partlyComputed'>,
): boolean[] {
  const allTokensCount = invalid.length === 0 && leftOut.length === 0;
  const blocks = allTokensCount ? undefined : new InvalidBlocks(kv.parts.spec, invalid);
  const counts: boolean[] = [];
  for (let i = 0; i < states.length; i++) {
    const state = states[i]!;
    const sequence = plan.sequences[i]!;
    state.inFlight = false;
    const wasLeftOut = leftOut.includes(i);
    if (!wasLeftOut) state.computed(sequence.spans);
    let below = Infinity;
    if (blocks !== undefined) below = wasLeftOut ? sequence.spans[0]!.start : blocks.firstDependentToken(sequence);
    if (blocks !== undefined && below !== Infinity) {
      blocks.addBlocksFrom(below, sequence);
      kv.replanRequestsAwaiting(blocks);
    }
    counts.push(below === Infinity);
    if (wasLeftOut && !partlyComputed.includes(i)) kv.dropTokens(state.kv, sequence.spans);
    else kv.commitTokens(state.kv, sequence.spans, below);
  }
  return counts;
}

export interface AppendOptions {
  /** Parallel to the states: whether the sample counts. */
  readonly counts: readonly boolean[];
  readonly maxModelLen: number;
  readonly ends: RequestEnds;
}

export interface RequestEnds {
  /** Ends a request: releases its blocks and informs the connector. Returns the connector's answer to the client. */
  finish(state: RequestState): { readonly kvTransferParams?: JsonObject } | undefined;
  /** Releases the blocks of a request that was aborted while the step was in flight. */
  close(state: RequestState): void;
}

/** Appends the sampled tokens and ends requests. Returns one update for each request that got a token or ended. */
export function appendSamples(
  kv: KvCache,
  { plan, states }: StepInFlight,
  result: StepResult,
  { counts, maxModelLen, ends }: AppendOptions,
): RequestUpdate[] {
  const updates: RequestUpdate[] = [];
  for (let i = 0; i < states.length; i++) {
    const state = states[i]!;
    if (state.status !== 'running') {
      if (state.kv.isOpen) ends.close(state);
      continue;
    }
    if (plan.sequences[i]!.sample === undefined || !counts[i]) continue;
    const sampled = result.sampled[i];
    if (sampled === undefined) {
      const failure = result.failures?.find(({ sequence }) => sequence === i);
      assert(failure !== undefined, `no sample for request ${state.request.id}`);
      const finish = { reason: 'error', error: failure.error, ...ends.finish(state) } as const;
      updates.push({ requestId: state.request.id, newTokens: [], stats: state.stats(), finish });
      continue;
    }
    state.tokens.push(sampled.token);
    const finish = finishOf(state, sampled.token, maxModelLen);
    const requestId = state.request.id;
    if (finish === undefined) {
      kv.tokenAppended(state.kv);
      updates.push({ requestId, newTokens: [sampled], stats: state.stats() });
    } else {
      const ended = { ...finish, ...ends.finish(state) };
      updates.push({ requestId, newTokens: [sampled], stats: state.stats(), finish: ended });
    }
  }
  return updates;
}

const nothing: readonly never[] = [];
