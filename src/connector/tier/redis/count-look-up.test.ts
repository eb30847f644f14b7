import { expect, it } from 'vitest';
import { Prng } from '../../../base/prng.ts';
import type { BlockKey } from '../../block-key.ts';
import { suiteKey } from '../tier.suite.ts';
import { lookUpByCount } from './count-look-up.ts';

const signal = new AbortController().signal;

function store(stored: ReadonlySet<BlockKey>) {
  let calls = 0;
  const failures: number[] = [];
  return {
    options: {
      countStored: async (keys: readonly BlockKey[]) => {
        calls++;
        return keys.filter((key) => stored.has(key)).length;
      },
      keysMax: 64,
      failed: (_: unknown, keyCount: number) => void failures.push(keyCount),
    },
    calls: () => calls,
    failures,
  };
}

const keysOf = (count: number): BlockKey[] => Array.from({ length: count }, (_, i) => suiteKey(i));

it('the answers equal those of one call per key, for any set of stored keys', async () => {
  const prng = new Prng(5);
  for (let round = 0; round < 200; round++) {
    const keys = keysOf(prng.uint32() % 300);
    const oneIn = 1 + (prng.uint32() % 6);
    const stored = new Set(keys.filter(() => prng.uint32() % oneIn === 0));
    const keysMax = 1 + (prng.uint32() % 100);
    const { options } = store(stored);
    expect(await lookUpByCount(keys, signal, { ...options, keysMax })).toEqual(keys.map((key) => stored.has(key)));
  }
});

it('a key that occurs twice is answered twice', async () => {
  const [a, b] = keysOf(2) as [BlockKey, BlockKey];
  const { options } = store(new Set([a]));
  expect(await lookUpByCount([a, b, a, a, b], signal, options)).toEqual([true, false, true, true, false]);
});

it.each<[string, (i: number) => boolean, number]>([
  ['none of 640 keys is stored', () => false, 10],
  ['all of 640 keys are stored', () => true, 10],
  ['the first 300 of 640 keys are stored', (i) => i < 300, 26],
  ['every other of 640 keys is stored', (i) => i % 2 === 0, 730],
])('%s: the number of calls is bounded', async (_, isStored, callsMax) => {
  const keys = keysOf(640);
  const { options, calls } = store(new Set(keys.filter((_, i) => isStored(i))));
  expect(await lookUpByCount(keys, signal, options)).toEqual(keys.map((_, i) => isStored(i)));
  expect(calls()).toBeLessThanOrEqual(callsMax);
});

it('keys of a call that fails stay unknown, and all others are answered', async () => {
  const keys = keysOf(130);
  const { options, failures } = store(new Set(keys));
  const countStored = (asked: readonly BlockKey[]) =>
    asked.includes(keys[70]!) ? Promise.reject(new Error('failed')) : options.countStored(asked);
  const answers = await lookUpByCount(keys, signal, { ...options, countStored });
  expect(answers).toEqual(keys.map((_, i) => (i >= 64 && i < 128 ? undefined : true)));
  expect(failures).toEqual([64]);
});

it('an abort ends the look-up at once with the answers so far, which later answers do not change', async () => {
  const keys = keysOf(128);
  const { options, calls, failures } = store(new Set(keys));
  const controller = new AbortController();
  let answerLate = (): void => undefined;
  const countStored = (asked: readonly BlockKey[]) =>
    asked.includes(keys[0]!)
      ? options.countStored(asked)
      : new Promise<number>((resolve) => {
          answerLate = () => resolve(10);
        });
  const looking = lookUpByCount(keys, controller.signal, { ...options, countStored });
  await new Promise((resolve) => setImmediate(resolve));
  controller.abort();
  const answers = await looking;
  const expected = keys.map((_, i) => (i < 64 ? true : undefined));
  expect(answers).toEqual(expected);
  answerLate();
  await new Promise((resolve) => setImmediate(resolve));
  expect(answers).toEqual(expected);
  expect(calls()).toBe(1);
  expect(failures).toEqual([]);
});

it('a signal that was aborted before asks nothing', async () => {
  const { options, calls } = store(new Set());
  expect(await lookUpByCount(keysOf(3), AbortSignal.abort(), options)).toEqual([undefined, undefined, undefined]);
  expect(calls()).toBe(0);
});
