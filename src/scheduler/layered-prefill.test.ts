import { describe, expect, test } from 'vitest';
import type { BlockId, TokenCount } from '../core/ids.ts';
import type { Span } from '../core/step.ts';
import { LayeredPrefill } from './layered-prefill.ts';
import type { RequestState } from './request-state.ts';
import { emptyLoad } from './step-load.ts';

const span = (start: number, end: number): Span => ({ start: start as TokenCount, end: end as TokenCount });
/** The part of a request that a chunk depends on: one block table. */
const requestWith = (...blocks: number[]): RequestState =>
  ({ kv: { tables: [{ ids: Int32Array.from(blocks), length: blocks.length }] } }) as never;
const slice = { tokens: 64, layers: 4 };
const open = (): LayeredPrefill => new LayeredPrefill(10, { sliceOf: () => slice });
const options = { start: 0, tokensMax: 64, paced: 8 };

describe('a chunk by layers', () => {
  test('has the layers that follow in each step, and ends with the last one', () => {
    const layered = open();
    const state = requestWith(3, 4);
    expect(layered.sliceOf(state, emptyLoad(), options)).toEqual(slice);
    expect(layered.next(state, [span(0, 64)], slice)).toEqual({ first: 0, end: 4 });
    layered.applied(state, true);
    expect(layered.chunkOf(state)).toMatchObject(slice);
    expect(layered.next(state, [span(0, 64)], slice)).toEqual({ first: 4, end: 8 });
    layered.applied(state, true);
    expect(layered.next(state, [span(0, 64)], slice)).toEqual({ first: 8, end: 10 });
    layered.applied(state, true);
    expect(layered.chunkOf(state)).toBeUndefined();
  });

  test.each<[string, (layered: LayeredPrefill, state: RequestState) => unknown, Span?]>([
    ['another request comes', (layered) => layered.next(requestWith(9), [span(0, 8)], slice)],
    ['other tokens are scheduled', () => undefined, span(16, 64)],
    ['a token has another block', (_, { kv }) => Reflect.set(kv.tables[0]!.ids, 1, 7)],
    ['a block has changed', (layered) => layered.changed([8, 4] as BlockId[])],
    ['a step left it out', (layered, state) => layered.applied(state, false)],
    ['the request is preempted', (layered, state) => layered.released(state)],
  ])('begins again if %s', (_, disturb, scheduled = span(0, 64)) => {
    const layered = open();
    const state = requestWith(3, 4);
    layered.next(state, [span(0, 64)], slice);
    layered.applied(state, true);
    disturb(layered, state);
    expect(layered.next(state, [scheduled], slice)).toEqual({ first: 0, end: 4 });
  });

  test('goes on if blocks of others change', () => {
    const layered = open();
    const state = requestWith(3, 4);
    layered.next(state, [span(0, 64)], slice);
    layered.changed([8] as BlockId[]);
    layered.released(requestWith(8));
    expect(layered.next(state, [span(0, 64)], slice)).toEqual({ first: 4, end: 8 });
  });

  test('does not begin without a token before the last one', () => {
    expect(open().sliceOf(requestWith(3), emptyLoad(), { ...options, tokensMax: 0 })).toBeUndefined();
  });
});
