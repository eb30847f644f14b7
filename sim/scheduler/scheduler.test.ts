import { describe, expect, test } from 'vitest';
import { requestId, type TokenId } from '../../src/core/ids.ts';
import type { EngineRequest } from '../../src/core/request.ts';
import type { SchedulerOptions } from '../../src/scheduler/contract.ts';
import { requestFits } from '../../src/scheduler/request-fits.ts';
import { harness, range, shape, short, onePoolSpec as spec } from '../harness.ts';
import { makeRequest } from '../workload.ts';

describe('steps', () => {
  test('a step has decodes first, then chunks of prompts, within the token budget', () => {
    const { scheduler, step } = harness(100, { maxNumBatchedTokens: 10 });
    scheduler.add(short('a', range(6), 5));
    expect(shape(step())).toEqual(['a: 0-6']);
    scheduler.add(short('b', range(20, 100), 3));
    scheduler.add(short('c', range(3, 200), 3));
    expect(shape(step())).toEqual(['a: 6-7', 'b: 0-9']);
    expect(shape(step())).toEqual(['a: 7-8', 'b: 9-18']);
    expect(shape(step())).toEqual(['a: 8-9', 'b: 18-20', 'c: 0-3']);
    expect(shape(step())).toEqual(['a: 9-10', 'b: 20-21', 'c: 3-4']);
  });

  test('at most maxNumSeqs requests run, and step ids ascend from 1', () => {
    const { scheduler, step } = harness(100, { maxNumSeqs: 2 });
    for (const id of ['a', 'b', 'c']) scheduler.add(short(id, [1], 2));
    expect(step()).toMatchObject({ stepId: 1, tokenCount: 2 });
    expect(scheduler.stats()).toMatchObject({ running: 2, waiting: 1 });
    expect(step().stepId).toBe(2);
    const third = step();
    expect(shape(third)).toEqual(['c: 0-1']);
    expect(third.released).toEqual(['a', 'b']);
  });

  test('a request is sampled only when all of its tokens are computed', () => {
    const { scheduler, step } = harness(100, { maxNumBatchedTokens: 4 });
    scheduler.add(short('a', range(6), 1));
    expect(step().sequences[0]!.sample).toBeUndefined();
    expect(step().sequences[0]!.sample).toMatchObject({ promptLength: 6 });
  });

  test('one step is in flight at a time, and `apply` accepts only its plan', () => {
    const { scheduler } = harness(100);
    scheduler.add(short('a', [1], 1));
    const plan = scheduler.plan()!;
    expect(() => scheduler.plan()).toThrow('a step is in flight');
    expect(() => scheduler.apply({ ...plan }, { stepId: plan.stepId, sampled: [undefined] })).toThrow(
      'not the step in flight',
    );
  });

  test('without requests there is no plan', () => {
    const { scheduler } = harness(100);
    expect(scheduler.plan()).toBeUndefined();
    expect(scheduler.hasWork()).toBe(false);
  });
});

describe('prefix cache', () => {
  test('a fully cached prompt computes its last token and writes its KV to the null block', () => {
    const { scheduler, step, drain, finished } = harness(100);
    scheduler.add(short('a', range(8), 1));
    drain();
    scheduler.add(short('b', range(8), 1));
    const [sequence] = step().sequences;
    expect(sequence!.spans).toEqual([{ start: 7, end: 8 }]);
    expect(sequence!.writeTables![0]!.ids[1]).toBe(0);
    expect(sequence!.blockTables[0]!.ids[1]).not.toBe(0);
    expect(finished.get('b')!.newTokens).toEqual(finished.get('a')!.newTokens);
    expect(finished.get('b')!.stats.cachedTokens).toBe(7);
  });

  test('a request with the output of an earlier request as its prompt hits the output blocks', () => {
    const { scheduler, drain, step, finished, outputs } = harness(100);
    scheduler.add(short('a', range(6), 7));
    drain();
    // 6 + 7 tokens, of which the last was sampled and not computed: three blocks of four are full.
    expect(finished.get('a')!.stats).toMatchObject({ promptTokens: 6, outputTokens: 7, cachedTokens: 0 });
    scheduler.add(short('b', [...range(6), ...outputs.get('a')!, 5, 6], 1));
    expect(shape(step())).toEqual(['b: 12-15']);
  });

  test('requests with different salts share no blocks', () => {
    const { scheduler, drain, step } = harness(100);
    scheduler.add(short('a', range(8), 1, { cacheSalt: 'one' }));
    drain();
    scheduler.add(short('b', range(8), 1, { cacheSalt: 'two' }));
    expect(shape(step())).toEqual(['b: 0-8']);
  });

  test('without prefix caching, no block is cached or shared', () => {
    const { scheduler, drain, step } = harness(100, { enablePrefixCaching: false });
    scheduler.add(short('a', range(8), 1));
    drain();
    expect(scheduler.stats().blocks).toMatchObject({ free: 100, cached: 0 });
    scheduler.add(short('b', range(8), 1));
    scheduler.add(short('c', range(8), 1));
    expect(shape(step())).toEqual(['b: 0-8', 'c: 0-8']);
  });
});

describe('blocks that another request computes', () => {
  test('a request can read the KV that an earlier request of the same step computes', () => {
    const { scheduler, step, drain, runner, finished } = harness(100);
    scheduler.add(short('a', [...range(12), 50], 1));
    scheduler.add(short('b', [...range(12), 60, 61], 1));
    expect(shape(step())).toEqual(['a: 0-13', 'b: 12-14']);
    drain();
    expect(runner.tokensComputed).toBe(15);
    expect(finished.get('b')!.stats.cachedTokens).toBe(12);
  });

  test('a request waits for the owner if the budget ends within the shared prefix, and computes no token twice', () => {
    const { scheduler, step, runner, drain } = harness(100, { maxNumBatchedTokens: 6 });
    scheduler.add(short('a', range(16), 1));
    scheduler.add(short('b', range(16), 1));
    expect(shape(step())).toEqual(['a: 0-6']);
    expect(shape(step())).toEqual(['a: 6-12']);
    expect(shape(step())).toEqual(['a: 12-16', 'b: 15-16']);
    drain();
    expect(runner.tokensComputed).toBe(17);
  });

  test('if the owner is aborted, another request becomes the owner and continues where it stopped', () => {
    const { scheduler, step, runner, drain, finished } = harness(100, { longPrefillTokenThreshold: 6 });
    for (const id of ['a', 'b', 'c']) scheduler.add(short(id, range(16), 1));
    expect(shape(step())).toEqual(['a: 0-6']);
    expect(scheduler.stats()).toMatchObject({ running: 3, blocks: { referenced: 4 } });
    scheduler.abort(requestId('a'));
    expect(shape(step())).toEqual(['b: 6-12']);
    scheduler.abort(requestId('b'));
    expect(shape(step())).toEqual(['c: 12-16']);
    drain();
    expect(runner.tokensComputed).toBe(16);
    expect([...finished.keys()]).toEqual(['c']);
  });
});

describe('a pool without free blocks', () => {
  test('the request that was admitted last is preempted and resumes from cached blocks', () => {
    const { scheduler, step, drain, finished, outputs } = harness(6);
    scheduler.add(short('a', range(8), 12));
    scheduler.add(short('b', range(8, 100), 8));
    let preempted = step();
    while (!preempted.released.includes(requestId('b'))) preempted = step();
    expect(shape(preempted)).toHaveLength(1);
    expect(scheduler.stats()).toMatchObject({ running: 1, waiting: 1, preemptions: 1 });
    drain();
    const alone = harness(6);
    alone.scheduler.add(short('b', range(8, 100), 8));
    alone.drain();
    expect(outputs.get('b')).toEqual(alone.outputs.get('b'));
    expect(finished.get('b')!.stats).toMatchObject({ preemptions: 1, outputTokens: 8 });
    expect(finished.get('b')!.stats.recomputedTokens).toBeGreaterThan(0);
    expect(finished.get('a')!.stats).toMatchObject({ preemptions: 0, recomputedTokens: 0 });
  });

  test('priority: the request of the lowest priority is preempted, also if it arrived first', () => {
    const { scheduler, step, drain, finished } = harness(6, { policy: 'priority' });
    scheduler.add(short('low', range(8), 12, { priority: 5 }));
    scheduler.add(short('high', range(8, 100), 12, { priority: 1 }));
    expect(shape(step())).toEqual(['high: 0-8', 'low: 0-8']);
    drain();
    expect(finished.get('high')!.stats.preemptions).toBe(0);
    expect(finished.get('low')!.stats.preemptions).toBeGreaterThan(0);
    expect([...finished.keys()]).toEqual(['high', 'low']);
  });

  test('longPrefillTokenThreshold limits the tokens of a long prompt, so other requests get tokens', () => {
    const { scheduler, step } = harness(100, { maxNumBatchedTokens: 16, longPrefillTokenThreshold: 10 });
    scheduler.add(short('a', range(30), 1));
    scheduler.add(short('b', range(8, 100), 1));
    expect(shape(step())).toEqual(['a: 0-10', 'b: 0-6']);
    expect(shape(step())).toEqual(['b: 6-8', 'a: 10-20']);
  });

  test('`requestFits` is false for a request that exceeds the pool or the model’s length', () => {
    const options = {
      maxNumBatchedTokens: 8,
      maxNumSeqs: 1,
      maxModelLen: 100,
      enablePrefixCaching: true,
      policy: 'fcfs',
    } as const;
    expect(requestFits(spec(4), options, 10, 7)).toBe(true);
    expect(requestFits(spec(4), options, 10, 8)).toBe(false);
    expect(requestFits(spec(400), options, 99, 1000)).toBe(true);
    expect(requestFits(spec(400), options, 100, 1)).toBe(false);
    expect(requestFits(spec(400), options, 0, 1)).toBe(false);
  });

  test('a request that needs all blocks of the pool runs to its end', () => {
    const { scheduler, drain, finished } = harness(4);
    scheduler.add(short('a', range(10), 7));
    drain();
    expect(finished.get('a')!.finish).toEqual({ reason: 'length' });
  });
});

describe('abort', () => {
  test('a waiting request is removed, and an unknown id returns undefined', () => {
    const { scheduler } = harness(100);
    scheduler.add(short('a', range(4), 4));
    expect(scheduler.abort(requestId('a'))?.stats).toMatchObject({ promptTokens: 4, outputTokens: 0 });
    expect(scheduler.abort(requestId('a'))).toBeUndefined();
    expect(scheduler.plan()).toBeUndefined();
    expect(scheduler.hasWork()).toBe(false);
  });

  test('I5: an aborted request in flight keeps its blocks until `apply`, and gets no token', () => {
    const { scheduler, apply } = harness(100);
    scheduler.add(short('a', range(8), 4));
    const plan = scheduler.plan()!;
    scheduler.abort(requestId('a'));
    expect(scheduler.stats().blocks.referenced).toBe(2);
    expect(scheduler.hasWork()).toBe(true);
    expect(apply(plan)).toEqual([]);
    expect(scheduler.stats().blocks).toMatchObject({ referenced: 0, cached: 2, free: 98 });
    expect(scheduler.hasWork()).toBe(false);
  });

  test('between steps, the blocks of an aborted request are released at once, and the next plan lists the request', () => {
    const { scheduler, step } = harness(100);
    scheduler.add(short('a', range(8), 4));
    step();
    scheduler.abort(requestId('a'));
    expect(scheduler.stats()).toMatchObject({ running: 0, blocks: { referenced: 0 } });
    scheduler.add(short('b', [1], 1));
    expect(step().released).toEqual(['a']);
  });
});

describe('a request ends', () => {
  /** Equal prompts give equal tokens; only the reason of the end differs. */
  const prompt = range(5);
  const end = (
    more: Partial<EngineRequest['params']>,
    eosTokenIds: TokenId[] = [],
    options: Partial<SchedulerOptions> = {},
  ) => {
    const { scheduler, step, finished } = harness(100, options);
    scheduler.add(makeRequest('a', prompt, { eosTokenIds, params: { maxTokens: 6, ...more } }));
    while (scheduler.hasWork()) step();
    const { finish, stats } = finished.get('a')!;
    return { ...finish, outputTokens: stats.outputTokens };
  };
  const free = harness(100);
  free.scheduler.add(makeRequest('a', prompt, { params: { maxTokens: 6 } }));
  free.drain();
  const third = free.outputs.get('a')![2] as TokenId;

  test('after max_tokens', () => expect(end({})).toEqual({ reason: 'length', outputTokens: 6 }));
  test('at an end-of-text token', () =>
    expect(end({}, [third])).toEqual({ reason: 'stop', stopToken: third, outputTokens: 3 }));
  test('not at an end-of-text token with ignore_eos', () =>
    expect(end({ ignoreEos: true }, [third])).toEqual({ reason: 'length', outputTokens: 6 }));
  test('at a stop token, also with ignore_eos', () =>
    expect(end({ ignoreEos: true, stopTokenIds: [third] })).toEqual({
      reason: 'stop',
      stopToken: third,
      outputTokens: 3,
    }));
  test('at no stop token before min_tokens', () =>
    expect(end({ minTokens: 4, stopTokenIds: [third] }, [third])).toEqual({ reason: 'length', outputTokens: 6 }));
  test('at max_model_len', () =>
    expect(end({}, [], { maxModelLen: 9 })).toEqual({ reason: 'length', outputTokens: 4 }));
});
