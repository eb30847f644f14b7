import type { Registry } from 'prom-client';
import type { AsyncEngine, EngineStats } from '../../engine/contract.ts';
import type { KvEventCounters } from '../../engine/kv-events/contract.ts';
import { addCounter, addGauge, type Sample } from './collected.ts';

/** The engine's totals and levels, with vLLM's names where vLLM has them. */
export function addEngineMetrics(registry: Registry, engine: AsyncEngine): void {
  addLevels(registry, engine);
  addTotals(registry, () => engine.stats());
  addCacheConfig(registry, engine);
  addKvEvents(registry, engine);
  addKvAdministration(registry, engine);
}

/** Orders of administrators, and what they pinned and removed. */
function addKvAdministration(registry: Registry, { kv }: AsyncEngine): void {
  if (kv === undefined) return;
  addCounter(
    registry,
    {
      name: 'kvasir:kv_orders_total',
      help: 'Orders about cached KV.',
      read: () => labelled('order', kv.counters().orders),
    },
    ['order'],
  );
  addCounter(
    registry,
    {
      name: 'kvasir:kv_removed_blocks_total',
      help: 'Blocks that orders removed.',
      read: () => labelled('place', kv.counters().removedBlocks),
    },
    ['place'],
  );
  addGauge(registry, { name: 'kvasir:pinned_prefixes', help: 'Pinned prefixes.', read: () => kv.pins().pins.length });
  addGauge(registry, {
    name: 'kvasir:pinned_blocks',
    help: 'Blocks of pinned prefixes.',
    read: () => kv.pins().blocks,
  });
  addCounter(registry, {
    name: 'kvasir:pinned_evictions_total',
    help: 'Evictions of pinned blocks, because requests needed all other blocks.',
    read: () => kv.pins().evicted,
  });
}

function addLevels(registry: Registry, engine: AsyncEngine): void {
  const gauge = (name: string, help: string, of: (stats: EngineStats) => number): void =>
    addGauge(registry, { name, help, read: () => of(engine.stats()) });
  gauge('vllm:num_requests_running', 'Requests in steps.', ({ running }) => running);
  gauge('vllm:num_requests_waiting', 'Requests that wait for room, or for KV to load.', (stats) => waitingOf(stats));
  addGauge(
    registry,
    {
      name: 'vllm:num_requests_waiting_by_reason',
      help: 'Requests that wait: for room (capacity), or for KV to load (deferred).',
      read: () => {
        const { waiting, waitingForRemoteKv } = engine.stats();
        return labelled('reason', { capacity: waiting, deferred: waitingForRemoteKv });
      },
    },
    ['reason'],
  );
  gauge('vllm:kv_cache_usage_perc', 'Share of blocks in use, 0 to 1.', ({ blocks }) =>
    blocks.total === 0 ? 0 : blocks.referenced / blocks.total,
  );
  gauge('kvasir:cached_blocks', 'Free blocks that still have KV for the prefix cache.', ({ blocks }) => blocks.cached);
  gauge('kvasir:open_transfers', 'Transfers of KV that have not ended.', ({ transfers }) => transfers.open);
  addGauge(registry, {
    name: 'kvasir:healthy',
    help: '1 if the engine serves now.',
    read: () => (['ok', 'degraded'].includes(engine.health().status) ? 1 : 0),
  });
}

const waitingOf = ({ waiting, waitingForRemoteKv }: EngineStats): number => waiting + waitingForRemoteKv;
const localHits = ({ cachedTokens, externalTokens }: EngineStats): number => cachedTokens - externalTokens;
const hasConnector = ({ transfers }: EngineStats): boolean => Object.keys(transfers.counters).length > 0;

function addTotals(registry: Registry, stats: () => EngineStats): void {
  const counter = (name: string, help: string, of: (stats: EngineStats) => number): void =>
    addCounter(registry, { name, help, read: () => of(stats()) });
  counter('vllm:prompt_tokens_total', 'Prompt tokens.', ({ promptTokens }) => promptTokens);
  counter('vllm:prompt_tokens_cached_total', 'Prompt tokens that were not computed.', (now) => now.cachedTokens);
  counter('vllm:generation_tokens_total', 'Output tokens.', ({ generatedTokens }) => generatedTokens);
  counter('vllm:num_preemptions_total', 'Preemptions.', ({ preemptions }) => preemptions);
  counter('vllm:prefix_cache_queries_total', 'Tokens that were looked up in the pool.', (now) => now.promptTokens);
  counter('vllm:prefix_cache_hits_total', 'Tokens that were found in the pool.', localHits);
  counter('vllm:external_prefix_cache_queries_total', 'Tokens that were looked up by the connector.', (now) =>
    hasConnector(now) ? now.promptTokens - localHits(now) : 0,
  );
  counter('vllm:external_prefix_cache_hits_total', 'Tokens that the connector promised.', (now) => now.externalTokens);
  addCounter(
    registry,
    {
      name: 'vllm:prompt_tokens_by_source_total',
      help: 'Prompt tokens by where their KV came from at the first admission.',
      read: () => {
        const now = stats();
        return labelled('source', {
          local_compute: now.promptTokens - now.cachedTokens,
          local_cache_hit: localHits(now),
          external_kv_transfer: now.externalTokens,
        });
      },
    },
    ['source'],
  );
  counter('vllm:spec_decode_num_draft_tokens_total', 'Draft tokens that were verified.', (now) => now.draftedTokens);
  counter(
    'vllm:spec_decode_num_accepted_tokens_total',
    'Draft tokens that became output tokens.',
    ({ acceptedTokens }) => acceptedTokens,
  );
  counter('kvasir:steps_total', 'Steps.', ({ steps }) => steps);
  counter('kvasir:computed_tokens_total', 'Tokens that were computed.', ({ computedTokens }) => computedTokens);
  counter('kvasir:recomputed_tokens_total', 'Tokens that were computed again.', (now) => now.recomputedTokens);
  counter('kvasir:failed_load_blocks_total', 'Promised blocks whose load failed.', (now) => now.transfers.failedLoads);
  counter(
    'kvasir:recoveries_total',
    'How often a request planned again because KV was lost.',
    (now) => now.transfers.recoveries,
  );
  counter(
    'kvasir:failed_requests_total',
    'Requests that ended with an error because KV was lost (policy `fail`).',
    (now) => now.transfers.failedRequests,
  );
  counter('kvasir:lost_tokens_total', 'Tokens of the KV that was lost.', ({ transfers }) => transfers.affectedTokens);
  counter(
    'kvasir:flushed_saves_total',
    'Saves flushed before their blocks were overwritten.',
    (now) => now.transfers.flushedSaves,
  );
  addCounter(
    registry,
    {
      name: 'kvasir:load_failures_total',
      help: 'Loads that gave no KV, by reason.',
      read: () => labelled('reason', stats().transfers.connector.loadFailed ?? {}),
    },
    ['reason'],
  );
}

const labelled = (label: string, values: Readonly<Record<string, number>>): Sample[] =>
  Object.entries(values).map(([name, value]) => ({ labels: { [label]: name }, value }));

function addKvEvents(registry: Registry, { cache }: AsyncEngine): void {
  const counter = (name: string, help: string, of: (counters: KvEventCounters) => number): void =>
    addCounter(registry, {
      name,
      help,
      read: () => (cache?.kvEvents === undefined ? 0 : of(cache.kvEvents.counters())),
    });
  counter('kvasir:kv_event_batches_total', 'Batches of KV events.', ({ batches }) => batches);
  counter('kvasir:kv_event_batches_dropped_total', 'Batches of KV events that were not sent.', (now) => now.dropped);
  counter('kvasir:kv_event_replays_total', 'Replays of KV events that were asked for.', ({ replays }) => replays);
}

/** The size of the pool, by which routers judge how much a server can cache. */
function addCacheConfig(registry: Registry, { cache }: AsyncEngine): void {
  if (cache === undefined) return;
  const { blockCount, blockBytes, groups } = cache.shape;
  const labels = {
    block_size: String(groups[0]?.blockSize ?? 0),
    num_gpu_blocks: String(blockCount - 1),
    block_bytes: String(blockBytes),
    groups: groups.map(({ kind }) => kind).join(','),
  };
  addGauge(
    registry,
    {
      name: 'vllm:cache_config_info',
      help: 'The KV pool: tokens of a block, blocks, bytes of a block, and the kinds of its groups.',
      read: () => [{ labels, value: 1 }],
    },
    Object.keys(labels),
  );
}
