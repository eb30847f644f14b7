import { encoderKeepsNoKv, encoderModelLen } from './errors.ts';
import type { ResolvedEngineOptions } from './options.ts';

/**
 * The options of an engine with an encoder. Its steps compute whole texts, and no K and V are kept between steps: the pool has room
 * for the texts of one step.
 * @throws KvasirError `encoderKeepsNoKv`, `encoderModelLen`
 */
export function encoderOptions(options: ResolvedEngineOptions, contextLength: number): ResolvedEngineOptions {
  const { model, maxModelLen = contextLength } = options;
  const refused = [
    ['--kv-transfer-config or a tier', options.kvTransferConfig],
    ['--speculative-config', options.speculativeConfig],
    ['--kv-events-config', options.kvEventsConfig],
  ] as const;
  for (const [option, value] of refused) if (value !== undefined) throw encoderKeepsNoKv({ model, option });
  if (maxModelLen > contextLength) throw encoderModelLen({ model, maxModelLen, contextLength });
  return Object.freeze({
    ...options,
    maxNumBatchedTokens: Math.max(options.maxNumBatchedTokens, maxModelLen),
    maxModelLen,
    kvCacheDtype: 'f16',
    enablePrefixCaching: false,
    targetInterTokenLatency: 0,
  });
}
