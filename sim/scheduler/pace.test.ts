import { describe, expect, test } from 'vitest';
import { sha256 } from '../../src/base/sha256.ts';
import type { TokenId } from '../../src/core/ids.ts';
import type { StepPlan } from '../../src/core/step.ts';
import type { SchedulerOptions } from '../../src/scheduler/contract.ts';
import { AUTO_FACTOR, PROMPT_STEPS_MAX } from '../../src/scheduler/pace.ts';
import { Scheduler } from '../../src/scheduler/scheduler.ts';
import { onePoolSpec, range, shape, short } from '../harness.ts';

/**
 * Milliseconds of a step as measured on two cores with a model of 0.6B parameters. It is the longer one of reading the
 * weights and multiplying, plus attention to the context of each token.
 */
function stepMs({ sequences, tokenCount }: StepPlan): number {
  let context = 0;
  for (const { spans } of sequences)
    for (const { start, end } of spans) context += ((start + end + 1) * (end - start)) / 2;
  return Math.max(12 + 0.7 * tokenCount, 1.15 * tokenCount) + context / 1500;
}

/** A scheduler whose steps take the time that `costOf` returns. */
function harness(targetInterTokenLatency: number | 'auto', costOf = stepMs, more: Partial<SchedulerOptions> = {}) {
  const options: SchedulerOptions = {
    maxNumBatchedTokens: 512,
    maxNumSeqs: 8,
    maxModelLen: 8192,
    enablePrefixCaching: true,
    policy: 'fcfs',
    targetInterTokenLatency,
    ...more,
  };
  const scheduler = new Scheduler(onePoolSpec(700, 16), options, sha256);
  let nowMs = 0;
  const step = () => {
    const plan = scheduler.plan(nowMs)!;
    const ms = costOf(plan);
    nowMs += ms;
    const sampled = plan.sequences.map(({ sample }) => sample && { token: 7 as TokenId });
    scheduler.apply(plan, { stepId: plan.stepId, sampled }, nowMs);
    scheduler.checkInvariants();
    return { plan, ms };
  };
  return { scheduler, step };
}

const has = ({ sequences }: StepPlan, id: string) => sequences.some(({ requestId }) => requestId === id);
const promptTokens = ({ tokenCount, sequences }: StepPlan, id: string) =>
  has({ sequences } as StepPlan, id) ? tokenCount - sequences.length + 1 : 0;
const prompt = (id: string, length = 2048, from = 500) => short(id, range(length, from), 1);

/** A stream that has generated a few tokens, and the time of its last step. */
function withStream(target: number | 'auto', costOf = stepMs) {
  const made = harness(target, costOf);
  made.scheduler.add(short('stream', range(100), 4000));
  for (let i = 0; i < 5; i++) made.step();
  return { ...made, aloneMs: made.step().ms };
}

/** The steps until the prompt is computed. */
function computePrompt({ scheduler, step }: ReturnType<typeof harness>, id: string, length = 2048, from = 500) {
  scheduler.add(prompt(id, length, from));
  const steps: { plan: StepPlan; ms: number }[] = [];
  for (let left = length; left > 0; left -= promptTokens(steps.at(-1)!.plan, id)) steps.push(step());
  return steps;
}

describe('a long prompt beside a stream', () => {
  test.each([
    ['auto', ['stream', 'short', 'long']],
    [0, ['stream', 'short']],
  ] as const)('with the target %s, a step with a short prompt has %j', (target, expected) => {
    const { scheduler, step } = withStream(target);
    // A prompt before makes the costs known, so that the chunks of the next one have their full size.
    computePrompt({ scheduler, step }, 'first');
    scheduler.add(prompt('long', 2048, 5000));
    for (let i = 0; i < 3; i++) step();
    scheduler.add(prompt('short', 4, 9000));
    expect(step().plan.sequences.map(({ requestId }) => requestId)).toEqual(expected);
  });

  test('steps take at most the target when costs are known, and the prompt needs few steps', () => {
    const world = withStream('auto');
    const first = computePrompt(world, 'first');
    const second = computePrompt(world, 'second', 2048, 5000);
    const times = second.map(({ ms }) => ms);
    expect(Math.max(...first.map(({ ms }) => ms))).toBeLessThan(1.2 * AUTO_FACTOR * world.aloneMs);
    expect(Math.max(...times)).toBeLessThan(1.05 * AUTO_FACTOR * world.aloneMs);
    // With the smallest chunks, the prompt would need 293 steps.
    expect(times.length).toBeLessThan(125);
  });

  test('steps meet a target in milliseconds', () => {
    const world = withStream(80);
    computePrompt(world, 'first');
    const times = computePrompt(world, 'second', 2048, 5000).map(({ ms }) => ms);
    expect(Math.max(...times)).toBeLessThan(84);
    expect(times.reduce((sum, ms) => sum + ms) / times.length).toBeGreaterThan(60);
  });

  test('equal durations give equal plans', () => {
    const plans = () => computePrompt(withStream('auto'), 'prompt').map(({ plan }) => shape(plan));
    expect(plans()).toEqual(plans());
  });

  test('prompts progress with a target that no step can meet', () => {
    const steps = computePrompt(withStream(1), 'prompt', 320);
    for (const { plan } of steps) expect(promptTokens(plan, 'prompt')).toBeGreaterThan(0);
    expect(steps.length).toBeLessThan(320 / 6);
  });

  test('a target of 0 is no limit: one step uses the whole token budget', () => {
    const { scheduler, step } = withStream(0);
    scheduler.add(prompt('prompt'));
    expect(step().plan.tokenCount).toBe(512);
  });

  test('the scheduled tokens of a step are a multiple of 4', () => {
    const steps = computePrompt(withStream('auto'), 'prompt');
    for (const { plan } of steps.slice(0, -1).filter(({ plan: { tokenCount } }) => tokenCount > 1))
      expect(plan.tokenCount % 4).toBe(0);
  });

  test('after the largest number of steps with prompt tokens, one step measures the stream alone', () => {
    const alone = computePrompt(withStream('auto'), 'prompt', 4096).map(({ plan }) => plan.tokenCount === 1);
    expect(alone.indexOf(true)).toBe(PROMPT_STEPS_MAX);
    expect(alone.lastIndexOf(true) % (PROMPT_STEPS_MAX + 1)).toBe(PROMPT_STEPS_MAX);
  });
});

describe('the limit on prompt tokens', () => {
  test('does not apply to steps without streams: prompts of new requests use the token budget', () => {
    const { scheduler, step } = harness('auto');
    scheduler.add(prompt('a', 300));
    scheduler.add(prompt('b', 300, 5000));
    expect(shape(step().plan)).toEqual(['a: 0-300', 'b: 0-212']);
  });

  test('allows only few prompt tokens until costs are measured', () => {
    const { scheduler, step } = harness('auto');
    scheduler.add(short('stream', range(8), 50));
    scheduler.add(prompt('prompt', 3000));
    expect(step().plan.tokenCount).toBe(512);
    expect([step(), step()].map(({ plan }) => plan.tokenCount)).toEqual([1, 1]);
    const times = Array.from({ length: 20 }, () => step().ms);
    expect(Math.max(...times)).toBeLessThan(1.2 * AUTO_FACTOR * 13);
  });

  test('follows a machine that becomes slower and then faster again', () => {
    let slowness = 1;
    const world = withStream(60, (plan) => slowness * stepMs(plan));
    computePrompt(world, 'first');
    slowness = 2;
    const slow = computePrompt(world, 'second', 512, 5000);
    expect(Math.max(...slow.slice(6).map(({ ms }) => ms))).toBeLessThan(72);
    slowness = 1;
    const quick = computePrompt(world, 'third', 2048, 10_000);
    expect(Math.max(...quick.slice(10).map(({ ms }) => ms))).toBeLessThan(72);
    expect(quick.length).toBeLessThan(85);
  });

  test('changes little after one long step, such as a pause of the process', () => {
    const chunks = (pauseAt: number) => {
      let steps = 0;
      const world = withStream('auto', (plan) => stepMs(plan) + (++steps === pauseAt ? 5000 : 0));
      return computePrompt(world, 'prompt', 1500).map(({ plan }) => plan.tokenCount);
    };
    expect(Math.abs(chunks(20).length - chunks(Infinity).length)).toBeLessThan(4);
  });

  test('does not rise when the last decodes before a prompt are slow', () => {
    let slowness = 1;
    const world = withStream('auto', (plan) => slowness * stepMs(plan));
    computePrompt(world, 'first');
    for (let i = 0; i < 40; i++) world.step();
    slowness = 1.4;
    for (let i = 0; i < 10; i++) world.step();
    slowness = 1;
    const times = computePrompt(world, 'second', 1024, 5000).map(({ ms }) => ms);
    expect(Math.max(...times)).toBeLessThan(1.1 * AUTO_FACTOR * world.aloneMs);
  });

  test('rises and falls with decodes that stay slow', () => {
    let slowness = 1;
    const world = withStream(
      'auto',
      ({ sequences, tokenCount }) =>
        (tokenCount === sequences.length ? slowness : 1) * stepMs({ sequences, tokenCount } as StepPlan),
    );
    computePrompt(world, 'first');
    const longest = (id: string, from: number) => {
      for (let i = 0; i < 40; i++) world.step();
      return Math.max(...computePrompt(world, id, 1024, from).map(({ ms }) => ms));
    };
    slowness = 2;
    expect(longest('slow', 5000)).toBeGreaterThan(1.8 * AUTO_FACTOR * world.aloneMs);
    slowness = 1;
    expect(longest('quick', 10_000)).toBeLessThan(1.2 * AUTO_FACTOR * world.aloneMs);
  });

  test('is for all prompts of a step together, which are served in the order of arrival', () => {
    const { scheduler, step } = withStream('auto');
    for (const [i, id] of ['a', 'b', 'c'].entries()) scheduler.add(prompt(id, 200, 500 * (i + 1)));
    const order: string[] = [];
    for (let i = 0; i < 40; i++)
      for (const { requestId } of step().plan.sequences) if (order.at(-1) !== requestId) order.push(requestId);
    expect(order.filter((id, i) => id !== 'stream' && order.indexOf(id) === i)).toEqual(['a', 'b', 'c']);
    const lastOfA = order.lastIndexOf('a');
    expect(order.indexOf('c')).toBeGreaterThan(lastOfA);
  });
});

test('`apply` without the time fails an assertion if there is a target', () => {
  const { scheduler } = harness('auto');
  scheduler.add(prompt('a', 4));
  const plan = scheduler.plan()!;
  expect(() => scheduler.apply(plan, { stepId: plan.stepId, sampled: [undefined] })).toThrow('pass the time');
});
