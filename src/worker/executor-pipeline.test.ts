import { expect, it } from 'vitest';
import { emptyMetadata, emptyOutput, type TransferId } from '../connector/connector.ts';
import { blockCount, tokenCount } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { ScheduledStep } from '../scheduler/contract.ts';
import { ranksDiffer } from './errors.ts';
import { PipelineExecutor } from './executor-pipeline.ts';
import type { Rank, RankOutput } from './rank.ts';

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

function resolvable() {
  let resolve: (output: RankOutput) => void = () => undefined;
  const promise = new Promise<RankOutput>((settle) => {
    resolve = settle;
  });
  return { promise, resolve: (output: RankOutput) => resolve(output) };
}

it('async_aggregate_workers_output: a step ends when all ranks have answered, in any order, and has the report of each', async () => {
  for (const order of [
    [0, 1],
    [1, 0],
  ]) {
    const answers = [0, 1].map(() => resolvable());
    const group = { kind: 'full', blockSize: tokenCount(16), layers: [0] } as const;
    const kvCacheSpec = { groups: [group], blockBytes: 64, blockCount: blockCount(4), fingerprint: 'model' };
    const ranks = answers.map(({ promise }) => ({ kvCacheSpec, execute: () => promise }) as unknown as Rank);
    const plan = { stepId: 1, sequences: [], connectorMetadata: emptyMetadata } as unknown as ScheduledStep;
    let isOver = false;
    const running = new PipelineExecutor(ranks).execute(plan).finally(() => {
      isOver = true;
    });
    for (const rank of order) {
      expect(isOver).toBe(false);
      const connectorOutput = { ...emptyOutput, finishedSending: [rank as TransferId] };
      answers[rank]!.resolve({ result: { stepId: plan.stepId, sampled: [] }, leftOut: [], connectorOutput });
      await new Promise(setImmediate);
    }
    expect((await running).connectorOutputs).toMatchObject([{ finishedSending: [0] }, { finishedSending: [1] }]);
  }
});

it('ranks with different fingerprints are refused', () => {
  expect(() => fingerprintOf({}, { fingerprint: 'other' })).toThrow(ranksDiffer({}));
});
