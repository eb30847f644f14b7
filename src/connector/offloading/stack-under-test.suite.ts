import { systemClock } from '../../base/clock.ts';
import { systemTimers } from '../system-timers.ts';
import { HostTier } from '../tier/host/tier-host.ts';
import { StagingBuffers } from '../tier/staging-buffers.ts';
import { storedBlockBytes, suiteBlockBytes, suiteIdentity } from '../tier/tier.suite.ts';
import type { Tier } from '../tier/tier.ts';
import { SecondaryTier, type SecondaryTierOptions } from './secondary-tier.ts';
import { TierStack, type TierStackOptions } from './tier-stack.ts';

export interface StackUnderTest {
  readonly stack: TierStack;
  readonly host: HostTier;
  readonly secondaries: readonly SecondaryTier[];
  /** Resolves when all blocks are written or dropped. */
  whenWritten(): Promise<void>;
}

/** A stack of host memory for `hostBlocks` blocks and these tiers, with deadlines that are long for a busy machine. */
export function newStack(
  hostBlocks: number,
  tiers: readonly Tier[],
  options: Partial<SecondaryTierOptions> & Pick<TierStackOptions, 'closeTimeoutMs' | 'memoryAhead'> = {},
): StackUnderTest {
  const { clock = systemClock, timers = systemTimers, closeTimeoutMs = 60_000, pace, memoryAhead } = options;
  const host = new HostTier({ identity: suiteIdentity, maxBytes: hostBlocks * storedBlockBytes });
  const buffers = new StagingBuffers(suiteBlockBytes, 32 * suiteBlockBytes);
  const times = { clock, timers };
  const secondaries = tiers.map(
    (tier) =>
      new SecondaryTier(tier, host, buffers, {
        ...times,
        loadTimeoutMs: 60_000,
        storeTimeoutMs: 60_000,
        storesAtOnce: 2,
        queuedMax: 1000,
        ...options,
      }),
  );
  const stack = new TierStack({
    host,
    secondaries,
    ...times,
    closeTimeoutMs,
    blockBytes: suiteBlockBytes,
    openSecondary: () => Promise.reject(new Error('the tests of a stack attach no tiers')),
    ...(pace === undefined ? {} : { pace }),
    ...(memoryAhead === undefined ? {} : { memoryAhead }),
  });
  const whenWritten = async (): Promise<void> => {
    await Promise.all(secondaries.map((secondary) => secondary.whenWritten()));
  };
  return { stack, host, secondaries, whenWritten };
}
