/** An S3 server that dies, stops, restarts, never answers or is interrupted in the middle of an answer. */
import { once, setMaxListeners } from 'node:events';
import { readdirSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { HoldingProxy } from '../../../../test/support/holding-proxy.ts';
import { ManualTime } from '../../../../test/support/manual-time.ts';
import { needs } from '../../../../test/support/needs.ts';
import { hasS3Server, noS3Server, S3Server, s3Credentials } from '../../../../test/support/s3-server.ts';
import { until } from '../../../../test/support/until.ts';
import type { BlockKey } from '../../block-key.ts';
import { systemTimers } from '../../system-timers.ts';
import { storedBlockBytes, suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from '../tier.suite.ts';
import { S3Tier, type S3TierOptions } from './tier-s3.ts';

let serial = 0;
const never = new AbortController().signal;
setMaxListeners(0, never);
const block = (): Uint8Array => new Uint8Array(suiteBlockBytes).fill(0xee);
const open = (endpoint: string, options: Partial<S3TierOptions> = {}): Promise<S3Tier> =>
  S3Tier.open({
    bucket: 'blocks',
    endpoint,
    credentials: s3Credentials,
    prefix: `faults/${serial++}`,
    identity: suiteIdentity,
    ...options,
  });
const put = (tier: S3Tier, key: BlockKey) => tier.store(key, suiteBytes(key), never);
const keys = Array.from({ length: 20 }, (_, i) => suiteKey(i));
const putAll = (tier: S3Tier) => Promise.all(keys.map((key) => put(tier, key)));
const failed = { code: 'KVASIR_TIER_FAILED' };

async function expectLoads(tier: S3Tier, wanted: readonly BlockKey[]): Promise<void> {
  const blocks = wanted.map(block);
  const reasons = await Promise.all(wanted.map((key, i) => tier.load(key, blocks[i]!, never)));
  expect(reasons).toEqual(wanted.map(() => undefined));
  for (const [i, key] of wanted.entries()) expect(blocks[i]).toEqual(suiteBytes(key));
  tier.checkInvariants();
}

describe('an S3 server', needs(hasS3Server, noS3Server), () => {
  let server: S3Server;
  beforeEach(async () => {
    if (hasS3Server) server = await S3Server.start('blocks');
  });
  afterEach(async () => {
    if (hasS3Server) await server.stop();
  });

  const filesOf = (bucket: string): string[] =>
    readdirSync(server.pathOf(bucket), { recursive: true, encoding: 'utf8' });

  it('that is killed in the middle of an answer fails the loads that are not complete, and no load is a miss', async () => {
    const proxy = await HoldingProxy.start(server.port);
    const tier = await open(proxy.endpoint, { refreshMs: 0 });
    await putAll(tier);
    const held = proxy.holdAfter(5 * storedBlockBytes);
    const blocks = keys.map(block);
    const loads = keys.map((key, i) => tier.load(key, blocks[i]!, never));
    const settled = Promise.allSettled(loads);
    await held;
    await server.killAndWait();
    const outcomes = await settled;
    const complete = outcomes.filter(({ status }) => status === 'fulfilled');
    expect(complete.length).toBeLessThan(20);
    for (const [i, outcome] of outcomes.entries()) {
      if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject(failed);
      else {
        expect(outcome.value).toBeUndefined();
        expect(blocks[i]).toEqual(suiteBytes(keys[i]!));
      }
    }
    await expect(put(tier, suiteKey('new'))).rejects.toMatchObject(failed);
    await expect(tier.has([suiteKey('unknown')], never)).rejects.toMatchObject(failed);
    expect(await tier.has([keys[0]!, suiteKey('unknown')], never)).toEqual([true, undefined]);
    await server.startAgain();
    await proxy.release();
    await expectLoads(tier, keys);
    await tier.close();
    await proxy.close();
  });

  it('that is restarted still has its objects, and kept connections are replaced', async () => {
    const tier = await open(server.endpoint);
    await putAll(tier);
    await server.killAndWait();
    await server.startAgain();
    await expectLoads(tier, keys);
    expect(await put(tier, suiteKey('new'))).toBe('stored');
    await tier.close();
  });

  it('that is stopped by SIGSTOP: calls end at their signals or deadlines, and work after SIGCONT', async () => {
    const time = new ManualTime();
    const timers = {
      // Only deadlines are manual.
      after: (delayMs: number, callback: () => void) => (delayMs < 1000 ? systemTimers : time).after(delayMs, callback),
    };
    const tier = await open(server.endpoint, { timers, refreshMs: 0 });
    await putAll(tier);
    server.pause();
    const controller = new AbortController();
    const aborted = tier.load(keys[0]!, block(), controller.signal);
    const abortedStore = tier.store(suiteKey('x'), suiteBytes(suiteKey('x')), controller.signal);
    const lookup = tier.has([keys[0]!, suiteKey('unknown')], controller.signal);
    controller.abort(new Error('given up'));
    await expect(aborted).rejects.toThrow('given up');
    await expect(abortedStore).rejects.toThrow('given up');
    expect(await lookup).toEqual([true, undefined]);

    const late = Promise.allSettled([tier.load(keys[1]!, block(), never), tier.has([suiteKey('unknown')], never)]);
    // The look-up waits for the listing that the aborted one has begun.
    await until(() => tier.counters().gets === 1);
    time.advance(30_000);
    for (const outcome of await late) {
      expect(outcome).toMatchObject({
        status: 'rejected',
        reason: { ...failed, message: expect.stringMatching(/no answer in [13]0 s/) },
      });
    }

    server.resume();
    await expectLoads(tier, keys);
    expect(await put(tier, suiteKey('x'))).toMatch(/stored/i);
    await tier.close();
  });

  it('whose answer is held back: an aborted load ends at once, and its memory is not written any more', async () => {
    const proxy = await HoldingProxy.start(server.port);
    const tier = await open(proxy.endpoint);
    await putAll(tier);
    const held = proxy.holdAfter(5 * storedBlockBytes + 2000);
    const blocks = keys.map(block);
    const controllers = keys.map(() => new AbortController());
    const loads = keys.map((key, i) => tier.load(key, blocks[i]!, controllers[i]!.signal));
    const settled = Promise.allSettled(loads);
    await held;
    // Half of the loads are given up; the others share the request and still end well.
    for (const [i, controller] of controllers.entries()) if (i % 2 === 0) controller.abort(new Error('given up'));
    const givenUp = loads.filter((_, i) => i % 2 === 0 && i >= 6);
    for (const load of givenUp) await expect(load).rejects.toThrow('given up');
    const snapshots = blocks.map((bytes) => bytes.slice());
    await proxy.release();
    const outcomes = await settled;
    for (const [i, outcome] of outcomes.entries()) {
      if (outcome.status === 'rejected') expect(blocks[i]).toEqual(snapshots[i]);
      else expect(blocks[i]).toEqual(suiteBytes(keys[i]!));
    }
    expect(outcomes.filter(({ status }) => status === 'rejected').length).toBeGreaterThanOrEqual(7);
    for (let i = 1; i < 20; i += 2) expect(outcomes[i]).toEqual({ status: 'fulfilled', value: undefined });
    await tier.close();
    await proxy.close();
  });

  it('whose answer is held back: if all loads are aborted, the request ends too', async () => {
    const proxy = await HoldingProxy.start(server.port);
    const tier = await open(proxy.endpoint);
    await putAll(tier);
    const held = proxy.holdAfter(2000);
    const controller = new AbortController();
    setMaxListeners(0, controller.signal);
    const blocks = keys.map(block);
    const loads = Promise.allSettled(keys.map((key, i) => tier.load(key, blocks[i]!, controller.signal)));
    await held;
    controller.abort(new Error('given up'));
    const outcomes = await loads;
    expect(outcomes.every(({ status }) => status === 'rejected')).toBe(true);
    const snapshots = blocks.map((bytes) => bytes.slice());
    await proxy.release();
    await expectLoads(tier, keys);
    expect(blocks).toEqual(snapshots);
    await tier.close();
    await proxy.close();
  });

  it('does not keep `close` from waiting for calls under way: stores are written, loads end', async () => {
    const proxy = await HoldingProxy.start(server.port);
    const prefix = `faults/close-${serial++}`;
    const tier = await open(proxy.endpoint, { prefix, gatherMs: 1e6 });
    const storing = putAll(tier);
    const closing = tier.close();
    expect(await storing).toEqual(keys.map(() => 'stored'));
    await closing;
    const again = await open(proxy.endpoint, { prefix });
    const held = proxy.holdAfter(3000);
    const loads = keys.map((key) => again.load(key, block(), never));
    await held;
    let isClosed = false;
    const closed = again.close().then(() => {
      isClosed = true;
    });
    await turns(10);
    expect(isClosed).toBe(false);
    await proxy.release();
    expect(await Promise.all(loads)).toEqual(keys.map(() => undefined));
    await closed;
    await proxy.close();
  });

  it('answers a store whose connection was cut with an error, and the block is stored whole or not at all', async () => {
    const proxy = await HoldingProxy.start(server.port);
    const prefix = `faults/cut-${serial++}`;
    const tier = await open(proxy.endpoint, { prefix });
    const held = proxy.holdAfter(0);
    const storing = Promise.allSettled(keys.map((key) => put(tier, key)));
    await held;
    // The server has received the object, and its answer is lost.
    proxy.cut();
    await proxy.release();
    const outcomes = await storing;
    const reader = await open(server.endpoint, { prefix });
    const found = await reader.has(keys, never);
    expect(new Set(found).size).toBe(1);
    if (found[0] === true) await expectLoads(reader, keys);
    expect(outcomes.every(({ status }) => status === 'rejected') || found[0] === true).toBe(true);
    await reader.close();
    await tier.close();
    await proxy.close();
  });

  it('that loses the bucket while it runs fails the calls and is reported once', async () => {
    const events: string[] = [];
    server.createBucket('short-lived');
    const tier = await open(server.endpoint, {
      bucket: 'short-lived',
      refreshMs: 0,
      event: (text) => events.push(text),
    });
    await putAll(tier);
    // The tier writes its description beside the blocks. versitygw makes the folders of an object again when its bytes have arrived, so with a
    // write in progress the bucket would exist again, without blocks.
    await until(() => filesOf('short-lived').some((path) => path.endsWith('.json')));
    server.removeBucket('short-lived');
    for (const key of keys.slice(0, 3)) await expect(tier.load(key, block(), never)).rejects.toMatchObject(failed);
    await expect(put(tier, suiteKey('new'))).rejects.toMatchObject(failed);
    await expect(tier.has([suiteKey('unknown')], never)).rejects.toMatchObject(failed);
    expect(events).toHaveLength(1);
    expect(events[0]).toContain('NoSuchBucket');
    await tier.close();
  });
});

describe('an endpoint that accepts connections and never answers', () => {
  const sockets = new Set<Socket>();
  const silent = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
  });
  let endpoint = '';
  beforeAll(async () => {
    silent.listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const address = silent.address();
    endpoint = `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;
  });
  afterAll(() => {
    for (const socket of sockets) socket.destroy();
    silent.close();
  });

  it('is an event at the start, costs calls no more than their signals, and `close` returns', async () => {
    const time = new ManualTime();
    const events: string[] = [];
    const opening = open(endpoint, { timers: time, event: (text) => events.push(text) });
    await until(() => time.pending >= 2);
    time.advance(5_000);
    const tier = await opening;
    expect(events.join()).toContain('does not answer: no answer yet');
    const controller = new AbortController();
    const calls = [
      tier.has([keys[0]!], controller.signal),
      tier.load(keys[0]!, block(), controller.signal),
      tier.store(keys[0]!, suiteBytes(keys[0]!), controller.signal),
    ] as const;
    controller.abort(new Error('given up'));
    expect(await calls[0]).toEqual([undefined]);
    await expect(calls[1]).rejects.toThrow('given up');
    await expect(calls[2]).rejects.toThrow('given up');
    await tier.close();
    expect(time.pending).toBe(0);
  });
});

const turns = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
};
