import type { Registry } from 'prom-client';
import type { ConnectorStats, TierTotals } from '../../connector/connector-stats.ts';
import { type TierReport, tierReports } from '../../connector/offloading/tier-report.ts';
import type { SaltLevels } from '../../connector/tier/salt-bytes.ts';
import { latencyBoundsMs } from '../../connector/tier/tier-meter.ts';
import { addCounter, addGauge, type Collected, type Sample } from './collected.ts';

/** Traffic, size and breakers of every tier of an OffloadingConnector. */
export function addTierMetrics(registry: Registry, stats: () => ConnectorStats): void {
  const perTier = (of: (tier: TierReport) => number | undefined): Collected['read'] => {
    return () =>
      tierReports(stats()).flatMap((tier) => {
        const value = of(tier);
        return value === undefined ? [] : [{ labels: { tier: tier.name }, value }];
      });
  };
  const counter = (name: string, help: string, of: (tier: TierReport) => number): void =>
    addCounter(registry, { name, help, read: perTier(of) }, ['tier']);
  const gauge = (name: string, help: string, of: (tier: TierReport) => number | undefined): void =>
    addGauge(registry, { name, help, read: perTier(of) }, ['tier']);
  counter('kvasir:tier_loaded_blocks_total', 'Blocks that came from a tier.', ({ loads }) => loads.blocks);
  counter('kvasir:tier_loaded_bytes_total', 'Bytes that came from a tier.', ({ loads }) => loads.bytes);
  counter('kvasir:tier_stored_blocks_total', 'Blocks that a tier has written.', ({ stores }) => stores.blocks);
  counter('kvasir:tier_stored_bytes_total', 'Bytes that a tier has written.', ({ stores }) => stores.bytes);
  counter('kvasir:tier_dropped_blocks_total', 'Blocks not written, because too many waited.', ({ dropped }) => dropped);
  counter('kvasir:tier_evicted_blocks_total', 'Blocks that a tier has removed for others.', ({ evicted }) => evicted);
  gauge('kvasir:tier_blocks', 'Blocks in a tier.', ({ storedBlocks }) => storedBlocks);
  gauge('kvasir:tier_bytes', 'Bytes in a tier.', ({ storedBytes }) => storedBytes);
  const bySalt = (of: (salt: SaltLevels) => number): Collected['read'] => {
    return () =>
      tierReports(stats()).flatMap(({ name: tier, salts = {} }) =>
        Object.entries(salts).map(([salt, levels]) => ({ labels: { tier, salt }, value: of(levels) })),
      );
  };
  const saltGauge = (name: string, help: string, of: (salt: SaltLevels) => number): void =>
    addGauge(registry, { name, help, read: bySalt(of) }, ['tier', 'salt']);
  saltGauge('kvasir:tier_salt_blocks', 'Blocks of a cache salt in a tier.', ({ blocks }) => blocks);
  saltGauge('kvasir:tier_salt_bytes', 'Bytes of a cache salt in a tier.', ({ bytes }) => bytes);
  gauge('kvasir:tier_max_bytes', 'The bound of a tier.', ({ maxBytes }) => maxBytes);
  gauge(
    'kvasir:tier_pinned_blocks',
    'Blocks of pinned prefixes, which a tier does not evict.',
    (tier) => tier.pinnedBlocks,
  );
  gauge('kvasir:tier_open_stores', 'Writes that have not ended.', ({ openStores }) => openStores);
  addGauge(
    registry,
    {
      name: 'kvasir:tier_breaker_open',
      help: '1 if a circuit breaker refuses calls to the tier.',
      read: () =>
        tierReports(stats()).flatMap(({ name, openBreakers }) =>
          ['lookup', 'load', 'store'].map((call) => ({
            labels: { tier: name, call },
            value: openBreakers.includes(call) ? 1 : 0,
          })),
        ),
    },
    ['tier', 'call'],
  );
  addCounter(
    registry,
    {
      name: 'kvasir:tier_failures_total',
      help: 'Calls of a tier that moved no block, by reason.',
      read: () => tierReports(stats()).flatMap(failuresOf),
    },
    ['tier', 'call', 'reason'],
  );
  registry.registerMetric(new TierLatency(stats) as never);
}

const failuresOf = ({ name, loads, stores }: TierReport): Sample[] =>
  [
    { call: 'load', failures: loads.failures },
    { call: 'store', failures: stores.failures },
  ].flatMap(({ call, failures }) =>
    Object.entries(failures).map(([reason, value]) => ({ labels: { tier: name, call, reason }, value })),
  );

interface HistogramValue {
  readonly metricName: string;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
}

/** The tiers count latencies in buckets themselves, so the histogram only shows these. */
class TierLatency {
  readonly name = 'kvasir:tier_latency_seconds';
  readonly #stats: () => ConnectorStats;

  constructor(stats: () => ConnectorStats) {
    this.#stats = stats;
  }

  async get() {
    const { tiers = {} } = this.#stats();
    const values = Object.entries(tiers).flatMap(([tier, totals]) => [
      ...this.#valuesOf({ tier, call: 'load' }, totals.loadLatency, totals.loadMs),
      ...this.#valuesOf({ tier, call: 'store' }, totals.storeLatency, totals.storeMs),
    ]);
    const help = 'Time of a call of a tier for one block.';
    return { name: this.name, help, type: 'histogram', aggregator: 'sum', values };
  }

  reset(): void {}

  #valuesOf(
    labels: Readonly<Record<string, string>>,
    latency: TierTotals['loadLatency'] = {},
    ms = 0,
  ): HistogramValue[] {
    const values: HistogramValue[] = [];
    let below = 0;
    const bounds = [...latencyBoundsMs.map((ms) => ms / 1e3), '+Inf'];
    for (const [i, le] of bounds.entries()) {
      below += latency[i] ?? 0;
      values.push({ metricName: `${this.name}_bucket`, labels: { ...labels, le }, value: below });
    }
    values.push({ metricName: `${this.name}_sum`, labels, value: ms / 1e3 });
    values.push({ metricName: `${this.name}_count`, labels, value: below });
    return values;
  }
}
