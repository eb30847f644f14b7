import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { entryPoint } from '../../src/base/package-files.ts';
import type { KvTransferConfig, WorkerConnector, WorkerConnectorContext } from '../../src/connector/connector.ts';
import { OffloadingConnector } from '../../src/connector/offloading/offloading-connector.ts';
import type { Tier } from '../../src/connector/tier/tier.ts';

/**
 * An OffloadingConnector whose loads take at least `throttle_block_ms` for each block, one after the other, as from a tier
 * of limited bandwidth. Engines find it by `kv_connector_module_path`.
 */
export class ThrottledConnector extends OffloadingConnector {
  readonly #blockMs: number;

  constructor(config: KvTransferConfig) {
    const { throttle_block_ms, ...extra } = config.kvConnectorExtraConfig;
    super({ ...config, kvConnectorExtraConfig: extra });
    this.#blockMs = Number(throttle_block_ms);
  }

  override openWorker(context: WorkerConnectorContext): Promise<WorkerConnector> {
    return super.openWorker({ ...context, wrapTier: (tier: Tier) => throttled(tier, this.#blockMs) });
  }
}

/** The path of this file in the build. */
export const throttledModule = fileURLToPath(entryPoint('bench/offloading/throttled-connector'));

function throttled(tier: Tier, blockMs: number): Tier {
  let freeAtMs = 0;
  const load: Tier['load'] = async (key, into, signal, context) => {
    const nowMs = performance.now();
    freeAtMs = Math.max(freeAtMs, nowMs) + blockMs;
    await sleep(freeAtMs - nowMs);
    return tier.load(key, into, signal, context);
  };
  return new Proxy(tier, {
    get(target, name) {
      if (name === 'load') return load;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}
