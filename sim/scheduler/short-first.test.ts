import { describe, expect, it } from 'vitest';
import type { StepPlan } from '../../src/core/step.ts';
import { SpanList } from '../../src/kv/span-list.ts';
import type { RequestState } from '../../src/scheduler/request-state.ts';
import { ShortFirst } from '../../src/scheduler/short-first.ts';
import { harness, range, shape, short } from '../harness.ts';

const prompt = (id: string, length: number, more: Parameters<typeof short>[3] = {}) =>
  short(id, range(length, Number.parseInt(id, 36) % 900), 1, more);
const world = (more: Parameters<typeof harness>[1] = {}) =>
  harness(400, { maxNumBatchedTokens: 16, maxNumSeqs: 64, maxModelLen: 2000, ...more }, 16);
const tokensOf = (plan: StepPlan, id: string): number =>
  plan.sequences
    .filter(({ requestId }) => requestId === id)
    .flatMap(({ spans }) => spans)
    .reduce((sum, { start, end }) => sum + end - start, 0);

describe('short prompts', () => {
  it('lose their lead as the long prompt continues, in a step with some layers of its chunk only by their share', () => {
    const shortFirst = new ShortFirst();
    const requestOf = (tokens: number, scheduled: number) => {
      const spans = new SpanList();
      spans.push(0, tokens);
      const kv = { spans, nextSpan: 0, nextToken: 0, scheduled: { all: [{ start: 0, end: scheduled }] } };
      return { kv, inFlight: true } as unknown as RequestState;
    };
    const long = requestOf(400, 96);
    shortFirst.passed(requestOf(160, 160));
    expect(shortFirst.costMax(long.kv)).toBe(0);
    const stepsBehind = (layerShare: number): number => {
      let steps = 0;
      for (; shortFirst.costMax(long.kv) === 0; steps++) shortFirst.continued(long, layerShare);
      return steps;
    };
    expect(stepsBehind(0.1)).toBe(6);
    shortFirst.passed(requestOf(160, 160));
    expect(stepsBehind(1)).toBe(2);
  });

  it('pass a long prompt in progress in a step of their own', () => {
    const { scheduler, step } = world();
    scheduler.add(prompt('long', 400));
    expect(shape(step())).toEqual(['long: 0-16']);
    scheduler.add(prompt('a', 10));
    expect(shape(step())).toEqual(['a: 0-10']);
    expect(shape(step())).toEqual(['long: 16-32']);
  });

  it('share each second step with the long prompt, however many arrive', () => {
    const { scheduler, step } = world();
    scheduler.add(prompt('long', 400));
    step();
    const plans = ['a', 'b', 'c', 'd'].map((id) => {
      scheduler.add(prompt(id, 4));
      return shape(step());
    });
    expect(plans).toEqual([['a: 0-4'], ['b: 0-4', 'long: 16-28'], ['c: 0-4'], ['d: 0-4', 'long: 28-40']]);
  });

  it('share the step with a long prompt whose chunks are small', () => {
    const { scheduler, step } = world({ longPrefillTokenThreshold: 6 });
    scheduler.add(prompt('long', 400));
    step();
    scheduler.add(prompt('a', 4));
    expect(shape(step())).toEqual(['a: 0-4', 'long: 6-12']);
  });

  it('pass waiting long prompts too', () => {
    const { scheduler, step } = world();
    for (const id of ['long1', 'long2', 'long3']) scheduler.add(prompt(id, 300));
    step();
    scheduler.add(prompt('a', 8));
    expect(shape(step())).toEqual(['a: 0-8']);
    expect(shape(step())).toEqual(['long1: 16-32']);
  });

  it('continue before the long prompt if they have more tokens than a step', () => {
    const { scheduler, step } = world();
    scheduler.add(prompt('long', 800));
    step();
    scheduler.add(prompt('a', 40));
    expect([shape(step()), shape(step()), shape(step())]).toEqual([
      ['a: 0-16'],
      ['a: 16-32'],
      ['a: 32-40', 'long: 16-24'],
    ]);
  });

  it('wait for a prompt whose rest costs less than four times as much', () => {
    const { scheduler, step } = world();
    scheduler.add(prompt('long', 400));
    step();
    scheduler.add(prompt('other', 120));
    expect(shape(step())).toEqual(['long: 16-32']);
  });

  it('count only the tokens that the prefix cache does not have', () => {
    const { scheduler, step, drain } = world();
    const shared = range(160, 300);
    scheduler.add(short('first', shared, 1));
    drain();
    scheduler.add(prompt('long', 300));
    step();
    scheduler.add(short('again', [...shared, 1, 2, 3], 1));
    expect(shape(step())).toEqual(['again: 160-163']);
  });

  it('do not pass a prompt with a higher priority', () => {
    const { scheduler, step } = world({ policy: 'priority' });
    scheduler.add(prompt('long', 400, { priority: 1 }));
    step();
    scheduler.add(prompt('low', 4, { priority: 2 }));
    expect(shape(step())).toEqual(['long: 16-32']);
    scheduler.add(prompt('same', 4, { priority: 1 }));
    expect(shape(step())[0]).toBe('same: 0-4');
  });

  it('delay a long prompt by at most 1.25 times its own cost, however many arrive', () => {
    const { scheduler, step, finished } = world();
    scheduler.add(prompt('long', 800));
    const ofLong: number[] = [];
    let ahead = 0;
    for (let i = 0; !finished.has('long'); i++) {
      scheduler.add(prompt(`${i}`, 16));
      const plan = step();
      const tokens = tokensOf(plan, 'long');
      ofLong.push(tokens);
      if (finished.size === 0 || tokens < plan.tokenCount) ahead += plan.tokenCount - tokens;
      expect(i, 'the long prompt ends').toBeLessThan(400);
    }
    expect(ofLong.reduce((sum, tokens) => sum + tokens)).toBe(800);
    expect(ahead).toBeGreaterThan(400);
    // A token of the long prompt costs up to 1.5 times as much as a token of a short prompt, because of its context.
    expect(ahead).toBeLessThan(1.25 * 800 * (1 + 400 / 1500) + 32);
    // After the first quarter, the long prompt has at least every third step.
    const pauses = ofLong
      .map((tokens) => (tokens === 0 ? '-' : '#'))
      .join('')
      .split('#');
    expect(Math.max(...pauses.slice(1).map((pause) => pause.length))).toBeLessThan(20);
  });
});
