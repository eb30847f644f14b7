import { byName } from '../../base/by-name.ts';
import { formatBytes } from '../../base/bytes.ts';
import { describeValue } from '../../base/describe-value.ts';
import type { FieldReader } from '../../base/field-reader.ts';
import { memoryLimit } from '../../base/memory-limit.ts';
import { configReader } from '../config-reader.ts';
import type { KvTransferConfig } from '../connector.ts';
import { tiersInvalid } from '../errors.ts';
import type { PlaceSettings } from '../places/place-scheduler.ts';
import { remotePrefillTimeoutMs } from '../places/remote-prefill.ts';
import { evictionPolicyNames } from '../tier/host/eviction-policies.ts';
import {
  type DiskSpec,
  diskDefaults,
  type HostSpec,
  type OwnSpec,
  parseTierSpec,
  type S3Spec,
  type SecondarySpec,
  type TierSpec,
  tierNames,
} from './tier-spec.ts';

/** What `OffloadingConnector` does, from `kv_connector_extra_config`. */
export interface OffloadingSettings extends PlaceSettings {
  readonly host: HostSpec;
  /** In the order of the look-ups and loads. */
  readonly secondaries: readonly NamedSpec[];
  /** Of one block in one tier. */
  readonly loadTimeoutMs: number;
  readonly storeTimeoutMs: number;
  readonly loadsAtOnce: number;
  /** Bytes in the host tier that wait to be written to one secondary tier; further blocks are not written there. */
  readonly writeQueueBytes: number;
  /** The part of the time for writes to secondary tiers while the model computes and no CPU is idle. */
  readonly busyWriteShare: number;
  /** Whether tiers report the blocks of each cache salt. */
  readonly metricsBySalt: boolean;
  /** How long blocks of a prefill are kept in host memory until they are written. */
  readonly leaseMs: number;
}

export interface NamedSpec {
  readonly name: string;
  readonly spec: SecondarySpec;
}

const MIB = 1024 ** 2;
/** Without a host tier, secondary tiers are written from a buffer of this size. */
const hostBufferBytes = 256 * MIB;
/** A short `load_timeout_seconds` gives up a slow tier, not the blocks that other tiers still load. */
const wholeLoadMinMs = 2000;

/** Settings of vLLM that have no meaning here or are not supported, and why. */
const unsupported: Readonly<Record<string, string>> = byName({
  spec_module_path: 'a connector of your own is named by kv_connector_module_path',
  cache_policy_module_path: 'the eviction policies are lru and arc',
  self_describing_kv_events: 'KV events of tiers always have tokens and parents',
  canonical_layout: 'the layout of stored blocks is fixed',
  tier_poll_interval_s: 'tiers report by themselves and are not polled',
  backpressure: 'stores that would wait are dropped, and each tier has a circuit breaker',
});

/**
 * Reads `kv_connector_extra_config`. The tiers come from `tiers`, a list of texts (`parseTierSpec`), or from vLLM's fields.
 *
 * @throws KvasirError that names the field.
 */
export function readOffloadingSettings(config: KvTransferConfig): OffloadingSettings {
  const extra = configReader(config.kvConnectorExtraConfig);
  for (const [name, reason] of Object.entries(unsupported)) extra.refuse(name, (value) => value === false, reason);
  const specs = extra.list('tiers', (text, name) => {
    if (typeof text === 'string') return parseTierSpec(text);
    throw extra.invalid(name, 'a text like "host:8GiB"', describeValue(text));
  });
  const tiers = specs === undefined ? vllmTiers(extra) : tiersOf(specs);
  checkMemory(tiers.host);
  const chunkTokens = extra.integer('block_size', { min: 1 });
  const blocksPerChunk = extra.integer('blocks_per_chunk', { min: 1 });
  if (chunkTokens !== undefined && blocksPerChunk !== undefined)
    throw extra.invalid('blocks_per_chunk', 'absent if block_size is given');
  const seconds = (name: string, fallback: number): number => (extra.number(name, { min: 0.001 }) ?? fallback) * 1000;
  const givenLoadSeconds = extra.number('load_timeout_seconds', { min: 0.001 });
  const settings: OffloadingSettings = {
    role: config.kvRole,
    engineId: config.engineId,
    ...tiers,
    blocksPerChunk: blocksPerChunk ?? 1,
    chunkTokens,
    storeThreshold: extra.integer('store_threshold', { min: 0 }) ?? 0,
    trackedOffersMax: extra.integer('max_tracker_size', { min: 1 }) ?? 64_000,
    offloadPromptOnly: extra.boolean('offload_prompt_only') ?? false,
    retentionInterval: extra.integer('prefix_cache_retention_interval', { min: 0 }),
    syncLoadBytes: extra.integer('sync_load_budget_bytes', { min: 0 }) ?? 0,
    asyncLoad: extra.boolean('async_load') ?? true,
    loadPolicy: extra.choice('kv_load_policy', ['auto', 'always']) ?? 'auto',
    lookupTimeoutMs: seconds('lookup_timeout_seconds', 0.5),
    loadTimeoutMs: 1000 * (givenLoadSeconds ?? 1.5),
    // A block may fail in each tier before the last one serves it.
    wholeLoadTimeoutMs:
      givenLoadSeconds === undefined
        ? undefined
        : Math.max(wholeLoadMinMs, 1000 * givenLoadSeconds * (1 + tiers.secondaries.length)),
    storeTimeoutMs: seconds('save_timeout_seconds', 30),
    loadsAtOnce: extra.integer('loads_at_once', { min: 1, max: 1024 }) ?? 16,
    writeQueueBytes: extra.integer('write_queue_bytes', { min: 0 }) ?? tiers.host.maxBytes,
    busyWriteShare: extra.number('busy_write_share', { min: 0.0001, max: 1 }) ?? 0.01,
    remotePrefillTimeoutMs: remotePrefillTimeoutMs(extra),
    metricsBySalt: extra.boolean('metrics_by_salt') ?? false,
    leaseMs: seconds('kv_lease_duration', 30),
  };
  extra.finish();
  return settings;
}

interface Tiers {
  readonly host: HostSpec;
  readonly secondaries: readonly NamedSpec[];
}

function tiersOf(specs: readonly TierSpec[]): Tiers {
  if (specs.length === 0) throw tiersInvalid({ reason: 'the list is empty. Name a tier, such as host:8GiB' });
  const hosts = specs.filter((spec) => spec.kind === 'host');
  if (hosts.length > 1) throw tiersInvalid({ reason: 'there are several host tiers. Name one' });
  if (hosts.length === 1 && specs[0]!.kind !== 'host')
    throw tiersInvalid({ reason: 'the host tier is the fastest. Name it first' });
  return {
    host: hosts[0] ?? { kind: 'host', maxBytes: hostBufferBytes, evictionPolicy: 'lru' },
    secondaries: named(specs.filter((spec) => spec.kind !== 'host')),
  };
}

/** The fields of vLLM's `CPUOffloadingSpec` and `TieringOffloadingSpec`. */
function vllmTiers(extra: FieldReader): Tiers {
  const specName = extra.choice('spec_name', ['CPUOffloadingSpec', 'TieringOffloadingSpec']) ?? 'CPUOffloadingSpec';
  const maxBytes = extra.integer('cpu_bytes_to_use', { min: 1 });
  const evictionPolicy = extra.choice('eviction_policy', evictionPolicyNames) ?? 'lru';
  const secondaries = extra.objects('secondary_tiers', secondaryOf) ?? [];
  if (maxBytes === undefined)
    throw extra.invalid(
      'cpu_bytes_to_use',
      'the bytes of the host tier',
      undefined,
      ' Or name the tiers in `tiers`, such as ["host:8GiB", "disk:/var/cache/kvasir"].',
    );
  if (specName === 'CPUOffloadingSpec' && secondaries.length > 0)
    throw extra.invalid('spec_name', '"TieringOffloadingSpec" if there are secondary_tiers', describeValue(specName));
  return { host: { kind: 'host', maxBytes, evictionPolicy }, secondaries: named(secondaries) };
}

const named = (specs: readonly SecondarySpec[]): NamedSpec[] => {
  const names = tierNames(specs);
  return specs.map((spec, i) => ({ name: names[i]!, spec }));
};

const secondaryTypes = ['fs', 'obj', 'redis'] as const;
/** Counters, events and responses name tiers, so no class may have the name of another tier. */
const reservedNames = new Set(['host', 'disk', 'redis', 's3']);

function secondaryOf(tier: FieldReader): SecondarySpec {
  const modulePath = tier.text('module_path');
  if (modulePath !== undefined) return ownOf(tier, modulePath);
  const type = tier.requiredChoice('type', secondaryTypes);
  const spec = type === 'fs' ? fsOf(tier) : type === 'obj' ? objOf(tier) : redisOf(tier);
  tier.finish();
  return spec;
}

/** A class of the user's, which checks its own settings. */
function ownOf(tier: FieldReader, modulePath: string): OwnSpec {
  const className = tier.text('type');
  if (className === undefined || !/^[\w$]+$/.test(className) || reservedNames.has(className))
    throw tier.invalid('type', 'the name of a class that the module of module_path exports');
  const locality = tier.choice('locality', ['LOCAL', 'REMOTE']) ?? 'LOCAL';
  return { kind: 'own', className, modulePath, locality, settings: tier.rest() };
}

function fsOf(tier: FieldReader): DiskSpec {
  const ttlSeconds = tier.integer('ttl_seconds', { min: 1 });
  const quotaBytes = tier.integer('quota_bytes', { min: 1 });
  return {
    kind: 'disk',
    path: tier.required('root_dir', tier.text('root_dir'), 'a directory'),
    maxBytes: tier.integer('max_bytes', { min: 1 }) ?? diskDefaults.maxBytes,
    fsync: tier.boolean('fsync') ?? diskDefaults.fsync,
    directIo: tier.boolean('direct_io') ?? diskDefaults.directIo,
    readThreads: tier.integer('n_read_threads', { min: 1, max: 16 }) ?? diskDefaults.readThreads,
    writeThreads: tier.integer('n_write_threads', { min: 1, max: 16 }) ?? diskDefaults.writeThreads,
    ...(ttlSeconds === undefined ? {} : { ttlSeconds }),
    ...(quotaBytes === undefined ? {} : { quotaBytes }),
  };
}

function redisOf(tier: FieldReader): SecondarySpec {
  refuseQuota(tier);
  const url = tier.required('url', tier.text('url'), 'a URL like "redis://host:6379"');
  const ttlSeconds = tier.integer('ttl_seconds', { min: 1 });
  return { kind: 'redis', url, ...(ttlSeconds === undefined ? {} : { ttlSeconds }) };
}

/** A store that evicts by itself, or whose objects have blocks of several cache salts, could not keep to it. */
const refuseQuota = (tier: FieldReader): void =>
  tier.refuse('quota_bytes', (value) => value === null, 'quotas are for host memory and tiers of type fs');

function objOf(tier: FieldReader): S3Spec {
  refuseQuota(tier);
  const store = tier.required('store_config', tier.object('store_config'), 'an object with the bucket');
  const bucket = store.required('bucket', store.text('bucket'), 'the name of a bucket');
  const scheme = store.choice('scheme', ['http', 'https']) ?? 'http';
  const override = store.text('endpoint_override');
  const region = store.text('region');
  const accessKeyId = store.text('access_key');
  const secretAccessKey = store.text('secret_key');
  const sessionToken = store.text('session_token');
  store.finish();
  const prefix = tier.text('prefix');
  const maxBytes = tier.integer('max_bytes', { min: 1 });
  const endpoint = override === undefined || override.includes('://') ? override : `${scheme}://${override}`;
  return {
    kind: 's3',
    bucket,
    ...(prefix === undefined ? {} : { prefix }),
    ...(endpoint === undefined ? {} : { endpoint }),
    ...(region === undefined ? {} : { region }),
    ...(maxBytes === undefined ? {} : { maxBytes }),
    ...(accessKeyId === undefined || secretAccessKey === undefined
      ? {}
      : { credentials: { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) } }),
  };
}

function checkMemory({ maxBytes }: HostSpec): void {
  const limit = memoryLimit();
  if (maxBytes < limit.bytes) return;
  const reason = `the host tier has ${formatBytes(maxBytes)}, but ${limit.text}. Make the tier smaller`;
  throw tiersInvalid({ reason });
}
