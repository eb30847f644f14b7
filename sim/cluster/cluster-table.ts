import { Cluster } from './cluster.ts';
import { type TableSettings, tableOptions } from './table-options.ts';

export interface ClusterRow {
  readonly replicas: number;
  /** 0: the replicas share no tier. */
  readonly tierGigabits: number;
  /** Shares of the prompts' tokens: found in the pool, loaded from the tier, and known to some replica before. */
  readonly poolHits: number;
  readonly tierHits: number;
  readonly known: number;
  readonly firstTokenP50Ms: number;
  readonly firstTokenP99Ms: number;
  readonly requests: number;
  readonly simulatedSeconds: number;
  readonly restarts: number;
  readonly retries: number;
}

/** Simulates one cluster of the table. */
export async function clusterRow(
  seed: number,
  { replicas, tierGigabits }: Pick<ClusterRow, 'replicas' | 'tierGigabits'>,
  settings: TableSettings,
  signal?: AbortSignal,
): Promise<ClusterRow> {
  const report = await new Cluster(seed, tableOptions(replicas, tierGigabits, settings)).run(signal);
  const { promptTokens, poolTokens, tierTokens, knownTokens, firstTokenMs, faults } = report;
  const share = (tokens: number): number => Number((tokens / promptTokens).toFixed(3));
  return {
    replicas,
    tierGigabits,
    poolHits: share(poolTokens),
    tierHits: share(tierTokens),
    known: share(knownTokens),
    firstTokenP50Ms: quantile(firstTokenMs, 0.5),
    firstTokenP99Ms: quantile(firstTokenMs, 0.99),
    requests: report.finished,
    simulatedSeconds: Math.round(report.simulatedSeconds),
    restarts: faults.crashes + faults.drains,
    retries: report.retries,
  };
}

/** The smallest value that at least this share of the values does not exceed. */
function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return Math.round(sorted[Math.max(Math.ceil(share * sorted.length) - 1, 0)] ?? Number.NaN);
}
