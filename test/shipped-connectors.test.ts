/** The connectors that come with the demo, the fault benchmark and the examples obey the contract, too. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { MapConnector } from '../examples/map-connector.ts';
import type { JsonObject } from '../src/base/json.ts';
import { ProofConnector } from '../src/cli/proof/proof-connector.ts';
import { readKvTransferConfig } from '../src/connector/config.ts';
import { type ConnectorSettings, connectorSuite, faultSettings } from '../src/connector/connector.suite.ts';
import type { KvConnectorClass } from '../src/connector/connector.ts';
import { createConnector, registerConnector } from '../src/connector/registry.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-shipped-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let serial = 0;

/** SharedStorageConnector's own test runs the suite in all modes and on two ranks; here it runs once per connector. */
function suiteOf(
  connector: KvConnectorClass,
  settingsOf: (storage: string, settings: ConnectorSettings) => JsonObject,
  keepsLoadedBlocks = false,
): void {
  registerConnector(connector.name, async () => connector);
  connectorSuite(connector.name, {
    modes: ['async'],
    ranks: [1],
    keepsLoadedBlocks,
    newStorage: () => join(root, `${serial++}`),
    create: (storage, settings) =>
      createConnector(
        readKvTransferConfig({
          kvConnector: connector.name,
          kvRole: settings.role,
          kvConnectorExtraConfig: { ...settingsOf(storage, settings), ...faultSettings(settings) },
        }),
      ),
  });
}

suiteOf(MapConnector, (storage) => ({ store: storage }));
/** Seconds: short for calls that a rule makes hang; long for others, so that a busy machine does not cause timeouts. */
const timeoutOf = (call: string, { rules = [] }: ConnectorSettings): number =>
  rules.some(({ on, fault }) => on === call && fault === 'hung') ? 1 : 60;

suiteOf(
  ProofConnector,
  (storage, settings) => {
    const record_path = `${storage}-record`;
    mkdirSync(record_path, { recursive: true });
    return {
      tiers: ['host:1000000', `disk:${storage}:${settings.maxBytes ?? 1e9}`],
      save_path: storage,
      record_path,
      lookup_timeout_seconds: timeoutOf('has', settings),
      load_timeout_seconds: 60,
      save_timeout_seconds: timeoutOf('store', settings),
    };
  },
  true,
);
