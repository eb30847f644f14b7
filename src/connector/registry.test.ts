import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { readKvTransferConfig } from './config.ts';
import { createConnector, registerConnector } from './registry.ts';
import { SharedStorageConnector } from './shared-storage/shared-storage-connector.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-registry-'));
afterAll(() => rmSync(folder, { recursive: true }));

const file = join(folder, 'mine.mjs');
writeFileSync(
  file,
  `export class MyConnector {
     constructor(config) { this.config = config; if (config.kvConnectorExtraConfig.explode) throw new Error('boom'); }
     async openScheduler() {}
     async openWorker() {}
   }
   export class HalfConnector { async openScheduler() {} }
   export const notAClass = 3;
   export const arrow = () => {};`,
);
const commonJs = join(folder, 'old.cjs');
writeFileSync(commonJs, 'exports.OldConnector = class { async openScheduler() {} async openWorker() {} };');
const unreadable = join(folder, 'broken.mjs');
writeFileSync(unreadable, 'export class {');

const create = (kvConnector: string, more: Record<string, string | Record<string, boolean | string>> = {}) =>
  createConnector(readKvTransferConfig({ kvConnector, kvRole: 'kv_both', ...more }));

describe('a connector by name', () => {
  it('is created when it is built in', async () => {
    const extra = { kvConnectorExtraConfig: { shared_storage_path: folder } };
    expect(await create('SharedStorageConnector', extra)).toBeInstanceOf(SharedStorageConnector);
  });

  it('with an unknown name is an error that suggests the nearest name', async () => {
    await expect(create('SharedStorageConector')).rejects.toThrow(/Did you mean `SharedStorageConnector`/);
    await expect(create('Nixl')).rejects.toMatchObject({ code: 'KVASIR_CONNECTOR_UNKNOWN' });
  });

  it('with wrong settings is an error that names the setting', async () => {
    await expect(create('SharedStorageConnector')).rejects.toThrow(/shared_storage_path` must be a directory/);
  });

  it('can be registered once by a program', async () => {
    const load = async () => (await import('./shared-storage/shared-storage-connector.ts')).SharedStorageConnector;
    registerConnector('AddedConnector', load);
    expect(() => registerConnector('AddedConnector', load)).toThrow(/registered already/);
    const extra = { kvConnectorExtraConfig: { shared_storage_path: folder } };
    expect(await create('AddedConnector', extra)).toBeInstanceOf(SharedStorageConnector);
  });
});

describe('a connector from a module', () => {
  it.each([file, pathToFileURL(file).href, relative(process.cwd(), file)])('is found at %s', async (path) => {
    const connector = await create('MyConnector', { kvConnectorModulePath: path });
    expect(connector.constructor.name).toBe('MyConnector');
    expect(connector).toMatchObject({ config: { kvConnector: 'MyConnector', kvRole: 'kv_both' } });
  });

  it('is found when the module is CommonJS', async () => {
    expect((await create('OldConnector', { kvConnectorModulePath: commonJs })).constructor).toBeDefined();
  });

  it.each<[string, string, RegExp]>([
    ['MyConnector', join(folder, 'absent.mjs'), /cannot be imported: .*absent\.mjs/],
    ['MyConnector', 'no-such-package-here', /cannot be imported: .*no-such-package-here/],
    ['MyConnector', unreadable, /cannot be imported/],
    ['MyConector', file, /exports no `MyConector`\. Did you mean `MyConnector`\? It exports: .*HalfConnector/],
    ['notAClass', file, /is not a connector: it is a number, not a class/],
    ['arrow', file, /is not a connector: it is a function, not a class/],
    ['HalfConnector', file, /is not a connector: it has no method openWorker/],
  ])('%s from %s is refused with a reason', async (name, path, message) => {
    await expect(create(name, { kvConnectorModulePath: path })).rejects.toThrow(message);
  });

  it('whose constructor throws is refused with the message of the error', async () => {
    const more = { kvConnectorModulePath: file, kvConnectorExtraConfig: { explode: true } };
    await expect(create('MyConnector', more)).rejects.toThrow(/its constructor threw "boom"/);
  });
});
