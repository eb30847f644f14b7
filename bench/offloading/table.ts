import { formatTable } from '../../src/base/table.ts';
import { cell } from '../bench-flags.ts';
import type { MedianInterval } from '../statistics.ts';
import type { ConversationsRow } from './conversations.ts';
import type { TierFirstTokenRow } from './first-token.ts';
import type { PairedCost } from './paired-slices.ts';
import type { RaceRow } from './race.ts';
import type { RetentionRow } from './retention.ts';
import type { TierThroughputRow } from './throughput.ts';

export type OffloadingRow = TierFirstTokenRow | RaceRow | TierThroughputRow | ConversationsRow | RetentionRow;

type Line = readonly (string | number)[];

export const offloadingTable = (rows: readonly OffloadingRow[]): string =>
  formatTable(['', 'with tiers', 'compared with', 'ratio', 'budget'], rows.flatMap(linesOf));

function linesOf(row: OffloadingRow): Line[] {
  switch (row.kind) {
    case 'firstToken': {
      const { tier, prefixLength, loadMs, recomputeMs, speedup } = row;
      const what = `first token after ${prefixLength} from ${tier}, ms`;
      return [[what, loadMs, `recomputed ${recomputeMs}`, speedup, '>= 10']];
    }
    case 'race': {
      const { prefixLength, computeMs, loadMs, raceMs, speedup } = row;
      const what = `first token after ${prefixLength}, tier as fast as computing, ms`;
      return [[what, raceMs, `computed ${computeMs}, loaded ${loadMs}`, speedup, '<= 2']];
    }
    case 'conversations': {
      const { tiers, none, largePool, ratio } = row.throughput;
      const others = `no tiers ${cell(none)}, pool for all KV ${cell(largePool)}`;
      return [[`${row.what}, tok/s`, cell(tiers), others, cell(ratio), '>= 3']];
    }
    case 'retention': {
      const { workload, interval, storedBlocks, computedTokens } = row;
      const what = `${workload}, retention interval ${interval ?? 'none'}`;
      return [[`${what}: blocks stored`, storedBlocks, `prompt tokens computed ${computedTokens}`, '', '']];
    }
    default:
      return costLines(row);
  }
}

function costLines({ what, throughput, cost, control }: TierThroughputRow): Line[] {
  const { throughputRatio, cpuRatio, cpuMsPerToken, engineThreadMsPerToken, afterwardsMsPerToken } = cost;
  const thread = engineThreadMsPerToken ?? [undefined, undefined];
  return [
    [`${what}, tok/s`, cell(throughput.tiers), noTiers(throughput.none), textOf(throughputRatio), '>= 0.97'],
    ['  CPU ms per token', cpuMsPerToken[0], noTiers(cpuMsPerToken[1]), textOf(cpuRatio), ''],
    ["  of it the engine's thread", cell(thread[0]), noTiers(thread[1]), '', ''],
    ['  and writes after the runs', afterwardsMsPerToken, '', '', ''],
    ...(control === undefined ? [] : controlLines(control)),
  ];
}

const controlLines = ({ throughputRatio, cpuRatio, cpuMsPerToken }: PairedCost): Line[] => [
  ['  two engines without tiers, tok/s', '', '', textOf(throughputRatio), ''],
  ['  their CPU ms per token', cpuMsPerToken[0], noTiers(cpuMsPerToken[1]), textOf(cpuRatio), ''],
];

const noTiers = (value: number | undefined): string => `no tiers ${cell(value)}`;

const textOf = ({ median, low, high }: MedianInterval): string => `${median} (${low} to ${high})`;
