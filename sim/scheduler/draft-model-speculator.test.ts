import { describe, expect, test } from 'vitest';
import type { OutputConstraint } from '../../src/core/constraint.ts';
import type { TokenId } from '../../src/core/ids.ts';
import { TokenBuffer } from '../../src/core/tokens.ts';
import type { KvRequest } from '../../src/kv/kv-request.ts';
import { RequestState } from '../../src/scheduler/request-state.ts';
import { DraftModelSpeculator } from '../../src/scheduler/speculation/draft-model-speculator.ts';
import { emptyLoad } from '../../src/scheduler/step-load.ts';
import { notedConstraint } from '../noted-constraint.ts';
import { makeRequest } from '../workload.ts';

const stateOf = (tokens: number[], constraint?: OutputConstraint) =>
  new RequestState(
    { ...makeRequest('a', tokens), ...(constraint === undefined ? {} : { constraint }) },
    new TokenBuffer(tokens),
    { scheduled: { all: [] }, tables: [] } as unknown as KvRequest,
    0,
  );
const sampled = (tokens: readonly number[]) => tokens.map((token) => ({ token: token as TokenId }));

/** A speculator that knows the durations: 10 ms for a step, and 0.5 ms for a further row. */
function makeSpeculator(countMax = 4): DraftModelSpeculator {
  const speculator = new DraftModelSpeculator(countMax);
  for (let i = 0; i < 40; i++)
    speculator.observe(
      { ...emptyLoad(), decodes: 1, decodeContext: 3, draftTokens: i % 5, draftContext: 3 * (i % 5) },
      10 + 0.5 * (i % 5),
    );
  return speculator;
}

/** The model continues 1, 2, 3 with 4, 5, 6. Returns how many tokens it was asked for. */
function draft(speculator: DraftModelSpeculator, state: RequestState, msPerToken: number): number {
  const order = speculator.orderDrafts([state]);
  if (order === undefined) return 0;
  const { requests, count } = order;
  expect(requests).toEqual([{ id: state.request.id, text: state.tokens.view() }]);
  const next = state.tokens.at(state.tokens.length - 1) + 1;
  speculator.takeDrafts([Int32Array.from({ length: count }, (_, i) => next + i)], count * msPerToken);
  return count;
}

describe('drafts from a model', () => {
  test('are its drafts, within the budget', () => {
    const speculator = makeSpeculator();
    const state = stateOf([1, 2, 3]);
    expect(draft(speculator, state, 0.2)).toBe(4);
    expect([...speculator.draft([state], 100)[0]!]).toEqual([4, 5, 6, 7]);
    draft(speculator, state, 0.2);
    expect([...speculator.draft([state], 2)[0]!]).toEqual([4, 5]);
  });

  test('are for the text that the model saw, and are used once', () => {
    const speculator = makeSpeculator();
    const state = stateOf([1, 2, 3]);
    draft(speculator, state, 0.2);
    state.append(4 as TokenId);
    expect(speculator.draft([state], 100)).toEqual([]);
    draft(speculator, state, 0.2);
    expect([...speculator.draft([state], 100)[0]!]).toEqual([5, 6, 7, 8]);
    expect(speculator.draft([state], 100)).toEqual([]);
  });

  test('are none for a request for which the model has none yet', () => {
    const speculator = makeSpeculator();
    const states = [stateOf([1, 2, 3]), stateOf([5, 6])];
    speculator.orderDrafts(states);
    speculator.takeDrafts([new Int32Array(0), Int32Array.of(7)], 1);
    const drafts = speculator.draft(states, 100);
    expect(drafts[0]).toBeUndefined();
    expect([...drafts[1]!]).toEqual([7]);
  });

  test('end if they are rejected, and are tried again after many steps', () => {
    const speculator = makeSpeculator();
    const state = stateOf([1, 2, 3]);
    let steps = 0;
    while (draft(speculator, state, 1) > 0 && steps++ < 100)
      speculator.verified(state, Int32Array.of(4, 5), sampled([99]));
    expect(steps).toBeLessThan(100);
    for (steps = 0; draft(speculator, state, 1) === 0 && steps < 1000; ) steps++;
    expect(steps).toBeGreaterThan(5);
    expect(steps).toBeLessThan(1000);
  });

  test('end if the grammar forbids them, although no step verifies them', () => {
    const speculator = makeSpeculator();
    const state = stateOf([1, 2, 3], { ...notedConstraint(100), advance: () => undefined });
    let steps = 0;
    while (draft(speculator, state, 1) > 0 && steps++ < 100) expect(speculator.draft([state], 100)).toEqual([]);
    expect(steps).toBeLessThan(20);
  });

  test('are not ordered from a model that takes as long as the step', () => {
    const speculator = makeSpeculator();
    const state = stateOf([1, 2, 3]);
    expect(draft(speculator, state, 12)).toBe(4);
    for (let i = 0; i < 5; i++) expect(draft(speculator, state, 12)).toBe(0);
  });
});
