import { assert } from '../base/assert.ts';
import { KvasirError } from '../base/errors.ts';
import { didYouMean } from '../base/nearest-name.ts';
import { AuthenticatingConnector } from './authenticating-connector.ts';
import type { KvConnector, KvConnectorClass, KvTransferConfig } from './connector.ts';
import {
  connectorClassInvalid,
  connectorClassMissing,
  connectorModuleFailed,
  connectorUnknown,
  kvConfigInvalid,
} from './errors.ts';
import { FaultyConnector, takeFaults } from './fault/faulty-connector.ts';
import { isMulti, multiName } from './multi/multi-settings.ts';
import { type Exported, exportOf, importModule, isRecord, messageOf } from './own-module.ts';

/** The built-in connectors, imported when a configuration names them. */
const loaders = new Map<string, () => Promise<KvConnectorClass>>([
  ['OffloadingConnector', async () => (await import('./offloading/offloading-connector.ts')).OffloadingConnector],
  [
    'SharedStorageConnector',
    async () => (await import('./shared-storage/shared-storage-connector.ts')).SharedStorageConnector,
  ],
]);

/**
 * Registers a connector under a new name, for programs that embed the engine. The command line takes a module instead.
 *
 * ```ts
 * registerConnector('MapConnector', async () => MapConnector);
 * const engine = await createEngine({
 *   model: 'model.gguf',
 *   kvTransferConfig: { kv_connector: 'MapConnector', kv_role: 'kv_both' },
 * });
 * ```
 */
export function registerConnector(name: string, load: () => Promise<KvConnectorClass>): void {
  assert(!isKnown(name), `a connector named ${name} is registered already`);
  loaders.set(name, load);
}

const isKnown = (name: string): boolean => name === multiName || loaders.has(name);

/**
 * Finds the class, by `kvConnectorModulePath` first as in vLLM, and creates the connector. The class checks its settings.
 * A relative path starts at the working directory; a path without a file is the name of a package.
 * @throws KvasirError `connectorUnknown`, `connectorModuleFailed`, `connectorClassMissing`, `connectorClassInvalid`,
 * `keyFileInvalid`, `kvConfigInvalid`, `connectorIgnoresKeys`, `connectorIgnoresEncryption`, or the error of the class.
 */
export async function createConnector(given: KvTransferConfig): Promise<KvConnector> {
  // Keys and faults are those of its connectors.
  if (isMulti(given)) return (await import('./multi/multi-connector.ts')).createMultiConnector(given, createConnector);
  const { config, plan } = takeFaults(given);
  const bare = await createBare(config);
  const { kvTransferKeyFile: keyFile, kvTransferEncrypt: encrypts = false } = config;
  if (encrypts && keyFile === undefined) {
    const parameter = 'kv_transfer_encrypt';
    const expected = 'false, or together with kv_transfer_key_file, which has the keys';
    throw kvConfigInvalid({ parameter, expected, actual: 'true', hint: '' });
  }
  const connector =
    keyFile === undefined ? bare : new AuthenticatingConnector(bare, { name: config.kvConnector, keyFile, encrypts });
  return plan === undefined ? connector : new FaultyConnector(connector, plan);
}

async function createBare(config: KvTransferConfig): Promise<KvConnector> {
  const path = config.kvConnectorModulePath;
  const connectorClass =
    path === undefined ? await loadBuiltIn(config.kvConnector) : await loadFromModule(path, config.kvConnector);
  let connector: KvConnector;
  try {
    connector = new connectorClass(config);
  } catch (error) {
    if (error instanceof KvasirError) throw error;
    const reason = `its constructor threw "${messageOf(error)}"`;
    throw connectorClassInvalid({ name: config.kvConnector, path: path ?? 'the registry', reason }, error);
  }
  for (const method of ['openScheduler', 'openWorker'] as const) {
    if (typeof connector[method] === 'function') continue;
    const reason = `it has no method ${method}`;
    throw connectorClassInvalid({ name: config.kvConnector, path: path ?? 'the registry', reason });
  }
  return connector;
}

function loadBuiltIn(name: string): Promise<KvConnectorClass> {
  const load = loaders.get(name);
  if (load !== undefined) return load();
  const known = [...loaders.keys(), multiName];
  throw connectorUnknown({ name, hint: didYouMean(name, known), known: known.join(', ') });
}

async function loadFromModule(path: string, name: string): Promise<KvConnectorClass> {
  let exported: Exported;
  try {
    exported = await importModule(path);
  } catch (error) {
    throw connectorModuleFailed({ path, reason: messageOf(error) }, error);
  }
  const found = exportOf(exported, name);
  if (found === undefined) {
    const names = Object.keys(exported);
    throw connectorClassMissing({
      path,
      name,
      hint: didYouMean(name, names),
      exports: names.join(', ') || 'nothing',
    });
  }
  if (typeof found !== 'function' || !isRecord(found.prototype)) {
    throw connectorClassInvalid({ name, path, reason: `it is ${article(typeof found)}, not a class` });
  }
  return found as unknown as KvConnectorClass;
}

const article = (noun: string): string => (/^[aeiou]/.test(noun) ? `an ${noun}` : `a ${noun}`);
