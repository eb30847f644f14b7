import { ManualTime } from '../../../test/support/manual-time.ts';
import type { BlockKey } from '../block-key.ts';
import { HostTier } from '../tier/host/tier-host.ts';
import { StagingBuffers } from '../tier/staging-buffers.ts';
import { storedBlockBytes, suiteBlockBytes, suiteIdentity } from '../tier/tier.suite.ts';
import type { Tier } from '../tier/tier.ts';
import { SecondaryTier } from './secondary-tier.ts';
import type { WritePace } from './write-pace.ts';

export const open = new AbortController().signal;

/** A host tier whose loads and stores wait until the test lets them go on. */
function gated() {
  const inner = new HostTier({ identity: suiteIdentity, maxBytes: 100 * storedBlockBytes, name: 'slow' });
  const waiting: { readonly key: BlockKey; go(): void; readonly signal: AbortSignal }[] = [];
  const gate = (key: BlockKey, signal: AbortSignal): Promise<void> =>
    new Promise((go) => {
      waiting.push({ key, go, signal });
    });
  const tier: Tier = {
    name: 'slow',
    has: (keys, signal) => inner.has(keys, signal),
    load: async (key, into, signal) => {
      await gate(key, signal);
      return inner.load(key, into, open);
    },
    store: async (key, bytes, signal) => {
      await gate(key, signal);
      return inner.store(key, bytes, open);
    },
    delete: (key) => inner.delete(key),
    takeEvicted: () => inner.takeEvicted(),
    counters: () => inner.counters(),
    levels: () => inner.levels(),
    close: () => inner.close(),
  };
  return { tier, inner, waiting };
}

interface Setup {
  readonly leaseMs?: number;
  readonly bufferCount?: number;
  readonly queuedMax?: number;
  readonly storesAtOnce?: number;
  readonly time?: ManualTime;
  readonly pace?: WritePace;
}

export function newSecondary(setup: Setup = {}) {
  const { bufferCount = 4, queuedMax = 10, storesAtOnce = 1, time = new ManualTime(), pace, leaseMs = 30_000 } = setup;
  const { tier, inner, waiting } = gated();
  const host = new HostTier({ identity: suiteIdentity, maxBytes: 10 * storedBlockBytes });
  const buffers = new StagingBuffers(suiteBlockBytes, bufferCount * suiteBlockBytes);
  const secondary = new SecondaryTier(tier, host, buffers, {
    clock: time,
    timers: time,
    loadTimeoutMs: 100,
    storeTimeoutMs: 1_000,
    storesAtOnce,
    queuedMax,
    leaseMs,
    ...(pace === undefined ? {} : { pace }),
    breaker: { failuresMax: 3, coolDownMs: 500, coolDownMaxMs: 500 },
  });
  return { secondary, host, inner, waiting, buffers, time };
}

export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
