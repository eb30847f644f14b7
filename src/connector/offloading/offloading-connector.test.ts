import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { inLongForm } from '../../../test/support/long-form.ts';
import type { JsonObject } from '../../base/json.ts';
import { readKvTransferConfig } from '../config.ts';
import { connectorSuite, faultSettings } from '../connector.suite.ts';
import type { FaultRule } from '../fault/fault-rules.ts';
import { createConnector } from '../registry.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-offloading-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let serial = 0;

const make = (extra: JsonObject, role = 'kv_both') =>
  createConnector(
    readKvTransferConfig({ kvConnector: 'OffloadingConnector', kvRole: role, kvConnectorExtraConfig: extra }),
  );

/** Short for calls that a rule makes hang; long for others, so that they do not time out on a busy machine. */
const timeoutFor = (call: string, rules: readonly FaultRule[] = []): number =>
  rules.some(({ on, fault }) => on === call && fault === 'hung') ? 1 : 60;

// Host memory and a disk below it: engines that use one store after the other share the disk.
connectorSuite('OffloadingConnector', {
  // Both modes wait for the same transfers here. The default form has sync loads and two ranks with `SharedStorageConnector`.
  modes: inLongForm<readonly ('async' | 'sync')[]>(['async', 'sync'], ['async']),
  ranks: inLongForm([1, 2], [1]),
  keepsLoadedBlocks: true,
  newStorage: () => join(root, `${serial++}`),
  create: (storage, settings) =>
    make(
      {
        spec_name: 'TieringOffloadingSpec',
        cpu_bytes_to_use: 1e6,
        secondary_tiers: [
          {
            type: 'fs',
            root_dir: storage,
            max_bytes: settings.maxBytes ?? 1e9,
            n_read_threads: 2,
            n_write_threads: 1,
          },
        ],
        async_load: settings.mode === 'async',
        loads_at_once: 2,
        lookup_timeout_seconds: timeoutFor('has', settings.rules),
        load_timeout_seconds: 60,
        save_timeout_seconds: timeoutFor('store', settings.rules),
        ...faultSettings(settings),
      },
      settings.role,
    ),
});
