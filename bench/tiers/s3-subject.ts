import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { openTier } from '../../src/connector/offloading/open-tier.ts';
import type { S3Spec } from '../../src/connector/offloading/tier-spec.ts';
import { systemTimers } from '../../src/connector/system-timers.ts';
import { type ByteSink, S3Bucket } from '../../src/connector/tier/s3/s3-bucket.ts';
import { CheckedTier } from './checked-tier.ts';
import { type SubjectOptions, type TierSubject, tierOptions } from './tier-subject.ts';

/** What the tier has in flight at most. */
const callsAtOnce = { store: 16, load: 8 } as const;
const requestTimeoutMs = 30_000;
const never = new AbortController().signal;
setMaxListeners(0, never);
const discard: ByteSink = { begin: () => undefined, write: () => undefined };

/** The limit: the same client, one object per block, whose bytes are dropped as they arrive. */
export async function s3Subject(spec: S3Spec, subject: SubjectOptions): Promise<TierSubject> {
  const folder = `${spec.prefix === undefined ? '' : `${spec.prefix}/`}kvasir-bench-${randomUUID()}`;
  const { name, options } = tierOptions('s3', subject);
  const tier = new CheckedTier(await openTier({ name: 's3', spec: { ...spec, prefix: `${folder}/tier` } }, options));
  const { kind: _, maxBytes: __, prefix: ___, ...location } = spec;
  const bucket = await S3Bucket.open({
    ...location,
    requestTimeoutMs,
    socketsMax: callsAtOnce.store,
    timers: systemTimers,
    wallNowMs: Date.now,
  });
  const names = new Set<string>();
  const nameOf = (index: number): string => `${folder}/limit/${index}`;
  return {
    name,
    limit: { store: 'PUT', load: 'GET' },
    callsAtOnce,
    store: (key, bytes) => tier.store(key, bytes),
    load: (key, into) => tier.load(key, into),
    delete: (keys) => tier.delete(keys),
    storeLimit: (index, bytes) => {
      names.add(nameOf(index));
      return bucket.put(nameOf(index), bytes, never);
    },
    loadLimit: (index) => bucket.get(nameOf(index), undefined, discard, never),
    clearLimit: async () => {
      for (const name of names) await bucket.delete(name, never);
      names.clear();
    },
    close: async () => {
      bucket.close();
      await tier.close();
    },
  };
}
