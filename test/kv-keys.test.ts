/**
 * `--kv-transfer-key-file` and `--kv-transfer-encrypt` with whole engines: blocks that were swapped, changed, taken from another model or written without the key
 * are failed loads with reasons of their own, and the text is the same.
 */
import { randomBytes } from 'node:crypto';
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { crc32 } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { JsonObject } from '../src/base/json.ts';
import { createEngine } from '../src/compose.ts';
import { headerBytes } from '../src/connector/tier/block-header.ts';
import type { RequestStats } from '../src/core/request.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { buildCommand } from './support/cli-process.ts';
import { promptOf } from './support/drive.ts';
import { itInLongForm } from './support/long-form.ts';
import { until } from './support/until.ts';

// Threads of the disk tier and worker processes need the built files.
beforeAll(buildCommand);
const folder = mkdtempSync(join(tmpdir(), 'kvasir-kv-keys-'));
afterAll(() => rmSync(folder, { recursive: true }));

const newKey = (): string => `${randomBytes(32).toString('hex')}\n`;
function keyFile(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text, { mode: 0o600 });
  return path;
}
const [ours, others] = [newKey(), newKey()];
const ourKey = keyFile('ours', ours);
const theirKey = keyFile('theirs', others);
const promptTokens = 200;
const blockCount = Math.floor(promptTokens / 16);

/** Answers of an engine on a store, and why its loads failed. */
async function ask(
  store: string,
  key: string | undefined,
  more: Partial<EngineOptions> = {},
  { encrypts = false, faults }: { readonly encrypts?: boolean; readonly faults?: JsonObject } = {},
) {
  const messages: string[] = [];
  const engine = await createEngine({
    model: 'models/kvasir-demo.gguf',
    threads: 1,
    kvCacheMemory: 3 << 20,
    maxModelLen: 512,
    onEvent: ({ message }) => void messages.push(message),
    kvTransferConfig: {
      kv_connector: 'SharedStorageConnector',
      kv_role: 'kv_both',
      kv_connector_extra_config: {
        shared_storage_path: store,
        lookup_timeout_seconds: 60,
        load_timeout_seconds: 60,
        loads_at_once: 2,
        saves_at_once: 1,
        ...(faults === undefined ? {} : { fault_injection: faults }),
      },
      ...(key === undefined ? {} : { kv_transfer_key_file: key }),
      ...(encrypts ? { kv_transfer_encrypt: true } : {}),
    },
    ...more,
  });
  const tokens: number[] = [];
  let stats: RequestStats | undefined;
  try {
    const params = { maxTokens: 8, temperature: 0, ignoreEos: true };
    for await (const delta of engine.generate({ prompt: [...promptOf(promptTokens, 1, 250)], params })) {
      tokens.push(...delta.tokenIds);
      stats = delta.stats;
    }
    // The reports of the last saves come with later steps.
    await until(() => engine.stats().transfers.open === 0);
    const { loadFailed = {} } = engine.stats().transfers.connector;
    return { tokens, loaded: stats?.externalTokens ?? 0, failed: loadFailed, messages };
  } finally {
    await engine.close();
  }
}

const blocksIn = (store: string): string[] =>
  readdirSync(store, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.kv'))
    .map((name) => join(store, name))
    .sort();

function withRightCrcs(block: Buffer): Buffer {
  block.writeUInt32LE(crc32(block.subarray(headerBytes)), 92);
  block.writeUInt32LE(crc32(block.subarray(0, 156)), 156);
  return block;
}

describe('an engine with a key file', () => {
  let expected: readonly number[];
  const stored = join(folder, 'stored');
  const plain = join(folder, 'plain');
  beforeAll(async () => {
    const first = await ask(stored, ourKey);
    expected = first.tokens;
    expect(first.failed).toEqual({});
    expect(blocksIn(stored).length).toBeGreaterThanOrEqual(blockCount);
    await ask(plain, undefined);
  });
  const copyOf = (store: string, name: string): string => {
    const copy = join(folder, name);
    cpSync(store, copy, { recursive: true });
    return copy;
  };

  it('loads the blocks of an engine with its key, and an engine without keys loads them too', async () => {
    for (const key of [ourKey, undefined]) {
      const { tokens, loaded, failed, messages } = await ask(copyOf(stored, `whole-${key === undefined}`), key);
      expect(tokens).toEqual(expected);
      expect(loaded).toBe(blockCount * 16);
      expect(failed).toEqual({});
      expect(messages).toEqual([]);
    }
  });

  it.each<[string, string, (files: readonly string[]) => void]>([
    [
      'swapped under the names of each other',
      'macWrong',
      (files) => {
        const all = files.map((file) => readFileSync(file));
        for (const [i, file] of files.entries()) {
          const other = Buffer.from(all[(i + 1) % all.length]!);
          // With the digest of the right block, so that only the MAC tells.
          all[i]!.copy(other, 104, 104, 136);
          writeFileSync(file, withRightCrcs(other));
        }
      },
    ],
    [
      'stripped of their MAC',
      'macMissing',
      (files) => {
        for (const file of files) writeFileSync(file, withRightCrcs(readFileSync(file).fill(0, 136, 156)));
      },
    ],
    [
      'changed in one bit with right checksums',
      'macWrong',
      (files) => {
        for (const file of files) {
          const block = readFileSync(file);
          block[headerBytes + 1000]! ^= 1;
          writeFileSync(file, withRightCrcs(block));
        }
      },
    ],
  ])('computes blocks again that were %s, with the same text', async (what, reason, attack) => {
    const store = copyOf(stored, what.replaceAll(' ', '-'));
    attack(blocksIn(store));
    const { tokens, failed, messages } = await ask(store, ourKey);
    expect(tokens).toEqual(expected);
    expect(failed).toEqual({ [reason]: blockCount });
    expect(messages.join()).toContain('Recovered from KV load failure');
    // The blocks were stored again, with a MAC.
    const again = await ask(store, ourKey);
    expect([again.loaded, again.failed]).toEqual([blockCount * 16, {}]);
  });

  it('computes blocks of another key and without a key again, and shares both keys during a rotation', async () => {
    const both = keyFile('both', `# new\n${others}# old\n${ours}`);
    expect((await ask(copyOf(plain, 'no-key'), ourKey)).failed).toEqual({ macMissing: blockCount });
    const other = await ask(copyOf(stored, 'other-key'), theirKey);
    expect([other.tokens, other.failed]).toEqual([expected, { macKeyUnknown: blockCount }]);
    const rotating = await ask(stored, both);
    expect([rotating.tokens, rotating.loaded, rotating.failed]).toEqual([expected, blockCount * 16, {}]);
  });

  it('computes blocks of another model again that were copied under this model’s names', async () => {
    const foreign = join(folder, 'foreign');
    // Other numerics are another fingerprint, as another model would be, and the blocks have the same length.
    await ask(foreign, ourKey, { numerics: 'fast' });
    const store = copyOf(stored, 'replayed');
    const names = new Map(blocksIn(store).map((file) => [basename(file), file]));
    for (const [i, file] of blocksIn(foreign).entries()) {
      const target = names.get(basename(file)) ?? [...names.values()][i];
      if (target !== undefined) copyFileSync(file, target);
    }
    const { tokens, failed } = await ask(store, ourKey);
    expect(tokens).toEqual(expected);
    expect(failed).toEqual({ wrongModel: blockCount });
  });

  itInLongForm('gives the keys to ranks in worker processes, and warns once if others can read the file', async () => {
    const store = join(folder, 'two-ranks');
    const open = join(folder, 'open');
    writeFileSync(open, ours, { mode: 0o644 });
    const first = await ask(store, open, { pipelineParallelSize: 2 });
    expect(first.tokens).toEqual(expected);
    expect(first.messages.filter((message) => message.includes('Others can read the key file'))).toHaveLength(1);
    for (const file of blocksIn(store)) expect(readFileSync(file).readUInt32LE(136)).not.toBe(0);
    const stripped = blocksIn(store).filter((file) => basename(dirname(dirname(file))) === 'rank1of2');
    for (const file of stripped) writeFileSync(file, withRightCrcs(readFileSync(file).fill(0, 136, 156)));
    const { tokens, failed } = await ask(store, ourKey, { pipelineParallelSize: 2 });
    expect(tokens).toEqual(expected);
    expect(failed).toEqual({ macMissing: blockCount });
  });
});

describe('an engine that encrypts', () => {
  const encrypted = join(folder, 'encrypted');
  const encrypts = { encrypts: true };
  let expected: readonly number[];
  beforeAll(async () => {
    const plain = await ask(join(folder, 'not-encrypted'), ourKey);
    const first = await ask(encrypted, ourKey, {}, encrypts);
    expected = plain.tokens;
    expect([first.tokens, first.failed]).toEqual([expected, {}]);
  });
  const copyOf = (name: string): string => {
    const copy = join(folder, name);
    cpSync(encrypted, copy, { recursive: true });
    return copy;
  };

  it('loads its blocks, shares them with engines that only have its key, and not with others', async () => {
    for (const file of blocksIn(encrypted)) expect(readFileSync(file).readUInt32LE(8)).toBe(2);
    for (const how of [encrypts, {}]) {
      const { tokens, loaded, failed } = await ask(copyOf(`whole-${'encrypts' in how}`), ourKey, {}, how);
      expect([tokens, loaded, failed]).toEqual([expected, blockCount * 16, {}]);
    }
    const without = await ask(copyOf('without-key'), undefined);
    expect([without.tokens, without.failed]).toEqual([expected, { encryptionKeyUnknown: blockCount }]);
    const mixed = await ask(join(folder, 'not-encrypted'), ourKey, {}, encrypts);
    expect([mixed.tokens, mixed.failed]).toEqual([expected, { notEncrypted: blockCount }]);
  });

  it.each<[string, string, (files: readonly string[]) => void]>([
    [
      'swapped under the names of each other',
      'decryptionFailed',
      (files) => {
        const all = files.map((file) => readFileSync(file));
        for (const [i, file] of files.entries()) {
          const other = Buffer.from(all[(i + 1) % all.length]!);
          all[i]!.copy(other, 104, 104, 136);
          other.writeUInt32LE(crc32(other.subarray(0, 156)), 156);
          writeFileSync(file, other);
        }
      },
    ],
    [
      'changed in one bit',
      'decryptionFailed',
      (files) => {
        for (const [i, file] of files.entries()) {
          const block = readFileSync(file);
          block[headerBytes + i * 97]! ^= 1 << (i % 8);
          writeFileSync(file, block);
        }
      },
    ],
    [
      'cut short',
      'truncated',
      (files) => {
        for (const [i, file] of files.entries()) writeFileSync(file, readFileSync(file).subarray(0, headerBytes + i));
      },
    ],
  ])('computes blocks again that were %s, with the same text', async (what, reason, attack) => {
    const store = copyOf(`encrypted-${what.replaceAll(' ', '-')}`);
    attack(blocksIn(store));
    const { tokens, failed } = await ask(store, ourKey, {}, encrypts);
    expect([tokens, failed]).toEqual([expected, { [reason]: blockCount }]);
    const again = await ask(store, ourKey, {}, encrypts);
    expect([again.loaded, again.failed]).toEqual([blockCount * 16, {}]);
  });

  it('has the same text while the store damages blocks', async () => {
    const rules = ['bitFlip', 'truncated', 'wrongModel', 'partial', 'duplicate', 'missing'].map((fault) => ({
      fault,
      on: 'load',
      probability: 0.2,
    }));
    const { tokens, failed } = await ask(copyOf('injected'), ourKey, {}, { ...encrypts, faults: { seed: 7, rules } });
    expect(tokens).toEqual(expected);
    expect(Object.keys(failed).length).toBeGreaterThan(1);
  });

  it('rotates keys: two engines with both keys share blocks, whichever writes first', async () => {
    const store = join(folder, 'rotation');
    const [oldFirst, newFirst] = [keyFile('old-first', `${ours}${others}`), keyFile('new-first', `${others}${ours}`)];
    await ask(store, oldFirst, {}, encrypts);
    const [a, b] = await Promise.all([ask(store, newFirst, {}, encrypts), ask(store, oldFirst, {}, encrypts)]);
    for (const { tokens, loaded, failed } of [a, b])
      expect([tokens, loaded, failed]).toEqual([expected, blockCount * 16, {}]);
    const retired = await ask(store, theirKey, {}, encrypts);
    expect([retired.tokens, retired.failed]).toEqual([expected, { encryptionKeyUnknown: blockCount }]);
    const stored = await ask(store, newFirst, {}, encrypts);
    expect([stored.loaded, stored.failed]).toEqual([blockCount * 16, {}]);
  });

  it('needs a key file', async () => {
    await expect(ask(folder, undefined, { model: 'no-model.gguf' }, encrypts)).rejects.toMatchObject({
      code: 'KVASIR_KV_CONFIG_INVALID',
    });
  });
});

it('a missing key file is an error before the model is loaded', async () => {
  mkdirSync(join(folder, 'unused'), { recursive: true });
  await expect(ask(join(folder, 'unused'), join(folder, 'no-file'), { model: 'no-model.gguf' })).rejects.toMatchObject({
    code: 'KVASIR_KEY_FILE_INVALID',
  });
});
