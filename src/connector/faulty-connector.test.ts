import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import type { JsonObject } from '../base/json.ts';
import { readKvTransferConfig } from './config.ts';
import { EngineHarness } from './connector-harness.suite.ts';
import { type FaultKind, faultKinds } from './fault-rules.ts';
import { createConnector } from './registry.ts';
import { suiteIdentity, suiteKey } from './tier.suite.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-faulty-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A user's module: a tier of its own in memory, without `tamper`, and a class that knows nothing of faults. */
const here = pathToFileURL(`${process.cwd()}/dist/src/connector/`).href;
const file = join(folder, 'mine.mjs');
writeFileSync(
  file,
  `import { TierScheduler } from '${here}tier-scheduler.js';
   import { TierWorker } from '${here}tier-worker.js';
   const stores = new Map();
   class MapTier {
     name = 'map';
     constructor(blocks) { this.blocks = blocks; }
     async has(keys) { return keys.map((key) => this.blocks.has(key)); }
     async load(key, into) { const found = this.blocks.get(key); if (found === undefined) return 'absent'; into.set(found); }
     async store(key, bytes) { this.blocks.set(key, bytes.slice()); return 'stored'; }
     async delete(key) { this.blocks.delete(key); }
     takeEvicted() { return []; }
     counters() { return {}; }
     async close() {}
   }
   export class MapConnector {
     constructor({ kvConnectorExtraConfig: extra, kvRole }) {
       if (Object.keys(extra).join() !== 'store') throw new Error('unknown settings: ' + Object.keys(extra));
       if (!stores.has(extra.store)) stores.set(extra.store, new Map());
       this.blocks = stores.get(extra.store);
       this.role = kvRole;
     }
     async openScheduler(context) {
       return new TierScheduler([new MapTier(this.blocks)], context, { role: this.role, mode: 'async', lookupTimeoutMs: 60000 });
     }
     async openWorker(context) {
       return new TierWorker(new MapTier(this.blocks), context, { loadsAtOnce: 4, savesAtOnce: 2, saveBufferBytes: 1e8, saveTimeoutMs: 60000 });
     }
   }
   export class OwnHalves { async openScheduler() { return {}; } async openWorker() { return {}; } }`,
);

const config = (kvConnector: string, kvConnectorExtraConfig: JsonObject) =>
  readKvTransferConfig({ kvConnector, kvRole: 'kv_both', kvConnectorModulePath: file, kvConnectorExtraConfig });
const identity = { ...suiteIdentity, pageBytes: 512 };
const open = async (extra: JsonObject) =>
  EngineHarness.open(await createConnector(config('MapConnector', extra)), {
    identities: [identity],
    pageCount: 64,
    loadTimeoutMs: 300,
  });

describe('fault injection into a module of the user', () => {
  const harmless: readonly FaultKind[] = ['slow', 'duplicate', 'late'];
  it.each(faultKinds.filter((fault) => fault !== 'full'))('%s: two blocks of six, and no other', async (fault) => {
    const keys = Array.from({ length: 6 }, (_, i) => suiteKey(`${fault}/${i}`));
    const writer = await open({ store: fault });
    const written = writer.add('w', keys);
    await writer.runToEnd();
    writer.end(written);
    await writer.runToDrained();
    await writer.close();
    const rules = [{ fault, blocks: [2, 4], delay_ms: 1 }];
    const reader = await open({ store: fault, fault_injection: { rules } });
    const request = reader.add('r', keys);
    await reader.runToEnd();
    const lost = harmless.includes(fault) ? 0 : 2;
    expect([request.loadedBlocks, request.computedBlocks]).toEqual([6 - lost, lost]);
    reader.end(request);
    await reader.close();
  });

  it('is refused where the connector has halves of its own, and where a rule is wrong', async () => {
    const own = await createConnector(config('OwnHalves', { fault_injection: { rules: [] } }));
    const context = { identities: [identity] } as unknown as Parameters<typeof own.openScheduler>[0];
    await expect(own.openScheduler(context)).rejects.toMatchObject({ code: 'KVASIR_FAULTS_NOT_REACHED' });
    const wrong = config('MapConnector', { store: 'x', fault_injection: { rules: [{ fault: 'gremlins' }] } });
    await expect(createConnector(wrong)).rejects.toMatchObject({ code: 'KVASIR_KV_CONFIG_INVALID' });
  });
});
