import { expect, it } from 'vitest';
import { parseRedisUrl } from './redis-url.ts';

const at = (host: string, port = 6379) => ({ host, port });

it.each<[string, object]>([
  [
    'redis://host',
    { addresses: [at('host')], isTls: false, isCluster: false, database: 0, label: 'redis://host:6379' },
  ],
  ['valkey://host:7000/3', { addresses: [at('host', 7000)], database: 3, label: 'valkey://host:7000/3' }],
  ['rediss://host/', { isTls: true, database: 0, label: 'rediss://host:6379' }],
  ['VALKEYS://host', { isTls: true, label: 'valkeys://host:6379' }],
  ['redis://[::1]:7000', { addresses: [at('::1', 7000)], label: 'redis://[::1]:7000' }],
  ['redis://user:pass@host', { username: 'user', password: 'pass', label: 'redis://host:6379' }],
  ['redis://:p%40ss%2Fword@host', { password: 'p@ss/word', label: 'redis://host:6379' }],
  ['redis://u:p@ss:word@host:1/2', { username: 'u', password: 'p@ss:word', addresses: [at('host', 1)], database: 2 }],
  ['redis://a:1,b:2?cluster=true', { addresses: [at('a', 1), at('b', 2)], isCluster: true }],
  ['redis://a:1,b:2?cluster=true', { label: 'redis://a:1,b:2?cluster=true' }],
  ['redis://a?cluster=false', { isCluster: false }],
])('%s is read', (url, expected) => {
  expect(parseRedisUrl(url)).toMatchObject(expected);
});

it('a URL without a user has neither user nor password', () => {
  expect(parseRedisUrl('redis://host')).not.toHaveProperty('password');
  expect(parseRedisUrl('redis://:pass@host')).not.toHaveProperty('username');
});

it.each<[string, RegExp]>([
  ['localhost:6379', /not scheme:\/\/address/],
  ['http://host', /the scheme must be redis, valkey, rediss, valkeys/],
  ['redis://', /an address must be host or host:port/],
  ['redis://host:', /an address must be/],
  ['redis://host:0', /a port must be from 1 to 65535/],
  ['redis://host:70000', /a port must be/],
  ['redis://a,b', /several addresses need \?cluster=true/],
  ['redis://a,?cluster=true', /an address must be/],
  ['redis://a,b/1?cluster=true', /a cluster has only database 0/],
  ['redis://host/one', /the path must be the number of a database/],
  ['redis://host?timeout=5', /its only parameter is cluster/],
  ['redis://host?cluster=yes', /cluster must be true or false/],
  ['redis://user@host', /the user needs a password/],
  ['redis://user:@host', /the password is empty/],
])('%s is refused, with the reason', (url, reason) => {
  expect(() => parseRedisUrl(url)).toThrow(expect.objectContaining({ code: 'KVASIR_REDIS_URL_INVALID' }));
  expect(() => parseRedisUrl(url)).toThrow(reason);
});

it.each([
  'redis://u:se/cret@host',
  'redis://u:se?cret@host',
  'redis://u:se#cret@host',
  'redis://u:se%cret@host',
  'u:secret@host',
])('the message about %s has no part of the password', (url) => {
  let message = 'no error';
  try {
    parseRedisUrl(url);
  } catch (error) {
    message = (error as Error).message;
  }
  expect(message).toContain('percent-encode');
  expect(message).not.toContain('cret');
});
