import { expect, it } from 'vitest';
import { blockCount, tokenCount } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import { ranksDiffer } from './errors.ts';
import { PipelineExecutor } from './executor-pipeline.ts';
import type { Rank } from './rank.ts';

const fingerprintOf = (...specs: Partial<KvCacheSpec>[]): string => {
  const group = { kind: 'full', blockSize: tokenCount(16), layers: [0] } as const;
  const base: KvCacheSpec = { groups: [group], blockBytes: 64, blockCount: blockCount(4), fingerprint: 'model' };
  const ranks = specs.map((spec) => ({ kvCacheSpec: { ...base, ...spec } }) as Rank);
  return new PipelineExecutor(ranks).kvCacheSpec.fingerprint;
};

it('keys of blocks depend on the numerics of all devices of a divided model, and on their order', () => {
  const all = [
    fingerprintOf({}, {}),
    fingerprintOf({ numerics: 'CPU' }, { numerics: 'GPU' }),
    fingerprintOf({ numerics: 'GPU' }, { numerics: 'CPU' }),
    fingerprintOf({ numerics: 'CPU' }, { numerics: 'another GPU' }),
    fingerprintOf({ numerics: 'another CPU' }, { numerics: 'GPU' }),
    fingerprintOf({ fingerprint: 'other', numerics: 'CPU' }, { fingerprint: 'other', numerics: 'GPU' }),
  ];
  expect(new Set(all).size).toBe(all.length);
  expect(all[0]).toBe('model');
});

it('ranks with different fingerprints are refused', () => {
  expect(() => fingerprintOf({}, { fingerprint: 'other' })).toThrow(ranksDiffer({}));
});
