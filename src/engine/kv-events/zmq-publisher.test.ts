import { afterEach, expect, it } from 'vitest';
import * as zmq from 'zeromq';
import { type KvEventsConfig, readKvEventsConfig } from './config.ts';
import { ZmqPublisher } from './zmq-publisher.ts';

const open: { close(): void | Promise<void> }[] = [];
afterEach(async () => {
  for (const each of open.splice(0)) await each.close();
});

async function newPublisher(config: KvEventsConfig = {}) {
  const settings = readKvEventsConfig({
    enableKvCacheEvents: true,
    endpoint: 'tcp://*:0',
    replayEndpoint: 'tcp://*:0',
    ...config,
  })!;
  const warnings: string[] = [];
  const publisher = await ZmqPublisher.open(zmq, settings, (message) => warnings.push(message));
  open.push(publisher);
  const local = (address: string | undefined): string => address!.replace('*', '127.0.0.1');
  return {
    publisher,
    warnings,
    endpoint: local(publisher.source.endpoint),
    replayEndpoint: local(publisher.source.replayEndpoint),
  };
}

/** A subscriber whose subscription has taken effect. */
async function subscribe(publisher: ZmqPublisher, endpoint: string, topic = ''): Promise<zmq.Subscriber> {
  const subscriber = new zmq.Subscriber({ linger: 0 });
  open.push(subscriber);
  subscriber.connect(endpoint);
  subscriber.subscribe(topic);
  let isThere = false;
  const first = subscriber.receive().then(() => {
    isThere = true;
  });
  while (!isThere) {
    publisher.publish(Buffer.from('are you there'));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await first;
  return subscriber;
}

async function replay(address: string, frames: (Buffer | string)[]): Promise<[number, string][]> {
  const dealer = new zmq.Dealer({ linger: 0, receiveHighWaterMark: 0 });
  open.push(dealer);
  dealer.connect(address);
  await dealer.send(frames);
  const batches: [number, string][] = [];
  for await (const [empty, topic, sequence, payload] of dealer) {
    expect(empty).toHaveLength(0);
    if (payload!.length === 0) {
      expect(topic).toHaveLength(0);
      expect(sequence).toEqual(Buffer.alloc(8, 0xff));
      break;
    }
    batches.push([Number(sequence!.readBigUInt64BE()), payload!.toString()]);
  }
  return batches;
}

const from = (sequence: number | bigint): (Buffer | string)[] => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(sequence));
  return ['', bytes];
};

it('sends topic, sequence number and payload', async () => {
  const { publisher, endpoint } = await newPublisher({ topic: 'kv@host@model' });
  const subscriber = await subscribe(publisher, endpoint, 'kv@host');
  const sequence = publisher.nextSequence;
  publisher.publish(Buffer.from('payload'));
  for (;;) {
    const [topic, number, payload] = await subscriber.receive();
    expect(topic!.toString()).toBe('kv@host@model');
    if (payload!.toString() !== 'payload') continue;
    expect(Number(number!.readBigUInt64BE())).toBe(sequence);
    break;
  }
});

it('batches beyond the queue are dropped and counted, and a replay has them', async () => {
  const { publisher, endpoint, replayEndpoint } = await newPublisher({ maxQueueSize: 2 });
  const subscriber = await subscribe(publisher, endpoint);
  const start = publisher.nextSequence;
  const dropped = publisher.counters.dropped;
  for (let i = 0; i < 10; i++) publisher.publish(Buffer.from(`batch ${i}`));
  expect(publisher.counters).toMatchObject({ batches: start + 10, dropped: expect.any(Number) });
  expect(publisher.counters.dropped - dropped).toBeGreaterThanOrEqual(7);
  const received: number[] = [];
  while (received.at(-1) !== start + 9) {
    const [, number] = await subscriber.receive();
    received.push(Number(number!.readBigUInt64BE()));
  }
  const missing = Array.from({ length: 10 }, (_, i) => start + i).filter((number) => !received.includes(number));
  expect(missing).toHaveLength(publisher.counters.dropped - dropped);
  const replayed = await replay(replayEndpoint, from(start));
  expect(replayed).toEqual(Array.from({ length: 10 }, (_, i) => [start + i, `batch ${i}`]));
});

it('replays the last `bufferSteps` batches, from the one that was asked for', async () => {
  const { publisher, replayEndpoint } = await newPublisher({ bufferSteps: 100 });
  for (let i = 0; i < 300; i++) publisher.publish(Buffer.from(String(i)));
  const numbers = async (start: number | bigint) =>
    (await replay(replayEndpoint, from(start))).map(([number]) => number);
  expect(await numbers(295)).toEqual([295, 296, 297, 298, 299]);
  expect(await numbers(0)).toEqual(Array.from({ length: 100 }, (_, i) => 200 + i));
  expect(await numbers(300)).toEqual([]);
  expect(await numbers(2n ** 64n - 1n)).toEqual([]);
  expect(publisher.counters.replays).toBe(4);
});

it('ignores requests for a replay that it cannot read, and clients that do not read', async () => {
  const { publisher, warnings, replayEndpoint } = await newPublisher();
  const large = Buffer.alloc(100_000);
  for (let i = 0; i < 200; i++) publisher.publish(large);
  const wrong = new zmq.Dealer({ linger: 0 });
  open.push(wrong);
  wrong.connect(replayEndpoint);
  await wrong.send(['']);
  await wrong.send(['', 'short']);
  await wrong.send(['', Buffer.alloc(8), 'more']);
  await wrong.send(from(0));
  const vanished = new zmq.Dealer({ linger: 1000 });
  vanished.connect(replayEndpoint);
  await vanished.send(from(0));
  vanished.close();
  // The answers to this client come after those to the others.
  expect(await replay(replayEndpoint, from(199))).toHaveLength(1);
  expect(warnings).toEqual([expect.stringContaining('a replay request was ignored')]);
});

it('names an address that cannot be used', async () => {
  const { endpoint, replayEndpoint } = await newPublisher();
  await expect(newPublisher({ endpoint: endpoint.replace('127.0.0.1', '*') })).rejects.toThrow(
    /The address tcp:\/\/\*:\d+ of KV events cannot be used: .*in use.* Name another address as endpoint/,
  );
  await expect(newPublisher({ replayEndpoint })).rejects.toThrow(/Name another address as replay_endpoint/);
  await expect(newPublisher({ endpoint: 'tcp://*.nothing:1' })).rejects.toThrow(/cannot be used: .*(Invalid|No such)/);
});

it('connects to an address without a wildcard, as vLLM does', async () => {
  const subscriber = new zmq.Subscriber({ linger: 0 });
  open.push(subscriber);
  await subscriber.bind('tcp://127.0.0.1:*');
  subscriber.subscribe('');
  const { publisher } = await newPublisher({ endpoint: subscriber.lastEndpoint! });
  let received: Buffer[] | undefined;
  const first = subscriber.receive().then((frames) => {
    received = frames;
  });
  while (received === undefined) {
    publisher.publish(Buffer.from('hello'));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await first;
  expect(received?.[2]?.toString()).toBe('hello');
});

it('sends nothing after it is closed, and another publisher can use its addresses', async () => {
  const { publisher } = await newPublisher();
  const { endpoint, replayEndpoint } = publisher.source;
  publisher.publish(Buffer.from('a'));
  await publisher.close();
  await publisher.close();
  for (let i = 0; i < 5; i++)
    await (await newPublisher({ endpoint, replayEndpoint: replayEndpoint! })).publisher.close();
  publisher.publish(Buffer.from('b'));
  expect(publisher.counters.batches).toBe(2);
});
