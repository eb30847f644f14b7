/**
 * A connector whose stores are memory, one per rank, for tests that open hundreds of them. Both sides, queue, circuit breakers, headers
 * and verification are real; faults are in the stores and in the reports of workers.
 */

import { assertDefined } from '../../src/base/assert.ts';
import { recordedTier } from '../../src/cli/proof/proof-connector.ts';
import type { BlockKey } from '../../src/connector/block-key.ts';
import type {
  BlockLoadFailure,
  KvIdentity,
  LoadMode,
  SchedulerConnector,
  SchedulerConnectorContext,
  WorkerConnector,
  WorkerConnectorContext,
} from '../../src/connector/connector.ts';
import { FaultInjector } from '../../src/connector/fault/fault-injector.ts';
import type { FaultPlan } from '../../src/connector/fault/fault-rules.ts';
import { TierScheduler } from '../../src/connector/places/tier-scheduler.ts';
import { headerBytes } from '../../src/connector/tier/block-header.ts';
import { HostTier } from '../../src/connector/tier/host/tier-host.ts';
import type { TamperableTier } from '../../src/connector/tier/tier.ts';
import { TierWorker } from '../../src/connector/tier/tier-worker.ts';
import { FaultyReports, type ReportFaults } from './faulty-reports.ts';

/** The content of a store at the start: the bytes of each block, by rank. */
export type StoredBlocks = readonly ReadonlyMap<BlockKey, Uint8Array>[];

export interface MemoryConnectorOptions {
  readonly identities: readonly KvIdentity[];
  readonly mode: LoadMode;
  readonly stored?: StoredBlocks;
  /** One per rank; a rank without a plan has a store without faults. */
  readonly faults?: readonly FaultPlan[];
  readonly reports?: ReportFaults;
  /** The capacity of each rank's store; a small store evicts. Default: room for all blocks of a run. */
  readonly maxBytes?: number;
}

const never = new AbortController().signal;

/** More than all requests of a run have. Memory is allocated in one piece, and large pieces make the garbage collector run. */
const blocksMax = 256;
const storedBytesOf = ({ blockBytes }: KvIdentity): number => headerBytes + blockBytes;

export class MemoryConnector {
  /** Blocks that a worker reported as failed, on any rank: `transfer/block`, independent of the scheduler's counters. */
  readonly failedBlocks = new Set<string>();
  /** Blocks that arrived, by rank, counted in the stores; without loads that were given up before. */
  readonly arrived: readonly Set<BlockKey>[];
  readonly #options: MemoryConnectorOptions;
  readonly #tiers: readonly HostTier[];
  readonly #injectors: FaultInjector[] = [];

  private constructor(options: MemoryConnectorOptions, tiers: readonly HostTier[]) {
    this.#options = options;
    this.#tiers = tiers;
    this.arrived = tiers.map(() => new Set());
  }

  static async open(options: MemoryConnectorOptions): Promise<MemoryConnector> {
    const tiers = options.identities.map(
      (identity) => new HostTier({ identity, maxBytes: options.maxBytes ?? blocksMax * storedBytesOf(identity) }),
    );
    for (const [rank, blocks] of (options.stored ?? []).entries())
      for (const [key, bytes] of blocks) await tiers[rank]!.store(key, bytes, never);
    return new MemoryConnector(options, tiers);
  }

  openScheduler(context: SchedulerConnectorContext): SchedulerConnector {
    return new TierScheduler(this.#tiers.map(viewOf), context, {
      role: 'kv_both',
      mode: this.#options.mode,
      lookupTimeoutMs: 1000,
    });
  }

  openWorker(context: WorkerConnectorContext): WorkerConnector {
    const { identity, timers } = context;
    const tier = viewOf(this.#tiers[identity.rank]!);
    const plan = this.#options.faults?.[identity.rank];
    const injector = plan === undefined ? undefined : new FaultInjector(tier, { identity, timers, plan });
    if (injector !== undefined) this.#injectors.push(injector);
    const worker = new TierWorker(
      recordedTier(injector ?? tier, (key) => this.arrived[identity.rank]!.add(key)),
      context,
      {
        loadsAtOnce: 4,
        savesAtOnce: 2,
        saveBufferBytes: 16 << 20,
        saveTimeoutMs: 40,
      },
    );
    const side = recordingFailures(worker, this.failedBlocks);
    const { reports } = this.#options;
    return reports === undefined ? side : new FaultyReports(side, { ...reports, seed: reports.seed + identity.rank });
  }

  /** Hung calls end with an error, as when a store answers again. */
  releaseHung(): void {
    for (const injector of this.#injectors) injector.releaseHung();
  }

  /** The stored blocks of these keys, as another process finds them. */
  async contents(keys: Iterable<BlockKey>): Promise<StoredBlocks> {
    const wanted = [...keys];
    const contents: Map<BlockKey, Uint8Array>[] = [];
    for (const [rank, tier] of this.#tiers.entries()) {
      const blocks = new Map<BlockKey, Uint8Array>();
      for (const key of wanted) {
        const bytes = new Uint8Array(
          assertDefined(this.#options.identities[rank], 'a rank has an identity').blockBytes,
        );
        if ((await tier.load(key, bytes, never)) === undefined) blocks.set(key, bytes);
      }
      contents.push(blocks);
    }
    return contents;
  }
}

/** The same store, whose `close` does nothing: the store lives longer than the engine. */
function viewOf(tier: HostTier): TamperableTier {
  return {
    name: tier.name,
    has: (keys, signal) => tier.has(keys, signal),
    load: (key, into, signal) => tier.load(key, into, signal),
    store: (key, bytes, signal) => tier.store(key, bytes, signal),
    delete: (key) => tier.delete(key),
    tamper: (key, corrupt) => tier.tamper(key, corrupt),
    takeEvicted: () => tier.takeEvicted(),
    counters: () => tier.counters(),
    close: () => Promise.resolve(),
  };
}

/** Records the blocks that this side reports as failed, without other changes. */
function recordingFailures(side: WorkerConnector, failed: Set<string>): WorkerConnector {
  const record = (failures: readonly BlockLoadFailure[]): readonly BlockLoadFailure[] => {
    for (const { transfer, block } of failures) failed.add(`${transfer}/${block}`);
    return failures;
  };
  return new Proxy(side, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      if (name === 'getBlockIdsWithLoadErrors') return () => record(target.getBlockIdsWithLoadErrors());
      return value.bind(target) as unknown;
    },
  });
}
