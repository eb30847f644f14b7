/** Answers of S3 servers that the real server of the tests does not give. */
import { setMaxListeners } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FakeS3, s3Error } from '../../../../test/support/fake-s3.ts';
import { ManualTime } from '../../../../test/support/manual-time.ts';
import { systemTimers } from '../../system-timers.ts';
import { suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey, tierSuite } from '../tier.suite.ts';
import { S3Bucket } from './s3-bucket.ts';
import { S3Tier, type S3TierOptions } from './tier-s3.ts';

const credentials = { accessKeyId: 'id', secretAccessKey: 'a-secret-of-the-test' };
const never = new AbortController().signal;
setMaxListeners(0, never);
let server: FakeS3;
let events: string[];
beforeEach(async () => {
  server = await FakeS3.start();
  events = [];
});
afterEach(() => server.stop());

const open = (options: Partial<S3TierOptions> = {}): Promise<S3Tier> =>
  S3Tier.open({
    bucket: 'blocks',
    endpoint: server.endpoint,
    credentials,
    identity: suiteIdentity,
    event: (message) => events.push(message),
    ...options,
  });
const keys = Array.from({ length: 6 }, (_, i) => suiteKey(i));
const putAll = (tier: S3Tier) => Promise.all(keys.map((key) => tier.store(key, suiteBytes(key), never)));
const load = (tier: S3Tier, i: number, into = new Uint8Array(suiteBlockBytes)) => tier.load(keys[i]!, into, never);
const listing = (items: string, token?: string) => ({
  status: 200,
  headers: { 'content-type': 'application/xml' },
  body: `<ListBucketResult><IsTruncated>${token !== undefined}</IsTruncated>${items}<NextContinuationToken>${token ?? ''}</NextContinuationToken></ListBucketResult>`,
});
const failed = (text: string) => ({ code: 'KVASIR_TIER_FAILED', message: expect.stringContaining(text) });

tierSuite('S3Tier on a bucket in memory', async (maxBytes) => ({
  tier: await open({ maxBytes }),
  reopen: (identity) => open({ identity }),
}));

describe('requests', () => {
  it('are signed with an unsigned payload, and have no checksums and no secrets', async () => {
    const tier = await open();
    await putAll(tier);
    await load(tier, 0);
    await tier.close();
    for (const { headers } of server.requests) {
      expect(headers['x-amz-content-sha256']).toBe('UNSIGNED-PAYLOAD');
      expect(headers.authorization).toContain('Credential=id/');
      expect(JSON.stringify(headers)).not.toContain(credentials.secretAccessKey);
      expect(Object.keys(headers).filter((name) => /checksum|content-md5|expect|trailer/.test(name))).toEqual([]);
    }
  });

  it('use the path style with an endpoint, unless told otherwise', async () => {
    await (await open()).close();
    expect(server.requests[0]!.url.pathname).toBe('/blocks/');
  });

  it('that the server refuses because the clocks differ are sent again with its time', async () => {
    let isFirst = true;
    server.answer = () => {
      if (!isFirst) return undefined;
      isFirst = false;
      return s3Error(403, 'RequestTimeTooSkewed');
    };
    const tier = await open();
    expect(events).toEqual([]);
    await tier.close();
  });
});

describe('a server that refuses', () => {
  it.each([
    [403, 'AccessDenied', 's3:ListBucket'],
    [403, 'InvalidAccessKeyId', 'AWS_ACCESS_KEY_ID'],
    [400, 'ExpiredToken', 'AWS_ACCESS_KEY_ID'],
    [404, 'NoSuchBucket', 'Create the bucket'],
    [301, 'PermanentRedirect', 'Name the region'],
    [400, 'AuthorizationHeaderMalformed', 'Name the region'],
    [400, 'SomethingElse', 'Check the bucket'],
  ])('at the start with %i %s is an error that says what to do', async (status, code, remedy) => {
    server.answer = () => s3Error(status, code);
    const error = { code: 'KVASIR_BUCKET_UNUSABLE', message: expect.stringMatching(new RegExp(`${code}.*${remedy}`)) };
    await expect(open()).rejects.toMatchObject(error);
  });

  it.each([
    [500, 'InternalError'],
    [503, 'SlowDown'],
    [429, 'TooManyRequests'],
  ])('only for now, with %i %s at the start, is an event', async (status, code) => {
    server.answer = () => s3Error(status, code);
    const tier = await open({ openTimeoutMs: 600_000 });
    expect(events.join()).toContain(code);
    server.answer = undefined;
    expect(await tier.has([keys[0]!], never)).toEqual([false]);
    await tier.close();
  });

  it('writes only: stores fail, one event says so, and loads work', async () => {
    const first = await open();
    await putAll(first);
    await first.close();
    server.answer = (method) => (method === 'PUT' ? s3Error(403, 'AccessDenied') : undefined);
    const tier = await open();
    for (const name of ['a', 'b', 'c']) {
      await expect(tier.store(suiteKey(name), suiteBytes(suiteKey(name)), never)).rejects.toMatchObject(
        failed('AccessDenied (HTTP 403)'),
      );
    }
    expect(events).toHaveLength(1);
    expect(events[0]).toContain('Check the permissions');
    expect(await load(tier, 3)).toBeUndefined();
    await tier.close();
  });

  it('because it is full answers `full`', async () => {
    const tier = await open();
    server.answer = (method) => (method === 'PUT' ? s3Error(507, 'InsufficientStorage') : undefined);
    expect(new Set(await putAll(tier))).toEqual(new Set(['full']));
    await tier.close();
  });
});

describe('answers to a load', () => {
  const answerGet = (answer: () => ReturnType<typeof s3Error>): void => {
    server.answer = (method, url) => (method === 'GET' && url.pathname.includes('kv-') ? answer() : undefined);
  };

  it('with the whole object instead of the range are used for the first blocks, and are errors for the others', async () => {
    const tier = await open();
    await putAll(tier);
    const [[, object]] = [...server.objects].filter(([name]) => !name.endsWith('.json')) as [[string, Uint8Array]];
    answerGet(() => ({ status: 200, body: object }));
    const into = new Uint8Array(suiteBlockBytes);
    expect(await load(tier, 0, into)).toBeUndefined();
    expect(into).toEqual(suiteBytes(keys[0]!));
    await expect(load(tier, 1)).rejects.toMatchObject(failed('ignores the Range header'));
    server.answer = undefined;
    expect(await load(tier, 1)).toBeUndefined();
    await tier.close();
  });

  it('that do not say how long the object is are errors, and the object is kept', async () => {
    const tier = await open();
    await putAll(tier);
    server.stream = ({ method, url }, response) => {
      if (method !== 'GET' || !url!.includes('x-id=GetObject')) return false;
      response.writeHead(200);
      response.write('x');
      response.end();
      return true;
    };
    await expect(load(tier, 0)).rejects.toMatchObject(failed('how long the object is'));
    server.stream = undefined;
    expect(await load(tier, 0)).toBeUndefined();
    await tier.close();
  });

  it('with another range are errors', async () => {
    const tier = await open();
    await putAll(tier);
    answerGet(() => ({ status: 206, headers: { 'content-range': 'bytes 5-9/100' }, body: 'abcde' }));
    await expect(load(tier, 1)).rejects.toMatchObject(failed('another range'));
    await tier.close();
  });

  it.each<[string, ReturnType<typeof s3Error>]>([
    ['an error page', { status: 502, headers: { 'content-type': 'text/html' }, body: '<html>Bad Gateway</html>' }],
    ['an empty error', { status: 500 }],
    ['an error of the server', s3Error(500, 'InternalError')],
  ])('that are %s fail the load, and the block is found again', async (_, answer) => {
    const tier = await open();
    await putAll(tier);
    answerGet(() => answer);
    await expect(load(tier, 1)).rejects.toMatchObject(failed('load a block'));
    server.answer = undefined;
    expect(await tier.has(keys, never)).toEqual(keys.map(() => true));
    expect(await load(tier, 1)).toBeUndefined();
    await tier.close();
  });
});

describe('a listing', () => {
  it('that has the same page again and again ends', async () => {
    server.answer = (method) =>
      method === 'GET'
        ? {
            status: 200,
            headers: { 'content-type': 'application/xml' },
            body: '<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></ListBucketResult>',
          }
        : undefined;
    const tier = await open({ openTimeoutMs: 600_000 });
    expect(events.join()).toContain('the same page again');
    await expect(tier.has([keys[0]!], never)).rejects.toMatchObject(failed('the same page again'));
    await tier.close();
  });

  it.each([
    ['not XML', 'hello'],
    ['a web page', '<html><body>Log in</body></html>'],
    ['empty', ''],
  ])('that is %s is an error, and removes no known blocks', async (_, body) => {
    const time = new ManualTime();
    const tier = await open({ clock: time, refreshMs: 0 });
    await putAll(tier);
    server.answer = () => ({ status: 200, body });
    time.advance(1e6);
    await expect(tier.has([suiteKey('unknown')], never)).rejects.toMatchObject(failed('look up blocks'));
    expect(await tier.has([...keys, suiteKey('unknown')], never)).toEqual([...keys.map(() => true), undefined]);
    await tier.close();
  });

  it.each(['-5', '1.5', '99999999999999999999', 'many'])(
    'with an object of %s bytes leaves that object out',
    async (size) => {
      const first = await open();
      await putAll(first);
      await first.close();
      const items = [...server.objects].map(([name]) => `<Contents><Key>${name}</Key><Size>${size}</Size></Contents>`);
      server.answer = (_, url) => (url.searchParams.has('list-type') ? listing(items.join('')) : undefined);
      const tier = await open();
      const answers = await tier.has(keys, never).catch((error: unknown) => [String(error)]);
      expect(answers).not.toContain(true);
      tier.checkInvariants();
      expect(tier.levels()).toMatchObject({ bytes: 0, blocks: 0, objects: 0 });
      await tier.close();
    },
  );

  it('whose pages have other tokens, and the same names again, ends', async () => {
    const first = await open();
    await putAll(first);
    await first.close();
    const items = [...server.objects].map(([name]) => `<Contents><Key>${name}</Key><Size>5</Size></Contents>`).join('');
    let page = 0;
    server.answer = (_, url) => (url.searchParams.has('list-type') ? listing(items, `token ${page++}`) : undefined);
    const tier = await open({ openTimeoutMs: 600_000 });
    expect(events.join()).toContain('the server lists the same names again');
    await expect(tier.has([suiteKey('other')], never)).rejects.toMatchObject(failed('the same names again'));
    await tier.close();
  });

  it('whose pages have other tokens, and no names, ends', async () => {
    let page = 0;
    server.answer = (_, url) => (url.searchParams.has('list-type') ? listing('', `token ${page++}`) : undefined);
    const tier = await open({ openTimeoutMs: 600_000 });
    expect(events.join()).toContain('pages without names of blocks');
    await tier.close();
  });
});

describe('an answer without end', () => {
  /** Bytes that the server wrote. It stops when the connection is closed. */
  const endless = (method: string, status: number) => {
    const written = { bytes: 0, closed: 0 };
    const isOther = (request: IncomingMessage): boolean =>
      request.method !== method || (method === 'GET' && status < 300 && !request.url!.includes('list-type'));
    server.stream = (request, response) => {
      if (isOther(request)) return false;
      response.writeHead(status, { 'content-type': 'application/xml' });
      response.on('close', () => written.closed++);
      const chunk = Buffer.alloc(1 << 16, 'x');
      const more = (): void => {
        while (!response.destroyed && response.write(chunk)) written.bytes += chunk.length;
        response.once('drain', more);
      };
      more();
      return true;
    };
    return written;
  };

  it.each<[string, string, number, (tier: S3Tier) => Promise<unknown>]>([
    ['a listing', 'GET', 200, (tier) => tier.has([suiteKey('other')], never)],
    ['an error of a listing or a load', 'GET', 500, (tier) => load(tier, 0)],
    ['an error of a store', 'PUT', 500, (tier) => tier.store(suiteKey('other'), suiteBytes(suiteKey('other')), never)],
    ['a successful store', 'PUT', 200, (tier) => tier.store(suiteKey('other'), suiteBytes(suiteKey('other')), never)],
  ])('to %s is not kept in memory', async (_, method, status, call) => {
    const tier = await open({ refreshMs: 0, requestTimeoutMs: 600_000 });
    await putAll(tier);
    const written = endless(method, status);
    await expect(call(tier)).rejects.toMatchObject(failed('more than'));
    await expect.poll(() => written.closed).toBe(1);
    server.stream = undefined;
    await tier.close();
  });
});

describe('without settings', () => {
  afterEach(() => {
    vi.unstubAllEnvs();
  });
  const withoutAws = (): void => {
    for (const name of Object.keys(process.env)) if (name.startsWith('AWS_')) vi.stubEnv(name, undefined);
    vi.stubEnv('AWS_CONFIG_FILE', '/nonexistent');
    vi.stubEnv('AWS_SHARED_CREDENTIALS_FILE', '/nonexistent');
    vi.stubEnv('AWS_EC2_METADATA_DISABLED', 'true');
  };

  it('credentials come from the environment', async () => {
    withoutAws();
    vi.stubEnv('AWS_ACCESS_KEY_ID', 'id-of-environment');
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'secret');
    const { endpoint } = server;
    const tier = await S3Tier.open({ bucket: 'blocks', endpoint, identity: suiteIdentity });
    expect(server.requests[0]!.headers.authorization).toContain('Credential=id-of-environment/');
    await tier.close();
  });

  it('missing credentials are an error that says what to do', async () => {
    withoutAws();
    const { endpoint } = server;
    await expect(S3Tier.open({ bucket: 'blocks', endpoint, identity: suiteIdentity })).rejects.toMatchObject({
      code: 'KVASIR_BUCKET_UNUSABLE',
      message: expect.stringContaining('Set AWS_ACCESS_KEY_ID'),
    });
  });

  it('a missing region is an error that says what to do', async () => {
    withoutAws();
    await expect(S3Tier.open({ bucket: 'blocks', credentials, identity: suiteIdentity })).rejects.toMatchObject({
      code: 'KVASIR_BUCKET_UNUSABLE',
      message: expect.stringContaining('Name the region'),
    });
  });

  it('a missing client package is an error with the command that installs it', async () => {
    const opening = S3Bucket.open({
      bucket: 'blocks',
      requestTimeoutMs: 1,
      socketsMax: 1,
      timers: systemTimers,
      wallNowMs: Date.now,
      importSdk: () =>
        Promise.reject(Object.assign(new Error('Cannot find package'), { code: 'ERR_MODULE_NOT_FOUND' })),
    });
    await expect(opening).rejects.toMatchObject({
      code: 'KVASIR_S3_CLIENT_MISSING',
      message: expect.stringMatching(/npm install @aws-sdk\/client-s3@\d+\.\d+\.\d+$/),
    });
  });
});
