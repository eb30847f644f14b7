import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../base/json.ts';
import { readKvTransferConfig } from '../config.ts';
import { readOffloadingSettings } from './offloading-settings.ts';

const read = (extra: JsonObject) =>
  readOffloadingSettings(
    readKvTransferConfig({ kvConnector: 'OffloadingConnector', kvRole: 'kv_both', kvConnectorExtraConfig: extra }),
  );

describe('OffloadingConnector: settings', () => {
  it('the tiers of the command line and those of vLLM are the same', () => {
    const short = read({ tiers: ['host:1GiB:arc', 'disk:/a:2GiB', 'redis://h:1', 's3://b/p?endpoint=http://e:9'] });
    const long = read({
      spec_name: 'TieringOffloadingSpec',
      cpu_bytes_to_use: 1024 ** 3,
      eviction_policy: 'arc',
      secondary_tiers: [
        { type: 'fs', root_dir: '/a', max_bytes: 2 * 1024 ** 3 },
        { type: 'redis', url: 'redis://h:1' },
        { type: 'obj', store_config: { bucket: 'b', endpoint_override: 'e:9' }, prefix: 'p' },
      ],
    });
    expect(long).toEqual(short);
    expect(short.secondaries.map(({ name }) => name)).toEqual(['disk', 'redis', 's3']);
  });

  it('times to live, bounds, regions and credentials of tiers are read in the form of vLLM, too', () => {
    const store = { bucket: 'b', endpoint_override: 'https://e:9', region: 'r', access_key: 'a', secret_key: 's' };
    const { secondaries } = read({
      spec_name: 'TieringOffloadingSpec',
      cpu_bytes_to_use: 1024 ** 3,
      secondary_tiers: [
        { type: 'fs', root_dir: '/a', ttl_seconds: 60 },
        { type: 'redis', url: 'redis://h:1', ttl_seconds: 5 },
        { type: 'obj', store_config: { ...store, session_token: 't' }, max_bytes: 1000 },
        { type: 'obj', store_config: { bucket: 'c', access_key: 'a' } },
      ],
    });
    expect(secondaries.map(({ spec }) => spec)).toMatchObject([
      { kind: 'disk', path: '/a', ttlSeconds: 60 },
      { kind: 'redis', url: 'redis://h:1', ttlSeconds: 5 },
      {
        ...{ kind: 's3', bucket: 'b', endpoint: 'https://e:9', region: 'r', maxBytes: 1000 },
        credentials: { accessKeyId: 'a', secretAccessKey: 's', sessionToken: 't' },
      },
      { kind: 's3', bucket: 'c' },
    ]);
    expect(secondaries[3]!.spec).not.toHaveProperty('credentials');
  });

  it('quotas are for host memory and disks, whose blocks Kvasir evicts', () => {
    const { host, secondaries, metricsBySalt } = read({
      tiers: ['host:1GiB?quota=1MiB', 'disk:/a?quota=2MiB'],
      metrics_by_salt: true,
    });
    expect([host.quotaBytes, secondaries[0]!.spec, metricsBySalt]).toMatchObject([
      1 << 20,
      { quotaBytes: 2 << 20 },
      true,
    ]);
    const secondary = (tier: JsonObject) =>
      read({ spec_name: 'TieringOffloadingSpec', cpu_bytes_to_use: 1024 ** 3, secondary_tiers: [tier] });
    expect(secondary({ type: 'fs', root_dir: '/a', quota_bytes: 5 }).secondaries[0]!.spec).toMatchObject({
      quotaBytes: 5,
    });
    for (const tier of [
      { type: 'redis', url: 'redis://h' },
      { type: 'obj', store_config: { bucket: 'b' } },
    ])
      expect(() => secondary({ ...tier, quota_bytes: 5 })).toThrow(/quota_bytes` .*quotas are for host memory/);
  });

  it('a load of many blocks may take as long as a block in each of the tiers', () => {
    const tiers = ['host:1GiB', 'disk:/a', 'redis://h:1'];
    expect(read({ tiers }).wholeLoadTimeoutMs).toBeUndefined();
    expect(read({ tiers, load_timeout_seconds: 30 }).wholeLoadTimeoutMs).toBe(90_000);
    expect(read({ tiers, load_timeout_seconds: 0.1 }).wholeLoadTimeoutMs).toBe(2000);
  });

  it('without a host tier, a buffer in host memory takes its place', () => {
    const { host, secondaries } = read({ tiers: ['disk:/a'] });
    expect(host).toEqual({ kind: 'host', maxBytes: 256 * 1024 ** 2, evictionPolicy: 'lru' });
    expect(secondaries).toHaveLength(1);
  });

  it.each<[JsonObject, RegExp]>([
    [{}, /cpu_bytes_to_use` must be the bytes of the host tier, got nothing.*Or name the tiers in `tiers`/],
    [{ tiers: [] }, /the list is empty/],
    [{ tiers: ['disk:/a', 'host:1GiB'] }, /Name it first/],
    [{ tiers: ['host:1GiB', 'host:1GiB'] }, /several host tiers/],
    [{ tiers: ['host:900TiB'] }, /the host tier has 900 TiB, but this (machine has|container may use)/],
    [{ tiers: [8] }, /tiers\[0\]` must be a text/],
    [{ cpu_bytes_to_use: 1e9, block_size: 48, blocks_per_chunk: 3 }, /blocks_per_chunk` must be absent if block_size/],
    [{ cpu_bytes_to_use: 1e9, self_describing_kv_events: true }, /self_describing_kv_events` must be absent/],
    [{ cpu_bytes_to_use: 1e9, backpressure: {} }, /circuit breaker/],
    [{ cpu_bytes_to_use: 1e9, cache_policy_module_path: 'x' }, /eviction policies are lru and arc/],
    [{ cpu_bytes_to_use: 1e9, eviction_policy: 'fifo' }, /eviction_policy` must be "lru" or "arc"/],
    [{ cpu_bytes_to_use: 1e9, secondary_tiers: [{ type: 'fs', root_dir: '/a' }] }, /spec_name` must be "Tiering/],
    [
      { spec_name: 'TieringOffloadingSpec', cpu_bytes_to_use: 1e9, secondary_tiers: [{ type: 'p2p' }] },
      /secondary_tiers\[0\]\.type` must be one of fs, obj, redis, got "p2p"/,
    ],
    [
      { spec_name: 'TieringOffloadingSpec', cpu_bytes_to_use: 1e9, secondary_tiers: [{ type: 'fs', root: '/a' }] },
      /root_dir` must be a directory/,
    ],
    [{ cpu_bytes_to_use: 1e9, store_treshold: 2 }, /no such setting.*Did you mean `store_threshold`/],
  ])('%j is refused with the reason', (extra, message) => {
    expect(() => read(extra)).toThrow(message);
  });

  it("settings of vLLM that are switched off are accepted, and Kvasir's defaults hold", () => {
    expect(read({ cpu_bytes_to_use: 1e9, canonical_layout: false, self_describing_kv_events: false })).toMatchObject({
      blocksPerChunk: 1,
      storeThreshold: 0,
      offloadPromptOnly: false,
      syncLoadBytes: 0,
      asyncLoad: true,
    });
  });
});
