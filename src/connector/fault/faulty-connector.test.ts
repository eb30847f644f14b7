import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { inLongForm, isLongForm } from '../../../test/support/long-form.ts';
import type { JsonObject } from '../../base/json.ts';
import { readKvTransferConfig } from '../config.ts';
import { connectorSuite, faultSettings, withDeadlines } from '../connector.suite.ts';
import { promptOf } from '../connector-checks.suite.ts';
import { EngineHarness } from '../connector-harness.suite.ts';
import { createConnector } from '../registry.ts';
import { suiteIdentity } from '../tier/tier.suite.ts';
import { type FaultKind, faultKinds } from './fault-rules.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-faulty-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A user's module: its own tier in memory, without `tamper`, and a connector without any code for faults. */
const api = pathToFileURL(`${process.cwd()}/dist/bundle/src/connector-api.js`).href;
const file = join(folder, 'mine.mjs');
writeFileSync(
  file,
  `import { TierScheduler, TierWorker } from '${api}';
   const stores = new Map();
   class MapTier {
     name = 'map';
     constructor(blocks) { this.blocks = blocks; }
     async has(keys) { return keys.map((key) => this.blocks.has(key)); }
     async load(key, into) { const found = this.blocks.get(key); if (found === undefined) return 'missing'; into.set(found); }
     async store(key, bytes) { this.blocks.set(key, bytes.slice()); return 'stored'; }
     async delete(key) { this.blocks.delete(key); }
     takeEvicted() { return []; }
     counters() { return {}; }
     async close() {}
   }
   export class MapConnector {
     constructor({ kvConnectorExtraConfig: extra, kvRole }) {
       const { store, mode = 'async', ...others } = extra;
       if (Object.keys(others).length > 0) throw new Error('unknown settings: ' + Object.keys(others));
       Object.assign(this, { store, mode, role: kvRole });
     }
     tierFor(identity) {
       const name = JSON.stringify([this.store, identity]);
       if (!stores.has(name)) stores.set(name, new Map());
       return new MapTier(stores.get(name));
     }
     async openScheduler(context) {
       return new TierScheduler(context.identities.map((one) => this.tierFor(one)), context, { role: this.role, mode: this.mode, lookupTimeoutMs: 1000 });
     }
     async openWorker(context) {
       return new TierWorker(this.tierFor(context.identity), context, { loadsAtOnce: 4, savesAtOnce: 2, saveBufferBytes: 1e8, saveTimeoutMs: 60000 });
     }
   }
   /** Its sides wrap no tiers, like sides that were written without TierScheduler and TierWorker. */
   export class OwnSides extends MapConnector {
     openScheduler({ wrapTier, ...context }) { return super.openScheduler(context); }
     openWorker({ wrapTier, ...context }) { return super.openWorker(context); }
   }`,
);

const config = (kvConnector: string, kvConnectorExtraConfig: JsonObject, kvRole = 'kv_both') =>
  readKvTransferConfig({ kvConnector, kvRole, kvConnectorModulePath: file, kvConnectorExtraConfig });
const identity = { ...suiteIdentity, blockBytes: 512 };
const open = async (name: string, extra: JsonObject, loadTimeoutMs = 120_000) =>
  EngineHarness.open(await createConnector(config(name, extra)), {
    identities: [identity],
    blockCount: 64,
    loadTimeoutMs,
  });

let serial = 0;
connectorSuite("a user's module", {
  modes: inLongForm(['sync', 'async'], ['async']),
  ranks: [2],
  newStorage: () => `${serial++}`,
  create: (store, settings) =>
    createConnector(config('MapConnector', { store, mode: settings.mode, ...faultSettings(settings) }, settings.role)),
});

/** Cases without rules show that the sides around it change nothing, the others that their faults obey the contract. */
connectorSuite('a connector with sides of its own', {
  modes: inLongForm(['async', 'sync'], ['async']),
  ranks: inLongForm([1, 2], [2]),
  newStorage: () => `${serial++}`,
  create: (store, settings) =>
    createConnector(
      config('OwnSides', { store, mode: settings.mode, ...faultSettings({ rules: [], ...settings }) }, settings.role),
    ),
});

/** It stores compressed files; its loads are always asynchronous. */
if (isLongForm)
  connectorSuite('the example', {
    modes: ['async'],
    ranks: [1],
    newStorage: () => join(folder, `compressed-${serial++}`),
    create: (storage, settings) =>
      createConnector(
        readKvTransferConfig({
          kvConnector: 'CompressedConnector',
          kvRole: settings.role,
          kvConnectorModulePath: 'examples/compressed-kv-connector.js',
          kvConnectorExtraConfig: { folder: storage, ...faultSettings(settings) },
        }),
      ),
  });

const harmless: readonly FaultKind[] = ['slow', 'duplicate', 'late'];
describe.each(['MapConnector', 'OwnSides'])('fault injection into a module of the user, %s', (name) => {
  it.each(faultKinds.filter((fault) => fault !== 'full'))(
    '%s affects only the two blocks of the rule',
    async (fault) => {
      const prompt = promptOf(fault, 6);
      const store = `${name} ${fault}`;
      const writer = await open(name, { store });
      const written = writer.add('w', prompt);
      await writer.runToEnd();
      writer.end(written);
      await writer.runToDrained();
      await writer.close();
      const rules = [{ fault, blocks: [2, 4], delay_ms: 1 }];
      const read = async (loadTimeoutMs?: number) => {
        const reader = await open(name, { store, fault_injection: { rules } }, loadTimeoutMs);
        const request = reader.add('r', prompt);
        await reader.runToEnd();
        reader.end(request);
        await reader.close();
        return request;
      };
      const request =
        fault === 'hung' ? await withDeadlines(read, ({ failures }) => failures.length > 2) : await read();
      const failed = harmless.includes(fault) ? 0 : 2;
      expect([request.loadedBlocks, request.computedBlocks]).toEqual([6 - failed, failed]);
    },
  );
});

it('a wrong rule is refused when the connector is created', async () => {
  const wrong = config('MapConnector', { store: 'x', fault_injection: { rules: [{ fault: 'gremlins' }] } });
  await expect(createConnector(wrong)).rejects.toMatchObject({ code: 'KVASIR_KV_CONFIG_INVALID' });
});

it('OffloadingConnector without a tier below host memory has faults of look-ups and loads', async () => {
  const rules = [
    { fault: 'missing', on: 'has', blocks: [1] },
    { fault: 'truncated', blocks: [3] },
  ];
  const extra = { cpu_bytes_to_use: 1e6, kv_load_policy: 'always', fault_injection: { rules } };
  const engine = await EngineHarness.open(
    await createConnector(
      readKvTransferConfig({ kvConnector: 'OffloadingConnector', kvRole: 'kv_both', kvConnectorExtraConfig: extra }),
    ),
    { identities: [identity], blockCount: 64, loadTimeoutMs: 120_000 },
  );
  const prompt = promptOf('host', 6);
  const first = engine.add('first', prompt);
  await engine.runToEnd();
  engine.end(first);
  await engine.runToDrained();
  engine.invalidateBlocks();
  const again = engine.add('again', prompt);
  await engine.runToEnd();
  expect([again.loadedBlocks, again.computedBlocks, again.failures]).toEqual([4, 2, ['truncated']]);
  // One look-up for each request.
  expect(engine.counters).toMatchObject({ 'injected.missing': 2, 'tier.injected.truncated': 1 });
  await engine.close();
});
