import { assert } from '../base/assert.ts';
import type { RequestUpdate } from '../core/request.ts';
import type { StepPlan, StepResult } from '../core/step.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import { finishOf } from './finish.ts';
import type { RequestState } from './request-state.ts';

/**
 * The one place where a result becomes state: KV becomes valid and is published, tokens are appended, requests end.
 * `states` is parallel to the plan's sequences. Requests that ended meanwhile (aborts) give back the pages that
 * the step held; their tokens are dropped, their KV is as good as any and stays to be found.
 */
export function applyResult(
  plan: StepPlan,
  result: StepResult,
  states: readonly RequestState[],
  kv: KvCache,
  maxModelLen: number,
): RequestUpdate[] {
  assert(result.stepId === plan.stepId, `result of step ${result.stepId}, plan of step ${plan.stepId}`);
  assert(result.sampled.length === states.length, `${result.sampled.length} samples for ${states.length} sequences`);
  const updates: RequestUpdate[] = [];
  for (let i = 0; i < states.length; i++) {
    const state = states[i]!;
    const { spans, sample } = plan.sequences[i]!;
    state.inFlight = false;
    kv.commitRows(state.kv, spans);
    state.computed(spans);
    if (state.status === 'ended') {
      kv.close(state.kv);
      continue;
    }
    if (sample === undefined) continue;
    const sampled = result.sampled[i];
    assert(sampled !== undefined, `no sample for request ${state.request.id}`);
    state.tokens.push(sampled.token);
    const finish = finishOf(state, sampled.token, maxModelLen);
    const update = { requestId: state.request.id, newTokens: [sampled], stats: state.stats() };
    if (finish === undefined) {
      kv.tokenAppended(state.kv);
      updates.push(update);
    } else {
      state.status = 'ended';
      kv.close(state.kv);
      updates.push({ ...update, finish });
    }
  }
  return updates;
}
