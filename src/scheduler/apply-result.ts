import { assert } from '../base/assert.ts';
import type { JsonObject } from '../base/json.ts';
import type { BlockId } from '../core/ids.ts';
import { InvalidBlocks } from '../core/invalid-blocks.ts';
import type { RequestUpdate } from '../core/request.ts';
import type { StepPlan, StepResult } from '../core/step.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import { finishOf } from './finish.ts';
import type { RequestState } from './request-state.ts';

/** A plan that is out, and the requests of its sequences. */
export interface StepInFlight {
  readonly plan: StepPlan;
  /** Parallel to the plan's sequences. */
  readonly states: readonly RequestState[];
}

/**
 * The rows of a step become valid KV: full blocks are published, counters move. Rows that depended on an invalid page
 * do not count. Returns, parallel to `states`, whether the request's sample counts.
 *
 * Requests that were aborted meanwhile are committed too: their KV is as good as any and stays to be found.
 */
export function commitStep(
  kv: KvCache,
  { plan, states }: StepInFlight,
  invalid: readonly BlockId[],
  leftOut: readonly number[],
): boolean[] {
  const isWhole = invalid.length === 0 && leftOut.length === 0;
  const blocks = isWhole ? undefined : new InvalidBlocks(kv.parts.spec, invalid);
  const counts: boolean[] = [];
  for (let i = 0; i < states.length; i++) {
    const state = states[i]!;
    const sequence = plan.sequences[i]!;
    state.inFlight = false;
    const wasLeftOut = leftOut.includes(i);
    if (!wasLeftOut) state.computed(sequence.spans);
    let below = Infinity;
    if (blocks !== undefined) below = wasLeftOut ? sequence.spans[0]!.start : blocks.firstRow(sequence);
    if (blocks !== undefined && below !== Infinity) {
      blocks.addRowsFrom(below, sequence);
      kv.replanThoseAwaiting(blocks);
    }
    counts.push(below === Infinity);
    kv.commitTokens(state.kv, sequence.spans, below);
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
  /** Ends a request: its pages are given back, and the connector is told. Returns the connector's word to the client. */
  finish(state: RequestState): { readonly kvTransferParams?: JsonObject } | undefined;
  /** Gives back the pages of a request that was aborted while the step was out. */
  close(state: RequestState): void;
}

/** Tokens are appended, requests end; one update for each that got a token. */
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
