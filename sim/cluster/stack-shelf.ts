import { assert } from '../../src/base/assert.ts';
import type { BlockKey } from '../../src/connector/block-key.ts';
import type { ConnectorContext, KvIdentity, WorkerConnector } from '../../src/connector/connector.ts';
import {
  type NamedSpec,
  type OffloadingSettings,
  readOffloadingSettings,
} from '../../src/connector/offloading/offloading-settings.ts';
import { openStackWorker } from '../../src/connector/offloading/stack-worker.ts';
import type { TierStack } from '../../src/connector/offloading/tier-stack.ts';
import type { Place } from '../../src/connector/places/place-lookups.ts';
import { PlaceScheduler } from '../../src/connector/places/place-scheduler.ts';
import { headerBytes } from '../../src/connector/tier/block-header.ts';
import type { EvictionPolicyName } from '../../src/connector/tier/host/eviction-policies.ts';
import type { HostTier } from '../../src/connector/tier/host/tier-host.ts';
import type { ProcessLife } from './process-life.ts';
import { type SharedTier, TierConnection } from './shared-tier.ts';
import type { Shelf } from './shelf.ts';

/** The settings of a stack that differ between clusters. All others are the defaults. */
export interface StackShape {
  readonly hostBlocks: number;
  /** Of each cache salt. Undefined: there are no salts. */
  readonly quotaBlocks: number | undefined;
  readonly evictionPolicy: EvictionPolicyName;
  readonly ttlSeconds: number | undefined;
  /** Blocks that wait to be written. */
  readonly queueBlocks: number;
  readonly busyWriteShare: number;
  readonly isBusy: boolean;
  readonly leaseSeconds: number;
  /** The share of requests that another server goes on with, so that their blocks are leased. */
  readonly remoteDecodeShare: number;
}

/**
 * Host memory and the shared tiers below it: `OffloadingConnector`, which opens the tiers of this cluster instead of directories and
 * servers. All else is the original: `TierStack`, `SecondaryTier`, `WriteBehind`, `LeasedBlocks`, `WritePace`, `HostTier`.
 */
export class StackShelf implements Shelf {
  readonly scheduler: PlaceScheduler;
  readonly #life: ProcessLife;
  readonly #context: ConnectorContext;
  readonly #identity: KvIdentity;
  readonly #settings: OffloadingSettings;
  readonly #shape: StackShape;
  readonly #tiers = new Map<string, SharedTier>();
  /** Of the worker side, by tier. */
  readonly #connections = new Map<string, TierConnection>();
  #opened: { readonly stack: TierStack; readonly host: HostTier } | undefined;
  /** What host memory must keep, by pin. */
  readonly #pins = new Map<string, { readonly keys: Set<BlockKey>; readonly untilMs: number }>();

  constructor(
    tiers: readonly SharedTier[],
    life: ProcessLife,
    context: ConnectorContext,
    { identity, shape }: { readonly identity: KvIdentity; readonly shape: StackShape },
  ) {
    this.#life = life;
    this.#context = context;
    this.#identity = identity;
    this.#shape = shape;
    this.#settings = settingsOf(tiers.length, identity, shape);
    for (const [i, { name }] of this.#settings.secondaries.entries()) this.#tiers.set(name, tiers[i]!);
    const openPlace = (name: string): Place => ({
      name,
      tiers: [new TierConnection(this.#tiers.get(name)!, life, name)],
      kind: { medium: 'STORAGE', locality: 'REMOTE' },
      maxBytes: undefined,
    });
    this.scheduler = new PlaceScheduler(
      this.#settings.secondaries.map(({ name }) => openPlace(name)),
      { ...context, identities: [identity] },
      { ...this.#settings, openPlace: (name) => Promise.resolve(openPlace(name)) },
    );
  }

  openWorker(): Promise<WorkerConnector> {
    const context = { ...this.#context, identity: this.#identity };
    return openStackWorker(this.#settings, context, {
      openTier: ({ name }) => {
        const connection = new TierConnection(this.#tiers.get(name)!, this.#life, name);
        this.#connections.set(name, connection);
        return Promise.resolve(connection);
      },
      parseSpec: specOf,
      isBusy: () => this.#shape.isBusy,
      opened: (stack, host) => {
        this.#opened = { stack, host };
      },
    });
  }

  get names(): readonly string[] {
    return [...this.#tiers.keys()];
  }

  check(): void {
    const { stack, host } = this.#parts;
    stack.checkInvariants();
    const { quotaBytes } = this.#settings.host;
    if (quotaBytes !== undefined)
      for (const [salt, { bytes }] of Object.entries(host.saltLevels() ?? {}))
        assert(bytes <= quotaBytes, `quota: the blocks of ${salt} have ${bytes} bytes, more than ${quotaBytes}`);
    for (const [pin, { keys, untilMs }] of this.#pins) {
      if (this.#life.nowMs() >= untilMs) this.#pins.delete(pin);
      else for (const key of keys) assert(host.holds(key), `pin: ${key} was evicted from host memory`);
    }
  }

  get isWriting(): boolean {
    const { stack, host } = this.#parts;
    const { tiers } = stack.stats().levels!;
    return host.levels().pinnedBlocks! > 0 || Object.values(tiers!).some(({ openStores = 0 }) => openStores > 0);
  }

  /** No count says that a block was not written. */
  get hasWrittenAll(): boolean {
    const { tiers } = this.#parts.stack.stats();
    return Object.values(tiers!).every(
      ({ dropped = 0, storeFailed = {} }) => dropped === 0 && Object.keys(storeFailed).length === 0,
    );
  }

  /** Where nothing is lost, and all servers have written all: each block of host memory is in all tiers. */
  checkWritten(): void {
    const { host } = this.#parts;
    const keys = [...this.scheduler.listed()[0]!.keys];
    for (const [name, tier] of this.#tiers) {
      for (const key of keys)
        if (host.holds(key))
          assert(tier.has(key), `write-behind: ${key} is in host memory, and was not written to ${name}`);
    }
  }

  // --- For orders ---

  /** These pinned blocks are in host memory now, and stay there. */
  pinned(pin: string, keys: readonly BlockKey[], ttlMs: number): void {
    const { host } = this.#parts;
    // Their own time to live ends, too.
    if (this.#settings.host.ttlSeconds !== undefined) return;
    this.#pins.set(pin, { keys: new Set(keys.filter((key) => host.holds(key))), untilMs: this.#life.nowMs() + ttlMs });
  }

  unpinned(pin?: string): void {
    if (pin === undefined) this.#pins.clear();
    else this.#pins.delete(pin);
  }

  removed(keys: readonly BlockKey[]): void {
    for (const pin of this.#pins.values()) for (const key of keys) pin.keys.delete(key);
  }

  /** Writes that began before are over. */
  checkNoneWritten(tier: string, keys: readonly BlockKey[], beforeMs: number): void {
    for (const { key, sinceMs } of this.#connections.get(tier)?.openStores ?? [])
      if (sinceMs < beforeMs)
        assert(!keys.includes(key), `order: ${key} was removed, and is still being written to ${tier}`);
  }

  get #parts() {
    assert(this.#opened !== undefined, 'the stack is not open');
    return this.#opened;
  }
}

const className = 'SharedTier';

const specOf = (): NamedSpec['spec'] => ({
  kind: 'own',
  className,
  modulePath: 'sim',
  locality: 'REMOTE',
  settings: {},
});

function settingsOf(tierCount: number, { blockBytes }: KvIdentity, shape: StackShape): OffloadingSettings {
  const slotBytes = headerBytes + blockBytes;
  const settings = readOffloadingSettings({
    kvConnector: 'OffloadingConnector',
    kvRole: 'kv_both',
    kvLoadFailurePolicy: 'recompute',
    kvConnectorExtraConfig: {
      spec_name: 'TieringOffloadingSpec',
      cpu_bytes_to_use: shape.hostBlocks * slotBytes,
      eviction_policy: shape.evictionPolicy,
      secondary_tiers: Array.from({ length: tierCount }, () => ({
        type: className,
        module_path: 'sim',
        locality: 'REMOTE',
      })),
      write_queue_bytes: shape.queueBlocks * blockBytes,
      busy_write_share: shape.busyWriteShare,
      kv_lease_duration: shape.leaseSeconds,
      metrics_by_salt: shape.quotaBlocks !== undefined,
    },
  });
  const { quotaBlocks, ttlSeconds } = shape;
  const quota = quotaBlocks === undefined ? {} : { quotaBytes: quotaBlocks * slotBytes };
  const ttl = ttlSeconds === undefined ? {} : { ttlSeconds };
  return { ...settings, host: { ...settings.host, ...quota, ...ttl } };
}
