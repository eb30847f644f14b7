import type { KvTransferConfig } from '../connector.ts';
import { takeFaults } from '../fault/faulty-connector.ts';
import { readOffloadingSettings } from './offloading-settings.ts';

/** Host memory that tiers may fill. */
export function hostTierBytes(config: KvTransferConfig | undefined): number {
  if (config?.kvConnector !== 'OffloadingConnector') return 0;
  return readOffloadingSettings(takeFaults(config).config).host.maxBytes;
}
