/** Subscribers rebuild the content of the cache from KV events, and agree with the server's own list after every change. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { encode } from '@msgpack/msgpack';
import { afterEach, expect, it } from 'vitest';
import { Router } from 'zeromq';
import { KvEventSubscriber } from '../examples/kv-event-subscriber.ts';
import { Prng } from '../src/base/prng.ts';
import { createEngine } from '../src/compose.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { inLongForm } from './support/long-form.ts';
import { needs } from './support/needs.ts';
import { noSubscriberPython, PythonSubscriber, subscriberPython } from './support/python-subscriber.ts';
import { serveEngine } from './support/served-model.ts';

/** Without a key, a `POST` needs JSON. */
const emptied = { method: 'POST', headers: { 'content-type': 'application/json' } };

const model = 'models/kvasir-demo.gguf';
const closers: (() => void | Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

interface Served {
  readonly engine: AsyncEngine;
  readonly origin: string;
  readonly endpoint: string;
  readonly replay: string;
  close(): Promise<void>;
}

interface Listed {
  readonly next_seq: number;
  readonly blocks: readonly { medium: string; group_idx: number; block_hashes: readonly string[] }[];
}

/** A server with events and a pool of so few blocks that it evicts. */
async function serve(events: object = {}, more: Partial<EngineOptions> = {}): Promise<Served> {
  const engine = await createEngine({
    model,
    threads: 1,
    kvCacheMemory: 1 << 20,
    maxModelLen: 256,
    kvEventsConfig: {
      enable_kv_cache_events: true,
      endpoint: 'tcp://*:0',
      replay_endpoint: 'tcp://*:0',
      ...events,
    },
    ...more,
  });
  const server = await serveEngine(engine);
  let isClosed = false;
  const close = async (): Promise<void> => {
    if (isClosed) return;
    isClosed = true;
    await server.close();
    await engine.close();
  };
  closers.push(close);
  const origin = new URL(server.client.baseURL).origin;
  const [source] = (await (await fetch(`${origin}/kv_event_sources`)).json()) as [Record<string, string>];
  return {
    engine,
    origin,
    endpoint: source.endpoint!.replace('*', '127.0.0.1'),
    replay: source.replay_endpoint!.replace('*', '127.0.0.1'),
    close,
  };
}

function subscribe({ endpoint, replay }: Served, topic?: string): KvEventSubscriber {
  const subscriber = new KvEventSubscriber(endpoint, replay, topic);
  closers.push(() => subscriber.close());
  return subscriber;
}

async function startPython({ origin, endpoint, replay }: Served): Promise<PythonSubscriber> {
  const python = await PythonSubscriber.start(subscriberPython!, origin, endpoint, replay);
  closers.push(() => python.kill());
  return python;
}

const list = async ({ origin }: Served): Promise<Listed> =>
  (await (await fetch(`${origin}/kv_events/blocks`)).json()) as Listed;

/** The subscriber has exactly the blocks of the server's list. */
async function expectAgreement(subscriber: KvEventSubscriber, server: Served): Promise<void> {
  let { next_seq, blocks } = await list(server);
  if (subscriber.next < next_seq) await subscriber.catchUp();
  expect(subscriber.next).toBeGreaterThanOrEqual(next_seq);
  // A tier may store a block, and the subscriber hear of it, after the server made its list.
  while (subscriber.next > next_seq) {
    const before = next_seq;
    ({ next_seq, blocks } = await list(server));
    expect(next_seq).toBeGreaterThan(before);
    if (subscriber.next < next_seq) await subscriber.catchUp();
  }
  expect(subscriber.next).toBe(next_seq);
  const listed = blocks.flatMap(({ medium, group_idx, block_hashes }) =>
    block_hashes.map((hash) => `${medium}/${group_idx}/${hash}`),
  );
  const own = [...subscriber.blocks.values()].filter(({ medium }) => medium !== 'STORAGE');
  expect(new Set(own.map(({ medium, group, hash }) => `${medium}/${group}/${hash}`))).toEqual(new Set(listed));
}

/** Requests that share prefixes, some with a cache salt, and that together need more blocks than the pool has. */
async function generate(engine: AsyncEngine, seed: number, count = 4): Promise<void> {
  const prng = new Prng(seed);
  const texts = Array.from({ length: count }, async () => {
    const start = prng.between(0, 3) * 40;
    const prompt = Array.from(
      { length: prng.between(20, 160) },
      (_, i) => 300 + start + (i < 64 ? i : prng.between(0, 99)),
    );
    const salt = prng.chance(0.3) ? { cacheSalt: `salt ${prng.between(0, 1)}` } : {};
    const stream = engine.generate({ prompt, params: { maxTokens: 20, ignoreEos: true }, ...salt });
    for await (const _ of stream);
  });
  await Promise.all(texts);
}

const offloading = (path: string, hostBytes: number): Partial<EngineOptions> => ({
  kvTransferConfig: {
    kv_connector: 'OffloadingConnector',
    kv_role: 'kv_both',
    kv_connector_extra_config: {
      tiers: [`host:${hostBytes}`, `disk:${path}:1GiB`],
      offload_prompt_only: false,
      kv_load_policy: 'always',
      busy_write_share: 1,
    },
  },
});

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), 'kv-events-'));
  closers.push(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

const rounds = inLongForm(16, 4);

it('a subscriber has the blocks of the pool after evictions, lost blocks, resets and a lost connection', async () => {
  const server = await serve();
  const { engine } = server;
  const subscriber = subscribe(server);
  for (let round = 0; round < rounds; round++) {
    await generate(engine, round);
    await expectAgreement(subscriber, server);
    if (round % 3 === 0) await engine.cache!.loseBlocks({ count: 3, seed: round });
    await expectAgreement(subscriber, server);
  }
  // The subscription takes effect a moment after it was made.
  for (let round = 0; subscriber.live === 0; round++) await generate(engine, 1000 + round);
  expect([...subscriber.blocks.values()].every(({ content }) => content !== undefined)).toBe(true);

  subscriber.disconnect();
  await generate(engine, 2000);
  const { replayed } = subscriber;
  subscriber.connect();
  await generate(engine, 2001);
  await expectAgreement(subscriber, server);
  expect(subscriber.replayed).toBeGreaterThan(replayed);

  const before = engine.cache!.kvEvents!.counters().batches;
  const reset = await fetch(`${server.origin}/reset_prefix_cache`, emptied);
  expect(await reset.json()).toEqual({ blocks_left: 0 });
  expect(await list(server)).toEqual({ next_seq: before + 1, blocks: [] });
  await expectAgreement(subscriber, server);
  expect(subscriber.blocks.size).toBe(0);
  expect(subscriber.restarts).toBe(0);
});

it('the tokens and parents of the events are those of the prompts', async () => {
  const server = await serve({ topic: 'kv@host:8000@demo', event_format: 'array' });
  const subscriber = subscribe(server, 'kv@host:8000@demo');
  const prompt = Array.from({ length: 100 }, (_, i) => 300 + i);
  for await (const _ of server.engine.generate({ prompt, params: { maxTokens: 1 }, cacheSalt: 'a' }));
  await expectAgreement(subscriber, server);
  const found: number[] = [];
  let parent: string | undefined;
  for (;;) {
    const next = [...subscriber.blocks.values()].find(({ content }) => content?.parent === parent);
    if (next === undefined) break;
    expect(next.content?.salt).toBe(parent === undefined ? 'a' : undefined);
    found.push(...next.content!.tokens);
    parent = next.hash;
  }
  expect(found).toEqual(prompt.slice(0, 96));
});

it('events of host memory and of a disk have their medium, and say what is there', async () => {
  const path = folder();
  const server = await serve({}, offloading(path, 600_000));
  const subscriber = subscribe(server);
  for (let round = 0; round < rounds; round++) {
    await generate(server.engine, round);
    await expectAgreement(subscriber, server);
  }
  await fetch(`${server.origin}/reset_prefix_cache`, emptied);
  await expectAgreement(subscriber, server);
  const media = new Set([...subscriber.blocks.values()].map(({ medium }) => medium));
  expect(media).toEqual(new Set(['CPU', 'STORAGE']));
  expect([...subscriber.blocks.values()].filter(({ content }) => content === undefined)).toEqual([]);
  // The files on the disk are the blocks of the medium STORAGE, when all are written.
  await expect
    .poll(async () => {
      await expectAgreement(subscriber, server);
      const onDisk = hashesOnDisk(path);
      const stored = [...subscriber.blocks.values()].flatMap(({ medium, hash }) =>
        medium === 'STORAGE' ? [hash] : [],
      );
      return onDisk.length > 0 && stored.sort().join() === onDisk.join();
    })
    .toBe(true);
});

it('a subscriber forgets the blocks of a server that was restarted', async () => {
  const server = await serve();
  const subscriber = subscribe(server);
  await generate(server.engine, 1);
  await expectAgreement(subscriber, server);
  const had = subscriber.next;
  await server.close();
  const addresses = [server.endpoint, server.replay].map((address) => address.replace('127.0.0.1', '*'));
  const again = await serve({ endpoint: addresses[0], replay_endpoint: addresses[1] });
  // The new server has more batches than the subscriber had of the old one, so no number is missing.
  const { kvEvents } = again.engine.cache!;
  for (let seed = 2; kvEvents!.counters().batches <= had; seed++) await generate(again.engine, seed);
  await subscriber.catchUp();
  await expectAgreement(subscriber, again);
  expect(subscriber.restarts).toBe(1);
});

it('a subscriber asks again for a replay that a server did not answer before it ended', async () => {
  const router = new Router({ linger: 0 });
  closers.push(() => router.close());
  await router.bind('tcp://127.0.0.1:*');
  const subscriber = new KvEventSubscriber('tcp://127.0.0.1:9', router.lastEndpoint!);
  closers.push(() => subscriber.close());
  const caughtUp = subscriber.catchUp();
  await router.receive();
  const [client] = await router.receive();
  const payload = encode([
    0,
    [{ type: 'BlockStored', block_hashes: [5], token_ids: [1], block_size: 1, medium: 'GPU' }],
  ]);
  await router.send([client!, '', '', Buffer.alloc(8), payload]);
  await router.send([client!, '', '', Buffer.alloc(8, 0xff), '']);
  await caughtUp;
  expect([...subscriber.blocks.keys()]).toEqual(['GPU/0/5']);
});

it('models with several KV groups have the group in their events', async () => {
  const server = await serve({}, { model: 'models/kvasir-hybrid.gguf', kvCacheMemory: 2 << 20 });
  const subscriber = subscribe(server);
  for (let round = 0; round < 3; round++) {
    await generate(server.engine, round, 2);
    await expectAgreement(subscriber, server);
  }
  expect(new Set([...subscriber.blocks.values()].map(({ group }) => group)).size).toBeGreaterThan(1);
});

it(
  'a subscriber in Python agrees with the server, also after it was disconnected and after it was stopped',
  needs(subscriberPython !== undefined, noSubscriberPython),
  async () => {
    const path = folder();
    const server = await serve({ buffer_steps: 100_000 }, offloading(path, 600_000));
    const python = await startPython(server);
    for (let round = 0; round < rounds; round++) {
      await generate(server.engine, round);
      expect(await python.check()).toMatchObject({ agrees: true, without_tokens: 0 });
    }
    await python.disconnect();
    await generate(server.engine, 100);
    await python.connect();
    await server.engine.cache!.loseBlocks({ count: 3, seed: 1 });
    await generate(server.engine, 101);
    await fetch(`${server.origin}/reset_prefix_cache`, emptied);
    expect(await python.check()).toMatchObject({ agrees: true });

    // The engine does not wait for a subscriber that does not read.
    python.process.kill('SIGSTOP');
    await generate(server.engine, 102, 8);
    python.process.kill('SIGCONT');
    expect(await python.check()).toMatchObject({ agrees: true, restarts: 0 });
  },
);

/** As in the events: the last 16 digits of the digest. */
function hashesOnDisk(path: string): string[] {
  const files = readdirSync(path, { recursive: true, encoding: 'utf8' });
  const digests = files.flatMap((file) => /([0-9a-f]{64})/.exec(file.split('/').at(-1)!)?.[1] ?? []);
  return digests.map((digest) => String(BigInt(`0x${digest.slice(-16)}`))).sort();
}
