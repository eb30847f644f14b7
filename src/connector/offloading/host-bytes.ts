import type { KvTransferConfig } from '../connector.ts';
import { takeFaults } from '../fault/faulty-connector.ts';
import { isMulti, readMultiSettings } from '../multi/multi-settings.ts';
import { readOffloadingSettings } from './offloading-settings.ts';

/** Host memory that tiers may fill. */
export function hostTierBytes(config: KvTransferConfig | undefined): number {
  if (config !== undefined && isMulti(config))
    return readMultiSettings(config).reduce((sum, one) => sum + hostTierBytes(one), 0);
  if (config?.kvConnector !== 'OffloadingConnector') return 0;
  return readOffloadingSettings(takeFaults(config).config).host.maxBytes;
}
