import { describe, expect, it } from 'vitest';
import { describeTier, diskDefaults, parseTierSpec, secondarySpec, tierNames } from './tier-spec.ts';

const GIB = 1024 ** 3;
const disk = { kind: 'disk', ...diskDefaults } as const;

describe('tiers on the command line', () => {
  it.each([
    ['host:8GiB', { kind: 'host', maxBytes: 8 * GIB, evictionPolicy: 'lru' }],
    ['host:8589934592:arc', { kind: 'host', maxBytes: 8 * GIB, evictionPolicy: 'arc' }],
    ['host:8GiB?ttl=3600', { kind: 'host', maxBytes: 8 * GIB, evictionPolicy: 'lru', ttlSeconds: 3600 }],
    ['host:8GiB:arc?ttl=60', { kind: 'host', maxBytes: 8 * GIB, evictionPolicy: 'arc', ttlSeconds: 60 }],
    ['disk:/kv:1GiB?ttl=86400', { ...disk, path: '/kv', maxBytes: GIB, ttlSeconds: 86_400 }],
    ['host:8GiB?quota=512MiB', { kind: 'host', maxBytes: 8 * GIB, evictionPolicy: 'lru', quotaBytes: 512 * 1024 ** 2 }],
    ['disk:/kv:9GiB?quota=1GiB&ttl=60', { ...disk, path: '/kv', maxBytes: 9 * GIB, ttlSeconds: 60, quotaBytes: GIB }],
    ['disk:/kv?ttl=60&quota=1000', { ...disk, path: '/kv', ttlSeconds: 60, quotaBytes: 1000 }],
    ['disk:/what?:1GiB', { ...disk, path: '/what?', maxBytes: GIB }],
    ['disk:/kv?ttl=1', { ...disk, path: '/kv', ttlSeconds: 1 }],
    ['disk:/var/cache/kvasir:100GiB', { ...disk, path: '/var/cache/kvasir', maxBytes: 100 * GIB }],
    ['disk:/var/cache/kvasir', { ...disk, path: '/var/cache/kvasir' }],
    ['disk:relative', { ...disk, path: 'relative' }],
    ['disk:C:\\kv:1GiB', { ...disk, path: 'C:\\kv', maxBytes: GIB }],
    ['disk:/with:colon', { ...disk, path: '/with:colon' }],
    ['redis://host:6379', { kind: 'redis', url: 'redis://host:6379' }],
    ['valkeys://u:p@host:6379/2', { kind: 'redis', url: 'valkeys://u:p@host:6379/2' }],
    ['redis://a:1,b:2?cluster=true', { kind: 'redis', url: 'redis://a:1,b:2?cluster=true' }],
    ['redis://host?ttl=60', { kind: 'redis', url: 'redis://host', ttlSeconds: 60 }],
    ['redis://host?ttl=60&cluster=true', { kind: 'redis', url: 'redis://host?cluster=true', ttlSeconds: 60 }],
    ['s3://bucket', { kind: 's3', bucket: 'bucket' }],
    [
      's3://bucket/a/b/?endpoint=http://127.0.0.1:9000&region=eu&path_style=false&max_bytes=1TiB',
      {
        kind: 's3',
        bucket: 'bucket',
        prefix: 'a/b',
        endpoint: 'http://127.0.0.1:9000',
        region: 'eu',
        forcePathStyle: false,
        maxBytes: 1024 * GIB,
      },
    ],
  ])('%s is understood', (text, spec) => {
    expect(parseTierSpec(text)).toEqual(spec);
  });

  it.each([
    ['disk:/kv?ttl=0', /ttl is a number of seconds of at least 1, not `0`/],
    ['host:1GiB?ttl=1h', /ttl is a number of seconds of at least 1, not `1h`/],
    ['disk:/kv?quota=', /quota is a size like 1GiB, not ``/],
    ['host:1GiB?quota=0', /quota is a size like 1GiB, not `0`/],
    ['host:1GiB?quota=-1GiB', /quota is a size/],
    ['host:1GiB?quota=1GiB&tll=60', /after \? there are ttl and quota, .* not `tll=60`/],
    ['redis://host?quota=1GiB', /there is no quota in Redis: .* for host and disk/],
    ['redis://a:1,b:2?cluster=true&quota=1GiB', /there is no quota in Redis/],
    ['s3://bucket?quota=1GiB', /there is no quota in S3: .* for host and disk/],
    ['hots:8GiB', /no tier `hots`. Did you mean `host`\?/],
    ['', /no tier ``/],
    ['host', /needs a size, as in host:8GiB/],
    ['host:many', /needs a size/],
    ['host:8GiB:fifo', /eviction policy is lru or arc, not `fifo`/],
    ['disk:', /needs a directory/],
    ['redis:host', /it is a URL, as in redis:\/\/host:6379/],
    ['redis://host?ttl=soon', /ttl is a number of seconds of at least 1, not `soon`/],
    ['s3:bucket', /it is a URL, as in s3:/],
    ['s3://bucket?endpont=x', /no parameter `endpont`. Did you mean `endpoint`\?/],
    ['s3://bucket?endpoint=nothing', /endpoint is a URL, not `nothing`/],
    ['s3://bucket?max_bytes=big', /max_bytes is a size/],
    ['s3://bucket?path_style=yes', /path_style is true or false/],
    ['s3://key:secret@bucket', /credentials come from AWS_ACCESS_KEY_ID/],
  ])('%s is refused with the reason', (text, message) => {
    expect(() => parseTierSpec(text)).toThrow(message);
  });

  it('errors and descriptions have no password', () => {
    expect(() => parseTierSpec('s3://key:secret@bucket')).toThrow(/^(?!.*secret).*$/s);
    expect(() => parseTierSpec('redis:user:secret@host')).toThrow(/^(?!.*secret).*$/s);
    for (const password of ['secret', 'se@cret', 'se/cret', 'se?cret'])
      expect(describeTier(parseTierSpec(`redis://user:${password}@host:6379`))).toBe('redis://host:6379');
    expect(describeTier(parseTierSpec('host:1536MiB'))).toBe('host memory, 1.5 GiB');
    expect(describeTier(parseTierSpec('disk:/a:1GiB'))).toBe('disk /a, 1 GiB');
    expect(describeTier(parseTierSpec('s3://bucket/a'))).toBe('s3://bucket/a');
  });

  it('a tier that is attached is below host memory', () => {
    expect(secondarySpec('disk:/kv')).toEqual({ ...disk, path: '/kv' });
    expect(() => secondarySpec('host:1GiB')).toThrow('the host tier cannot be attached: each server has one');
  });

  it('each tier has a name of its own', () => {
    const specs = ['disk:/a', 'redis://b', 'disk:/c', 'disk:/d'].map(parseTierSpec);
    expect(tierNames(specs as Parameters<typeof tierNames>[0])).toEqual(['disk', 'redis', 'disk-2', 'disk-3']);
  });
});
