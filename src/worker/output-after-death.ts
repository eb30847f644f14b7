import type { BlockId } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { ScheduledStep } from '../scheduler/contract.ts';
import type { RankOutput } from './rank.ts';

/** The output of a rank whose process has died: it has computed nothing, all its blocks are invalid, and its transfers have ended. */
export function outputAfterDeath(
  { stepId, sequences, connectorMetadata }: ScheduledStep,
  { blockCount }: KvCacheSpec,
): RankOutput {
  return {
    result: { stepId, sampled: sequences.map(() => undefined) },
    leftOut: sequences.map((_, index) => index),
    invalidBlocks: Array.from({ length: blockCount - 1 }, (_, i) => (i + 1) as BlockId),
    ...(connectorMetadata === undefined ? {} : { connectorOutput: 'workerDied' }),
  };
}
