import type { JsonObject } from '../../src/base/json.ts';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import type { EngineOptions } from '../../src/engine/options.ts';

export interface EngineWithTier {
  /** As in `secondary_tiers`; undefined: an engine without a connector. */
  readonly tier: JsonObject | undefined;
  /** Default: OffloadingConnector. */
  readonly connector?: string;
  /** Default: room for all blocks, so that none is evicted. */
  readonly hostBytes?: number;
  readonly maxNumSeqs?: number;
  /** Further settings of the connector. */
  readonly settings?: JsonObject;
  /** Options of the engine instead of those below. */
  readonly options?: Partial<EngineOptions>;
  /** Of the calls of the tier. Default: long for a busy machine. */
  readonly timeouts?: { readonly lookup?: number; readonly load?: number; readonly save?: number };
}

/**
 * An engine with the demo model, a small pool, and host memory with one tier below it. It loads all blocks that a request needs,
 * and writes blocks also while all CPUs are in use.
 */
export function openEngineWithTier({
  tier,
  connector,
  hostBytes,
  maxNumSeqs,
  settings = {},
  options,
  timeouts,
}: EngineWithTier): Promise<AsyncEngine> {
  const { lookup = 60, load = 60, save = 60 } = timeouts ?? {};
  return createEngine({
    model: 'models/kvasir-demo.gguf',
    threads: 1,
    kvCacheMemory: 3 << 20,
    maxModelLen: 512,
    ...options,
    ...(maxNumSeqs === undefined ? {} : { maxNumSeqs }),
    ...(tier === undefined
      ? {}
      : {
          kvTransferConfig: {
            kv_connector: connector ?? 'OffloadingConnector',
            kv_role: 'kv_both',
            kv_connector_extra_config: {
              spec_name: 'TieringOffloadingSpec',
              cpu_bytes_to_use: hostBytes ?? 50_000_000,
              secondary_tiers: [tier],
              kv_load_policy: 'always',
              busy_write_share: 1,
              lookup_timeout_seconds: lookup,
              load_timeout_seconds: load,
              save_timeout_seconds: save,
              ...settings,
            },
          },
        }),
  });
}
