import * as msgpack from '@msgpack/msgpack';
import { expect, it } from 'vitest';
import type { TokenCount } from '../../core/ids.ts';
import type { KvGroupSpec } from '../../core/kv-spec.ts';
import { parseKvEventsConfig, readKvEventsConfig } from './config.ts';
import { encodeBatch } from './encode.ts';
import { loadKvEventLibraries } from './libraries.ts';
import { EventBuilder, poolMedium } from './wire-events.ts';

const full: KvGroupSpec = { kind: 'full', blockSize: 2 as TokenCount, layers: [0] };
const window: KvGroupSpec = { kind: 'window', blockSize: 2 as TokenCount, layers: [1], window: 8 as TokenCount };
const cpu = { medium: 'CPU', locality: 'LOCAL' };

const content = (parent: bigint | null, tokens: number[], cacheSalt?: string) => ({
  parent,
  tokens: Int32Array.from(tokens),
  cacheSalt,
});

it('reads the keys of vLLM, in its spelling or in camelCase', () => {
  expect(readKvEventsConfig({})).toBeUndefined();
  expect(readKvEventsConfig({ enable_kv_cache_events: true, publisher: 'null' })).toBeUndefined();
  expect(readKvEventsConfig({ enableKvCacheEvents: true, replay_endpoint: null })).toEqual({
    endpoint: 'tcp://*:5557',
    replayEndpoint: undefined,
    bufferSteps: 10_000,
    hwm: 100_000,
    maxQueueSize: 100_000,
    topic: '',
    eventFormat: 'map',
  });
});

it.each([
  ['{', /it is not JSON/],
  ['[]', /it is not a JSON object/],
  ['{"endpiont":"tcp://*:1"}', /no key `endpiont`. Did you mean `?endpoint/],
  ['{"endpoint":"http://*:1"}', /`endpoint` must be an address of ZeroMQ/],
  ['{"endpoint":"tcp://*"}', /`endpoint` must be an address of ZeroMQ/],
  ['{"replay_endpoint":"tcp://*:99999"}', /`replay_endpoint` must be an address of ZeroMQ/],
  ['{"buffer_steps":-1}', /`buffer_steps` must be an integer from 0 to 2147483647, got -1/],
  ['{"max_queue_size":0}', /`max_queue_size` must be an integer from 1 to 2147483647, got 0/],
  ['{"enable_kv_cache_events":"yes"}', /must be true or false/],
  ['{"publisher":"kafka"}', /must be "zmq" or "null"/],
  ['{"event_format":"msgpack"}', /must be "map" or "array"/],
])('refuses %s', (text, message) => {
  expect(() => parseKvEventsConfig(text)).toThrow(message);
});

it('names the command that installs a missing package', async () => {
  const missing = Object.assign(new Error('no'), { code: 'ERR_MODULE_NOT_FOUND' });
  await expect(loadKvEventLibraries(() => Promise.reject(missing))).rejects.toThrow(
    /zeromq is not installed. Run: npm install zeromq@6\.8\.0 @msgpack\/msgpack@3\.1\.3$/,
  );
  const broken = () => Promise.reject(new Error('no such symbol\nat x'));
  await expect(loadKvEventLibraries(broken)).rejects.toThrow(/zeromq cannot be loaded \(no such symbol\)/);
});

it('blocks that follow each other are one event, and others are not', () => {
  const builder = new EventBuilder([full]);
  builder.stored(0, poolMedium, { hash: 1n, content: content(null, [10, 11], 'salt') });
  builder.stored(0, poolMedium, { hash: 2n, content: content(1n, [12, 13]) });
  builder.stored(0, poolMedium, { hash: 9n, content: content(1n, [14, 15]) });
  builder.stored(0, cpu, { hash: 1n, content: undefined });
  builder.stored(0, cpu, { hash: 2n, content: undefined });
  builder.removed(0, poolMedium, 2n);
  builder.removed(0, poolMedium, 1n);
  builder.removed(0, cpu, 1n);
  const common = { type: 'BlockStored', block_size: 2, lora_id: null, lora_name: null, medium: 'GPU' };
  expect(builder.events).toEqual([
    {
      ...common,
      block_hashes: [1n, 2n],
      parent_block_hash: null,
      token_ids: [10, 11, 12, 13],
      extra_keys: [['salt'], null],
    },
    { ...common, block_hashes: [9n], parent_block_hash: 1n, token_ids: [14, 15] },
    { ...common, ...cpu, block_hashes: [1n, 2n], parent_block_hash: null, token_ids: [], block_size: 0 },
    { type: 'BlockRemoved', block_hashes: [2n, 1n], medium: 'GPU' },
    { type: 'BlockRemoved', block_hashes: [1n], ...cpu },
  ]);
});

it('events of blocks with an adapter have its name, and blocks of different adapters are different events', () => {
  const builder = new EventBuilder([full]);
  const of = (adapterName: string, parent: bigint | null, salt?: string) => ({
    ...content(parent, [1, 2], salt),
    adapterName,
  });
  builder.stored(0, poolMedium, { hash: 1n, content: of('sql', null, 'salt') });
  builder.stored(0, poolMedium, { hash: 2n, content: of('sql', 1n) });
  builder.stored(0, poolMedium, { hash: 3n, content: of('other name', 2n) });
  expect(builder.events).toMatchObject([
    { block_hashes: [1n, 2n], lora_id: null, lora_name: 'sql', extra_keys: [['sql', 'salt'], ['sql']] },
    { block_hashes: [3n], lora_name: 'other name', extra_keys: [['other name']] },
  ]);
});

it('of several groups, events have the number and the kind', () => {
  const builder = new EventBuilder([full, window]);
  builder.stored(1, poolMedium, { hash: 1n, content: content(null, [1, 2]) });
  builder.stored(0, poolMedium, { hash: 2n, content: content(1n, [1, 2]) });
  builder.removed(1, poolMedium, 1n);
  expect(builder.events).toMatchObject([
    { group_idx: 1, kv_cache_spec_kind: 'sliding_window', kv_cache_spec_sliding_window: 8 },
    { group_idx: 0, kv_cache_spec_kind: 'full_attention' },
    { type: 'BlockRemoved', group_idx: 1 },
  ]);
});

it('a batch is an array of the time, the events as maps or as arrays, and the rank', () => {
  const builder = new EventBuilder([full]);
  builder.stored(0, poolMedium, { hash: 2n ** 64n - 1n, content: content(5n, [1, 70_000]) });
  builder.removed(0, cpu, 7n);
  builder.cleared();
  const decoded = (format: 'map' | 'array', seconds: number) => {
    const bytes = encodeBatch(msgpack, builder.events, seconds, format);
    // The time is a float even if it is a whole number.
    expect(bytes[1]).toBe(0xcb);
    return msgpack.decode(bytes, { useBigInt64: true });
  };
  expect(decoded('map', 1.5)).toEqual([1.5, builder.events, 0]);
  expect(decoded('array', 2)).toEqual([
    expect.closeTo(2, 5),
    [
      ['BlockStored', [2n ** 64n - 1n], 5n, [1, 70_000], 2, null, 'GPU', null],
      ['BlockRemoved', [7n], 'CPU', null, 'LOCAL'],
      ['AllBlocksCleared'],
    ],
    0,
  ]);
});
