import { expect, it } from 'vitest';
import { codeOfError, refusalOf, textOfError } from './redis-refusals.ts';

it.each<[string, string | undefined, RegExp]>([
  ['NOAUTH Authentication required.', undefined, /: NOAUTH Authentication required\. Put the password into the URL/],
  ['self-signed certificate in certificate chain', 'SELF_SIGNED_CERT_IN_CHAIN', /NODE_EXTRA_CA_CERTS/],
  ['certificate has expired', 'CERT_HAS_EXPIRED', /NODE_EXTRA_CA_CERTS/],
  [
    "Hostname/IP does not match certificate's altnames",
    'ERR_TLS_CERT_ALTNAME_INVALID',
    /a host that the certificate has/,
  ],
  ['wrong version number', 'ERR_SSL_WRONG_VERSION_NUMBER', /does not answer with TLS: correct the port, or use redis/],
  ["ERR unknown command 'getex'", undefined, /needs Redis 6\.2, Valkey 7\.2/],
  ['MOVED 3999 127.0.0.1:6381', undefined, /add \?cluster=true to the URL/],
])('%s is refused with a remedy', (reason, code, message) => {
  const refusal = refusalOf('redis://host:6379', reason, code);
  expect(refusal).toMatchObject({ code: 'KVASIR_REDIS_REFUSED', message: expect.stringMatching(message) });
});

it.each<[string, string | undefined]>([
  ['connect ECONNREFUSED 127.0.0.1:6379', 'ECONNREFUSED'],
  ['getaddrinfo ENOTFOUND cache', 'ENOTFOUND'],
  ['read ECONNRESET', 'ECONNRESET'],
  ['Command timed out', undefined],
  ['LOADING Redis is loading the dataset in memory', undefined],
  ["READONLY You can't write against a read only replica.", undefined],
  ['MASTERDOWN Link with MASTER is down', undefined],
  ['CLUSTERDOWN The cluster is down', undefined],
])('%s is no refusal, because time may end it', (reason, code) => {
  expect(refusalOf('redis://host:6379', reason, code)).toBeUndefined();
});

it('the text of an error has no password', () => {
  expect(textOfError(new Error("unknown command 'auth', with args 'pa$$word' 'pa$$word'"), 'pa$$word')).toBe(
    "unknown command 'auth', with args '***' '***'",
  );
});

it('the text and the code come from the error that is the cause', () => {
  const refused = Object.assign(new Error('connect ECONNREFUSED ::1:6379'), { code: 'ECONNREFUSED' });
  const several = Object.assign(new AggregateError([refused], ''), { code: 'ECONNREFUSED' });
  expect(textOfError(several, undefined)).toBe('connect ECONNREFUSED ::1:6379');
  expect(codeOfError(several)).toBe('ECONNREFUSED');
  const ofCluster = Object.assign(new Error('Failed to refresh slots cache.'), { lastNodeError: refused });
  expect(textOfError(ofCluster, undefined)).toBe('connect ECONNREFUSED ::1:6379');
  expect(codeOfError(ofCluster)).toBe('ECONNREFUSED');
  expect(textOfError(Object.assign(new Error(''), { code: 'EPIPE' }), undefined)).toBe('EPIPE');
  expect(textOfError('a text', undefined)).toBe('a text');
});
