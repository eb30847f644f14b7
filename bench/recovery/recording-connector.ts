import { appendFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { RanksOfBlock } from '../../src/cli/proof/stored-blocks.ts';
import type { BlockKey } from '../../src/connector/block-key.ts';
import type { ConnectorContext, KvIdentity, KvTransferConfig } from '../../src/connector/connector.ts';
import { SharedStorageConnector } from '../../src/connector/shared-storage/shared-storage-connector.ts';
import type { DiskTier } from '../../src/connector/tier/disk/tier-disk.ts';
import type { Tier } from '../../src/connector/tier/tier.ts';
import { recordedTier } from './recorded-tier.ts';

/**
 * A SharedStorageConnector that records the loaded blocks of each rank in `<record_path>/rank<n>`. The reference
 * (`needed-tokens.ts`) reads these files, so the minimum uses no counter of the engine or the connector. Engines and
 * worker processes find it by `kv_connector_module_path`.
 */
export class RecordingStorageConnector extends SharedStorageConnector {
  readonly #folder: string;

  constructor(config: KvTransferConfig) {
    const { record_path, ...extra } = config.kvConnectorExtraConfig;
    super({ ...config, kvConnectorExtraConfig: extra });
    this.#folder = String(record_path);
  }

  protected override tierFor(disk: DiskTier, identity: KvIdentity, context: ConnectorContext): Tier {
    const path = join(this.#folder, `rank${identity.rank}`);
    return recordedTier(super.tierFor(disk, identity, context), (key) => appendFileSync(path, `${key}\n`));
  }
}

/** The path of this file: TypeScript in the sources, JavaScript in the build. */
export const recordingModule = fileURLToPath(import.meta.url);

/** The blocks that were loaded on every rank with KV in them, from the records in the folder. */
export async function readArrived(folder: string, ranks: number, ranksOf: RanksOfBlock): Promise<Set<string>> {
  const names = await readdir(folder);
  const perRank = await Promise.all(
    Array.from({ length: ranks }, async (_, rank) => {
      const name = `rank${rank}`;
      return new Set(names.includes(name) ? (await readFile(join(folder, name), 'utf8')).split('\n') : []);
    }),
  );
  const isOnAll = (key: string): boolean => ranksOf(key as BlockKey).every((rank) => perRank[rank]!.has(key));
  return new Set(perRank.flatMap((keys) => [...keys]).filter((key) => key !== '' && isOnAll(key)));
}
