import { describe, expect, it, test } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { Prng } from '../base/prng.ts';
import type { Span } from '../core/step.ts';
import { LoadCost, OBSERVATIONS_MIN } from './load-cost.ts';
import { addPrompt, emptyLoad } from './step-load.ts';

const span = (start: number, end: number) => ({ start, end }) as Span;
const blocks = (host: number, disk = 0) =>
  new Map([...(host > 0 ? [['host', host] as const] : []), ...(disk > 0 ? [['disk', disk] as const] : [])]);

/** A step that computes the tokens [start, end) of a prompt. */
function step(cost: LoadCost, start: number, end: number, ms: number | undefined): void {
  const load = emptyLoad();
  addPrompt(load, start, end);
  cost.observeStep(load, ms);
}

const load = (cost: LoadCost, counts: Map<string, number>, ms: number | undefined): void =>
  cost.end(cost.begin(counts), ms);

describe('the cost of computing', () => {
  it('is known after a few steps with prompt tokens', () => {
    const cost = new LoadCost(512);
    for (let i = 0; i < OBSERVATIONS_MIN; i++) {
      expect(cost.isReady).toBe(false);
      step(cost, 0, 100, 50);
    }
    expect(cost.isReady).toBe(true);
    expect(cost.computeMs([span(0, 100)])).toBeCloseTo(50, 0);
    expect(cost.computeMs([])).toBe(0);
  });

  it('steps of decodes only, and steps that waited for a load, say nothing', () => {
    const cost = new LoadCost(512);
    for (let i = 0; i < 10; i++) {
      cost.observeStep({ ...emptyLoad(), decodes: 4, decodeContext: 100 }, 10);
      step(cost, 0, 100, undefined);
    }
    expect(cost.isReady).toBe(false);
  });

  it('grows with the context, and has a part for each chunk', () => {
    const cost = new LoadCost(64);
    for (let i = 0; i < 60; i++) {
      const start = 64 * (i % 20);
      step(cost, start, start + 64, 5 + 64 + (start * 64) / 500);
    }
    expect(cost.computeMs([span(0, 64)])).toBeCloseTo(5 + 64, -1);
    expect(cost.computeMs([span(1216, 1280)])).toBeCloseTo(5 + 64 + (1216 * 64) / 500, -1);
    const chunks = [span(0, 64), span(64, 128), span(128, 192)].map((each) => cost.computeMs([each]));
    expect(cost.computeMs([span(0, 192)])).toBeCloseTo(chunks[0]! + chunks[1]! + chunks[2]!, 6);
  });
});

describe('the cost of loading', () => {
  it('is 0 for a place until a few loads from the place were measured', () => {
    const cost = new LoadCost(512);
    for (let i = 0; i < OBSERVATIONS_MIN; i++) {
      expect(cost.loadMs(blocks(8))).toBe(0);
      load(cost, blocks(8), 16);
    }
    expect(cost.loadMs(blocks(8))).toBeCloseTo(16, 0);
    expect(cost.loadMs(blocks(0, 8))).toBe(0);
  });

  it('of several places is the sum, and a load from several places is divided as predicted', () => {
    const cost = new LoadCost(512);
    for (let i = 0; i < 20; i++) {
      load(cost, blocks(8), 8);
      load(cost, blocks(0, 8), 80);
      load(cost, blocks(8, 8), 88);
    }
    expect(cost.loadMs(blocks(8))).toBeCloseTo(8, 0);
    expect(cost.loadMs(blocks(0, 8))).toBeCloseTo(80, -1);
    expect(cost.loadMs(blocks(8, 8))).toBeCloseTo(88, -1);
  });

  it('includes the blocks that are loaded from the place already', () => {
    const cost = new LoadCost(512);
    for (let i = 0; i < 20; i++) {
      const [first, second] = [cost.begin(blocks(0, 10)), cost.begin(blocks(0, 10))];
      cost.end(first, 10);
      cost.end(second, 20);
    }
    const alone = cost.loadMs(blocks(0, 10));
    expect(alone).toBeCloseTo(10, -1);
    const open = cost.begin(blocks(0, 30));
    expect(cost.loadMs(blocks(0, 10))).toBeGreaterThan(3 * alone);
    cost.end(open, undefined);
    expect(cost.loadMs(blocks(0, 10))).toBe(alone);
  });

  it('follows a place that becomes slower or faster', () => {
    const cost = new LoadCost(512);
    for (let i = 0; i < 20; i++) load(cost, blocks(0, 10), 10);
    for (let i = 0; i < 6; i++) load(cost, blocks(0, 10), 100);
    expect(cost.loadMs(blocks(0, 10))).toBeGreaterThan(70);
    for (let i = 0; i < 6; i++) load(cost, blocks(0, 10), 10);
    expect(cost.loadMs(blocks(0, 10))).toBeLessThan(15);
  });
});

const runs = fuzzRuns(100);

test(`after 40 loads with noise, predictions are within a third of the truth, for ${runs} random places`, () => {
  for (let seed = 1; seed <= runs; seed++) {
    const prng = new Prng(seed);
    const [fixedMs, blockMs] = [prng.unit() * 20, 0.05 + prng.unit() * 5];
    const cost = new LoadCost(512);
    for (let i = 0; i < 40; i++) {
      const count = prng.between(1, 200);
      load(cost, blocks(0, count), (fixedMs + blockMs * count) * (0.95 + 0.1 * prng.unit()));
      cost.checkInvariants();
    }
    for (const count of [20, 50, 200]) {
      const ratio = cost.loadMs(blocks(0, count)) / (fixedMs + blockMs * count);
      expect(Math.abs(Math.log(ratio)), `seed ${seed}: ${count} blocks, ratio ${ratio}`).toBeLessThan(Math.log(4 / 3));
    }
  }
});
