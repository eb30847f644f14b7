import type { BlockKey } from '../../src/connector/block-key.ts';
import type { Tier } from '../../src/connector/tier/tier.ts';

/**
 * Calls `arrived` for each block that is loaded, and changes nothing else. A load that the engine has aborted does not
 * count, even if its bytes arrive later.
 */
export function recordedTier(tier: Tier, arrived: (key: BlockKey) => void): Tier {
  const load: Tier['load'] = async (key, into, signal, context) => {
    const reason = await tier.load(key, into, signal, context);
    if (reason === undefined && !signal.aborted) arrived(key);
    return reason;
  };
  return new Proxy(tier, {
    get(target, name) {
      if (name === 'load') return load;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}
