import { AssertionError } from '../../base/assert.ts';
import { formatBytes } from '../../base/bytes.ts';
import { MemoryAhead, type MemoryAheadOptions } from '../../base/memory-ahead.ts';
import type { WorkerConnector, WorkerConnectorContext } from '../connector.ts';
import { tiersInvalid } from '../errors.ts';
import { leasedKeys } from '../places/leased-keys.ts';
import { headerBytes } from '../tier/block-header.ts';
import { HostTier } from '../tier/host/tier-host.ts';
import { StagingBuffers } from '../tier/staging-buffers.ts';
import type { Tier, TierWrapping } from '../tier/tier.ts';
import { TierWorker } from '../tier/tier-worker.ts';
import { stuckMax } from '../transfer/stall-watch.ts';
import type { NamedSpec, OffloadingSettings } from './offloading-settings.ts';
import { quotaOf, storesAtOnce } from './rank-share.ts';
import { SecondaryTier } from './secondary-tier.ts';
import type { SecondarySpec } from './tier-spec.ts';
import { TierStack } from './tier-stack.ts';
import { longestHoldMs, WritePace } from './write-pace.ts';

/** What a stack gets from the machine. The simulator has its own. */
export interface StackSurroundings {
  openTier(named: NamedSpec): Promise<Tier>;
  /** Of a tier that an administrator attaches. Throws the KvasirError of a wrong text. */
  parseSpec(spec: string): SecondarySpec;
  /** Whether all CPUs are in use. */
  isBusy(): boolean;
  /** Maps the memory of the host tier ahead. Absent: the first store in a piece of memory does. */
  readonly mapMemory?: MemoryAheadOptions<Uint8Array>['map'];
  /** Receives the stack before the first call. For tests. */
  opened?(stack: TierStack, host: HostTier): void;
}

/** How many blocks are copied into host memory in one turn of the event loop. */
const savesAtOnce = 2;

/**
 * The worker side of a rank with host memory and the tiers below it: both opened, joined as a `TierStack`, and run by a `TierWorker`.
 * Rejects with the KvasirError of a tier whose settings are wrong.
 */
export async function openStackWorker(
  settings: OffloadingSettings,
  context: WorkerConnectorContext & TierWrapping,
  surroundings: StackSurroundings,
): Promise<WorkerConnector> {
  const { identity, crc32, clock, timers } = context;
  const { host: hostSpec, loadsAtOnce, loadTimeoutMs, storeTimeoutMs, writeQueueBytes, leaseMs } = settings;
  const hostMaxBytes = Math.floor(hostSpec.maxBytes / identity.worldSize);
  checkRoom(hostMaxBytes, headerBytes + identity.blockBytes);
  const host = new HostTier({
    identity,
    maxBytes: hostMaxBytes,
    evictionPolicy: hostSpec.evictionPolicy,
    quotaBytes: quotaOf(hostSpec, identity),
    reportsSalts: settings.metricsBySalt,
    ttlSeconds: hostSpec.ttlSeconds,
    clock,
    crc32,
  });
  // Loads that hang keep their buffers.
  const buffers = new StagingBuffers(identity.blockBytes, (loadsAtOnce + stuckMax) * identity.blockBytes);
  const isBusy = (): boolean => surroundings.isBusy();
  const pace = new WritePace({ clock, timers, isBusy, busyShare: settings.busyWriteShare });
  const openSecondary = async (named: NamedSpec): Promise<SecondaryTier> => {
    const tier = await surroundings.openTier(named);
    const queuedMax = Math.floor(writeQueueBytes / identity.worldSize / identity.blockBytes);
    return new SecondaryTier(tier, host, buffers, {
      clock,
      timers,
      loadTimeoutMs,
      storeTimeoutMs,
      storesAtOnce: storesAtOnce(named.spec, identity),
      queuedMax,
      pace,
      leaseMs,
    });
  };
  const secondaries: SecondaryTier[] = [];
  try {
    for (const named of settings.secondaries) secondaries.push(await openSecondary(named));
  } catch (error) {
    if (error instanceof AssertionError) throw error;
    for (const secondary of secondaries) void secondary.close();
    throw error;
  }
  const { mapMemory: map } = surroundings;
  const memoryAhead =
    map &&
    new MemoryAhead({ nextPiece: () => host.nextUnmapped(), map, isBusy: () => pace.isLoading || isBusy(), timers });
  const stack = new TierStack({
    ...{ host, secondaries, clock, timers, pace, leaseMs },
    ...(memoryAhead === undefined ? {} : { memoryAhead }),
    blockBytes: identity.blockBytes,
    openSecondary: (name, spec) => openSecondary({ name, spec: surroundings.parseSpec(spec) }),
  });
  surroundings.opened?.(stack, host);
  return new TierWorker(stack, context, {
    loadsAtOnce,
    savesAtOnce,
    saveTimeoutMs: storeTimeoutMs,
    // Saves that wait must not time out.
    ...(storeTimeoutMs < 2 * longestHoldMs ? {} : { saveGate: pace.copies }),
    onForward: (isComputing) => pace.computing(isComputing),
    onExtra: (extra) => stack.lease(leasedKeys(extra)),
    administer: (order) => stack.administer(order),
    // Each tier of the stack has its own breakers: a tier that hangs must not stop loads from host memory.
    breaker: 'none',
    stats: () => stack.stats(),
  });
}

function checkRoom(maxBytes: number, blockBytes: number): void {
  if (maxBytes >= blockBytes) return;
  const reason = `the host tier has ${formatBytes(maxBytes)}, but one block needs ${formatBytes(blockBytes)}. Make it larger`;
  throw tiersInvalid({ reason });
}
