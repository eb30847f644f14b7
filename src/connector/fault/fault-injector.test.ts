import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { requestId } from '../../core/ids.ts';
import { HostTier } from '../tier/host/tier-host.ts';
import { suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey, tierSuite } from '../tier/tier.suite.ts';
import { FaultInjector } from './fault-injector.ts';
import { FaultDice, type FaultRule, faultRule } from './fault-rules.ts';

const signal = new AbortController().signal;
const turn = () => new Promise((resolve) => setImmediate(resolve));

function make(rules: readonly FaultRule[], seed = 1) {
  const time = new ManualTime();
  const inner = new HostTier({ identity: suiteIdentity, maxBytes: 1e9 });
  const tier = new FaultInjector(inner, { identity: suiteIdentity, timers: time, plan: { seed, rules } });
  const put = (name: string | number) => tier.store(suiteKey(name), suiteBytes(suiteKey(name)), signal);
  const load = (name: string | number, until = signal) => {
    const block = new Uint8Array(suiteBlockBytes);
    return { block, reason: tier.load(suiteKey(name), block, until, { requestId: requestId('r'), index: 0 }) };
  };
  return { time, inner, tier, put, load };
}

// Without rules, all calls go to the inner tier.
tierSuite('FaultInjector without rules', (maxBytes) => {
  const inner = new HostTier({ identity: suiteIdentity, maxBytes });
  const options = { identity: suiteIdentity, timers: new ManualTime(), plan: { seed: 0, rules: [] } };
  const tier = Object.assign(new FaultInjector(inner, options), { tamper: inner.tamper.bind(inner) });
  return Promise.resolve({ tier, reopen: () => Promise.resolve(undefined) });
});

describe('faults of loads', () => {
  it('truncated, wrongModel, bitFlip: the verification of the inner tier detects the fault', async () => {
    for (const [fault, reason] of [
      ['truncated', 'truncated'],
      ['wrongModel', 'wrongModel'],
    ] as const) {
      const { put, load, inner } = make([faultRule({ fault })]);
      await put('a');
      expect(await load('a').reason).toBe(reason);
      expect(inner.counters()[reason]).toBe(1);
    }
    for (let seed = 0; seed < 50; seed++) {
      const { put, load } = make([faultRule({ fault: 'bitFlip' })], seed);
      await put('a');
      expect(await load('a').reason, `seed ${seed}`).toBeDefined();
    }
  });

  it('partial: half of the block is in memory, and the load fails', async () => {
    const { put, load } = make([faultRule({ fault: 'partial' })]);
    await put('a');
    const { block, reason } = load('a');
    await expect(reason).rejects.toMatchObject({ code: 'KVASIR_TIER_FAILED' });
    const [first, second] = [block.subarray(0, block.length / 2), block.subarray(block.length / 2)];
    expect(first).toEqual(suiteBytes(suiteKey('a')).subarray(0, block.length / 2));
    expect(second.every((byte) => byte === 0x5a)).toBe(true);
  });

  it('slow ends at an abort; late ignores the abort and writes the block', async () => {
    const slow = make([faultRule({ fault: 'slow', delayMs: 50 })]);
    await slow.put('a');
    const controller = new AbortController();
    const stopped = slow.load('a', controller.signal);
    controller.abort(new Error('enough'));
    await expect(stopped.reason).rejects.toThrow('enough');
    expect(slow.time.pending).toBe(0);

    const late = make([faultRule({ fault: 'late', delayMs: 50 })]);
    await late.put('a');
    const going = late.load('a', AbortSignal.abort());
    await turn();
    expect(going.block.every((byte) => byte === 0)).toBe(true);
    late.time.advance(50);
    expect(await going.reason).toBeUndefined();
    expect(going.block).toEqual(suiteBytes(suiteKey('a')));
  });

  it('hung ends when it is released, and at an abort unless it ignores aborts', async () => {
    for (const ignoresAbort of [false, true]) {
      const { put, load, tier } = make([faultRule({ fault: 'hung', ignoresAbort })]);
      await put('a');
      const controller = new AbortController();
      const { reason } = load('a', controller.signal);
      let isOver = false;
      reason.catch(() => (isOver = true));
      await turn();
      controller.abort();
      await turn();
      expect(isOver).toBe(!ignoresAbort);
      tier.releaseHung();
      await turn();
      expect(isOver).toBe(true);
    }
  });

  it('missing: the block is not stored; duplicate: the block is loaded twice', async () => {
    const missing = make([faultRule({ fault: 'missing', limit: 1 })]);
    await missing.put('a');
    expect(await missing.load('a').reason).toBe('missing');
    expect(await missing.load('a').reason).toBeUndefined();
    const twice = make([faultRule({ fault: 'duplicate' })]);
    await twice.put('a');
    expect(await twice.load('a').reason).toBeUndefined();
    expect(twice.inner.counters().loaded).toBe(2);
  });
});

it('each fault is a line for the operator', async () => {
  const inner = new HostTier({ identity: suiteIdentity, maxBytes: 1e9 });
  const lines: string[] = [];
  const plan = {
    seed: 1,
    rules: [faultRule({ fault: 'missing', limit: 2 }), faultRule({ fault: 'full', on: 'store' })],
  };
  const tier = new FaultInjector(inner, {
    identity: suiteIdentity,
    timers: new ManualTime(),
    event: (line) => lines.push(line),
    plan,
  });
  const block = new Uint8Array(suiteBlockBytes);
  for (let index = 0; index < 3; index++)
    await tier.load(suiteKey('a'), block, signal, { requestId: requestId('r'), index });
  await tier.store(suiteKey('b'), suiteBytes(suiteKey('b')), signal).catch(() => undefined);
  const [a, b] = [suiteKey('a'), suiteKey('b')];
  expect(lines).toEqual([
    `Injected fault 1 on rank 0: missing in a \`load\` of block ${a}, request r, block 0 of its table.`,
    `Injected fault 2 on rank 0: missing in a \`load\` of block ${a}, request r, block 1 of its table.`,
    `Injected fault 3 on rank 0: full in a \`store\` of block ${b}.`,
  ]);
});

describe('rules', () => {
  const [alice, bob] = [requestId('alice#1.0'), requestId('bob#2.0')];
  const at = (index: number, request = alice) => ({ requestId: request, index });

  it('select calls by block, key, and request id or number', () => {
    const drawn = (rule: Partial<FaultRule>, index: number, request = alice): boolean => {
      const dice = new FaultDice({ seed: 1, rules: [faultRule({ fault: 'error', ...rule })] });
      dice.draw('load', suiteKey('other'), { requestId: alice, index: 99 });
      return dice.draw('load', suiteKey(index), at(index, request)) !== undefined;
    };
    expect([1, 2, 3].map((index) => drawn({ blocks: [2] }, index))).toEqual([false, true, false]);
    expect([1, 2, 3].map((index) => drawn({ keys: [suiteKey(3)] }, index))).toEqual([false, false, true]);
    expect([alice, bob].map((request) => drawn({ requests: ['bob'] }, 1, request))).toEqual([false, true]);
    expect([alice, bob].map((request) => drawn({ requests: ['bob#2.0'] }, 1, request))).toEqual([false, true]);
    expect([alice, bob].map((request) => drawn({ requests: [0] }, 1, request))).toEqual([true, false]);
    expect([alice, bob].map((request) => drawn({ requests: [1] }, 1, request))).toEqual([false, true]);
    expect(drawn({ on: 'store' }, 1)).toBe(false);
  });

  it('select the same keys for the same seed in any order of calls', () => {
    const draw = (seed: number, order: readonly number[]): number[] => {
      const dice = new FaultDice({ seed, rules: [faultRule({ fault: 'error', probability: 0.3 })] });
      return order.filter((i) => dice.draw('load', suiteKey(i), undefined) !== undefined).sort((a, b) => a - b);
    };
    const order = Array.from({ length: 1000 }, (_, i) => i);
    const drawn = draw(7, order);
    expect(draw(7, order.toReversed())).toEqual(drawn);
    expect(draw(8, order)).not.toEqual(drawn);
    expect(drawn.length).toBeGreaterThan(240);
    expect(drawn.length).toBeLessThan(360);
  });

  it('draw for each call of a key, also after more keys than are counted apart', () => {
    const dice = new FaultDice({ seed: 1, rules: [faultRule({ fault: 'error', probability: 0.5 })] });
    for (let i = 0; i < 5000; i++) dice.draw('load', suiteKey(i), undefined);
    const drawn = Array.from({ length: 100 }, () => dice.draw('load', suiteKey('late'), undefined) !== undefined);
    expect(drawn).toContain(true);
    expect(drawn).toContain(false);
  });

  it('are used in order, each up to its limit', () => {
    const dice = new FaultDice({
      seed: 1,
      rules: [faultRule({ fault: 'error', limit: 2 }), faultRule({ fault: 'slow' })],
    });
    const faults = [1, 2, 3, 4].map((i) => dice.draw('load', suiteKey(i), undefined)?.rule.fault);
    expect(faults).toEqual(['error', 'error', 'slow', 'slow']);
    expect(dice.used).toEqual([2, 2]);
  });
});
