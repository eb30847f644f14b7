import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildCommand } from '../test/support/cli-process.ts';
import { needs } from '../test/support/needs.ts';
import { hasRedisServer, needsRedisServer, RedisServer } from '../test/support/redis-server.ts';
import { hasS3Server, noS3Server, S3Server, s3Credentials } from '../test/support/s3-server.ts';
import { writeTinyModel } from '../test/support/tiny-model.ts';
import type { JsonObject } from './base/json.ts';
import { checkEngineOptions } from './compose-check.ts';
import type { EngineOptions } from './engine/options.ts';

const model = 'models/kvasir-demo.gguf';
const folder = mkdtempSync(join(tmpdir(), 'kvasir-check-'));
// Threads of the disk tier need the built files.
beforeAll(buildCommand);
afterAll(() => rmSync(folder, { recursive: true }));

const withTiers = (...secondary_tiers: JsonObject[]): EngineOptions => ({
  model,
  kvTransferConfig: {
    kv_connector: 'OffloadingConnector',
    kv_role: 'kv_both',
    kv_connector_extra_config: { spec_name: 'TieringOffloadingSpec', cpu_bytes_to_use: 1 << 20, secondary_tiers },
  },
});
const sharedStorage = (shared_storage_path: string): EngineOptions => ({
  model,
  kvTransferConfig: {
    kv_connector: 'SharedStorageConnector',
    kv_role: 'kv_both',
    kv_connector_extra_config: { shared_storage_path },
  },
});
/** However long a store takes. */
const patienceMs = 2 ** 31 - 1;
const codeOf = (error: { readonly code?: unknown }): unknown => error.code;
const check = (options: EngineOptions): Promise<void> => checkEngineOptions(options, true, patienceMs);

describe('options are refused before the weights of a model are read', () => {
  const file = join(folder, 'file');
  writeFileSync(file, '');
  const demo = readFileSync(model);
  const changed = (name: string, change: (bytes: Buffer) => Buffer): string => {
    const path = join(folder, name);
    writeFileSync(path, change(Buffer.from(demo)));
    return path;
  };
  const foreign = join(folder, 'foreign.gguf');
  beforeAll(() => writeTinyModel(foreign, { architecture: 'llama', type: 'F32', vocab: 600 }));
  const unknown = changed('unknown.gguf', (bytes) => {
    bytes.write('lamma', bytes.indexOf('llama'));
    return bytes;
  });

  it('of several models do not concern the bundled one', async () => {
    const speculativeConfig = { model: foreign, num_speculative_tokens: 2 };
    await expect(checkEngineOptions({ model, speculativeConfig }, false, patienceMs)).resolves.toBeUndefined();
  });

  it.each<[string, EngineOptions, string]>([
    ['speculation', { model, speculativeConfig: { method: 'no' } as never }, 'KVASIR_SPECULATIVE_CONFIG_INVALID'],
    ['a model file that is not there', { model: join(folder, 'no.gguf') }, 'KVASIR_MODEL_FILE_UNREADABLE'],
    ['an empty file', { model: file }, 'KVASIR_NOT_GGUF'],
    ['a file that is no model', { model: 'README.md' }, 'KVASIR_NOT_GGUF'],
    [
      'a model that ends early',
      { model: changed('cut.gguf', (bytes) => bytes.subarray(0, -9)) },
      'KVASIR_GGUF_TRUNCATED',
    ],
    ['an unknown architecture', { model: unknown }, 'KVASIR_ARCHITECTURE_UNSUPPORTED'],
    [
      'a draft model with another vocabulary',
      { model, speculativeConfig: { model: foreign, num_speculative_tokens: 2 } },
      'KVASIR_DRAFT_VOCABULARY_DIFFERS',
    ],
    ['a name without hf:', { model: 'Qwen/Qwen3-0.6B' }, 'KVASIR_MODEL_NOT_PATH'],
    ['KV events', { model, kvEventsConfig: { endpoint: 5 } as never }, 'KVASIR_KV_EVENTS_CONFIG_INVALID'],
    [
      'a connector',
      { model, kvTransferConfig: { kv_connector: 'No', kv_role: 'kv_both' } },
      'KVASIR_CONNECTOR_UNKNOWN',
    ],
    ['a directory of a tier', withTiers({ type: 'fs', root_dir: join(file, 'kv') }), 'KVASIR_STORAGE_UNUSABLE'],
    ['a directory of shared storage', sharedStorage(file), 'KVASIR_STORAGE_UNUSABLE'],
    [
      'a class of a tier',
      withTiers({ type: 'No', module_path: 'dist/test/support/wrong-tiers.js' }),
      'KVASIR_TIER_CLASS_INVALID',
    ],
  ])('%s', async (_, options, code) => {
    await expect(check(options)).rejects.toMatchObject({ code });
  });

  it('a password of Redis; a right one leaves nothing behind', needs(hasRedisServer, needsRedisServer), async () => {
    const server = await RedisServer.start(['--requirepass', 'right']);
    const at = (password: string) => withTiers({ type: 'redis', url: `redis://:${password}@127.0.0.1:${server.port}` });
    await check(at('right'));
    await expect(check(at('wrong'))).rejects.toMatchObject({ code: 'KVASIR_REDIS_REFUSED' });
    await server.stop();
  });

  it('a bucket', needs(hasS3Server, noS3Server), async () => {
    const server = await S3Server.start('kvasir');
    const { accessKeyId: access_key, secretAccessKey } = s3Credentials;
    const at = (bucket: string, secret_key = secretAccessKey) => {
      const store = { bucket, endpoint_override: server.endpoint, region: 'us-east-1', access_key, secret_key };
      return withTiers({ type: 'obj', store_config: store });
    };
    await check(at('kvasir'));
    // On a busy machine, the bucket may answer too late to be refused.
    for (const options of [at('another'), at('kvasir', 'wrong')])
      await expect.poll(() => check(options).catch(codeOf)).toBe('KVASIR_BUCKET_UNUSABLE');
    await server.stop();
  });
});

describe('options pass', () => {
  it('without a connector, and with a name on the hub, which is not downloaded', async () => {
    await check({ model });
    await check({ model: 'hf:owner/name:Q8_0' });
  });

  it('with a store that is down, or that accepts connections and never answers', async () => {
    await check(withTiers({ type: 'redis', url: 'redis://127.0.0.1:9' }));
    const silent = createServer(() => undefined).listen(0, '127.0.0.1');
    await new Promise((resolve) => silent.once('listening', resolve));
    const { port } = silent.address() as { port: number };
    await checkEngineOptions(withTiers({ type: 'redis', url: `redis://127.0.0.1:${port}` }), true, 1);
    silent.close();
  });
});
