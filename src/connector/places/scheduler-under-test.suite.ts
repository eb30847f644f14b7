import { ManualTime } from '../../../test/support/manual-time.ts';
import type { JsonObject } from '../../base/json.ts';
import { type BlockId, type BlockIndex, groupIndex, type RequestId, type TokenCount } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import { readKvTransferConfig } from '../config.ts';
import type { ConnectorRequest, KvBlock, KvRole, LoadJob, ValidBlock } from '../connector.ts';
import { ledgerBeside } from '../ledger-beside.suite.ts';
import { readOffloadingSettings } from '../offloading/offloading-settings.ts';
import { HostTier } from '../tier/host/tier-host.ts';
import { storedBlockBytes, suiteIdentity, suiteKey } from '../tier/tier.suite.ts';
import { PlaceScheduler } from './place-scheduler.ts';

export const identity = { ...suiteIdentity, groups: [suiteIdentity.groups[0]!] };
export const open = new AbortController().signal;
export const settled = async (): Promise<void> => {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
};

/** A scheduler side over a store below host memory, which is another host tier here. `hasStore`: false = host memory alone. */
export function newScheduler(extra: JsonObject = {}, kvRole: KvRole = 'kv_both', hasStore = true) {
  const time = new ManualTime();
  const store = new HostTier({ identity, maxBytes: 100 * storedBlockBytes, name: 'disk' });
  const events: string[] = [];
  let wakeups = 0;
  const settings = readOffloadingSettings(
    readKvTransferConfig({
      kvConnector: 'OffloadingConnector',
      kvRole,
      kvConnectorExtraConfig: { cpu_bytes_to_use: 1e8, ...extra },
    }),
  );
  const scheduler = new PlaceScheduler(
    hasStore ? [{ name: 'disk', tiers: [store], kind: { medium: 'STORAGE', locality: 'LOCAL' } }] : [],
    { clock: time, timers: time, wake: () => void wakeups++, identities: [identity], event: (m) => events.push(m) },
    settings,
  );
  const { step: planned, output, load, asked } = ledgerBeside(scheduler, time);
  const step = (newlyValid: readonly ValidBlock[], inPool: ReadonlyMap<BlockKey, BlockId> = new Map()) =>
    planned(newlyValid, (key) => inPool.get(key));
  /** Saves these blocks, and the workers report them as stored. */
  const save = (...blocks: ValidBlock[]): void => {
    for (const { transfer } of step(blocks).saves) output({ finishedSending: [transfer] });
  };
  /** Orders a load of these blocks, each from a place. */
  const loads = (id: string, ...places: (readonly [number, string])[]): LoadJob => {
    const blocks = places.map(([index, place]) => ({ ...block(index), place, block: (index + 50) as BlockId }));
    const job = load(id, blocks);
    scheduler.updateStateAfterAlloc(request(id, []), job, () => []);
    return job;
  };
  return { scheduler, store, time, events, step, output, save, loads, asked, wakeups: () => wakeups };
}

export const block = (index: number): KvBlock => ({
  group: groupIndex(0),
  index: index as BlockIndex,
  key: suiteKey(index),
});
export const valid = (index: number, request = 'r'): ValidBlock => ({
  ...block(index),
  block: (index + 1) as BlockId,
  requestId: request as RequestId,
});
export const request = (id: string, wanted: readonly number[], kvTransferParams?: JsonObject): ConnectorRequest => ({
  id: id as RequestId,
  tokenCount: 100 as TokenCount,
  wanted: wanted.map(block),
  ...(kvTransferParams === undefined ? {} : { kvTransferParams }),
});
export const found = (...places: (readonly [number, string])[]) => ({
  kind: 'found',
  mode: 'async',
  blocks: places.map(([index, place]) => ({ ...block(index), place })),
});
