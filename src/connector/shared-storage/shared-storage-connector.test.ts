import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { JsonValue } from '../../base/json.ts';
import { readKvTransferConfig } from '../config.ts';
import { connectorSuite, faultSettings } from '../connector.suite.ts';
import { SharedStorageConnector } from './shared-storage-connector.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-storage-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let serial = 0;

const make = (extra: Record<string, JsonValue>, role = 'kv_both') =>
  new SharedStorageConnector(
    readKvTransferConfig({ kvConnector: 'SharedStorageConnector', kvRole: role, kvConnectorExtraConfig: extra }),
  );

/**
 * So few that the next engine of two ranks can reuse the threads of a closed one: starting a thread costs more than a
 * case.
 */
const fewThreads = { loads_at_once: 2, saves_at_once: 1 };

/** Short for calls that a rule makes hang; long for others, so that they do not time out on a busy machine. */
const timeoutFor = (call: string, rules: readonly { readonly on: string }[] = []): number =>
  rules.some(({ on }) => on === call) ? 1 : 60;

connectorSuite('SharedStorageConnector', {
  newStorage: () => join(root, `${serial++}`),
  create: (storage, settings) =>
    make(
      {
        shared_storage_path: storage,
        async_load: settings.mode === 'async',
        max_bytes: settings.maxBytes ?? 1e9,
        ...fewThreads,
        lookup_timeout_seconds: timeoutFor('has', settings.rules),
        save_timeout_seconds: timeoutFor('store', settings.rules),
        ...faultSettings(settings),
      },
      settings.role,
    ),
});

describe('SharedStorageConnector: settings', () => {
  it.each<[Record<string, JsonValue>, RegExp]>([
    [{}, /shared_storage_path` must be a directory, got nothing/],
    [{ shared_storage_path: 'x', max_bytes: 0 }, /max_bytes` must be a number of at least 1, got 0/],
    [{ shared_storage_path: 'x', asyncload: true }, /asyncload` must be absent.*Did you mean `async_load`/],
    [{ shared_storage_path: 'x', fault_injection: { rules: [{ fault: 'x' }] } }, /rules\[0\]\.fault` must be one of/],
    [{ shared_storage_path: 'x', fault_injection: { rules: [{ fault: 'slow', blocks: ['a'] }] } }, /blocks` must be/],
  ])('%j are refused with a reason', (extra, message) => {
    expect(() => make(extra)).toThrow(message);
  });
});
