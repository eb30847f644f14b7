/** An engine loads KV of the same model file with any name, and never KV of another model, however similar. */
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEngine } from '../src/compose.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { readGguf } from '../src/ggml/gguf.ts';
import { promptOf } from './support/drive.ts';
import { inLongForm, itInLongForm } from './support/long-form.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
const prompt = promptOf(200, 3, 250);

/** The output of one engine, and the number of tokens that it loaded from a store. */
async function answer(model: string, more: Partial<EngineOptions> = {}, store?: string) {
  const extra = { shared_storage_path: store ?? '' };
  const kvTransferConfig = {
    kv_connector: 'SharedStorageConnector',
    kv_role: 'kv_both',
    kv_connector_extra_config: extra,
  };
  const engine = await createEngine({
    model,
    threads: 1,
    kvCacheMemory: 16 << 20,
    maxModelLen: 512,
    ...(store === undefined ? {} : { kvTransferConfig }),
    ...more,
  });
  try {
    const outputs: unknown[] = [];
    const params = { maxTokens: 12, temperature: 0, ignoreEos: true, logprobs: 1 };
    for await (const { tokenIds, logprobs } of engine.generate({ prompt, params })) outputs.push(tokenIds, logprobs);
    return { text: JSON.stringify(outputs), externalTokens: engine.stats().externalTokens };
  } finally {
    await engine.close();
  }
}

/** Writes another model with the same name, header, size and first 4096 bytes of each tensor. */
async function writeCopy(path: string, copy: string): Promise<void> {
  const bytes = readFileSync(path);
  for (const { fileOffset, byteLength, type } of (await readGguf(path)).tensors.values()) {
    if (type.name !== 'F16') continue;
    for (let at = fileOffset + 4096; at < fileOffset + byteLength; at += 2) bytes[at + 1]! ^= 0x80;
  }
  mkdirSync(dirname(copy), { recursive: true });
  writeFileSync(copy, bytes);
}

const model = folder.file('model.gguf');
const copy = folder.file('twin/model.gguf');
beforeAll(async () => {
  await writeTinyModel(model, { architecture: 'llama', type: 'F16', layers: 2 });
  await writeCopy(model, copy);
});

describe('KV in a store', () => {
  it('is not loaded by a model that differs only after the first 4096 bytes of each tensor', async () => {
    const store = folder.file('twins');
    const expected = (await answer(copy)).text;
    expect((await answer(model, {}, store)).text).not.toBe(expected);
    expect(await answer(copy, {}, store)).toEqual({ text: expected, externalTokens: 0 });
    expect(readdirSync(store)).toHaveLength(2);
  });

  itInLongForm('is not loaded by such a model with ranks in worker processes', async () => {
    const store = folder.file('twins of two ranks');
    const two: Partial<EngineOptions> = { pipelineParallelSize: 2 };
    const expected = (await answer(copy)).text;
    await answer(model, two, store);
    expect(await answer(copy, two, store)).toEqual({ text: expected, externalTokens: 0 });
    expect(await answer(copy, two, store)).toEqual({ text: expected, externalTokens: prompt.length - 8 });
  });

  it('is loaded by all names and copies of one file, with any number of threads', async () => {
    const store = folder.file('names');
    const { text } = await answer(model, { servedModelName: 'one' }, store);
    const copy = folder.file('copy.gguf');
    copyFileSync(model, copy);
    const shared = { text, externalTokens: prompt.length - 8 };
    expect(await answer(model, { servedModelName: 'another/name' }, store)).toEqual(shared);
    expect(await answer(copy, { threads: 2, maxNumBatchedTokens: 48 }, store)).toEqual(shared);
    expect(readdirSync(store)).toHaveLength(1);
  });

  it.each<[string, Partial<EngineOptions>]>([
    ['another block size', { blockSize: 32 }],
    ['another type of KV', { kvCacheDtype: 'q8_0' }],
    ['fast numerics', { numerics: 'fast' }],
    ["ggml's attention", { attention: 'gather' }],
  ])('is not loaded by an engine with %s', async (what, more) => {
    const store = folder.file(what);
    await answer(model, {}, store);
    const { text } = await answer(model, more);
    expect(await answer(model, more, store)).toEqual({ text, externalTokens: 0 });
  });

  it('is loaded only with the same divisors of LongRoPE, which the longest sequence chooses', async () => {
    const phi = folder.file('phi.gguf');
    await writeTinyModel(phi, { architecture: 'phi3', type: 'F16', ropeScaling: 'longrope', originalContext: 300 });
    const store = folder.file('divisors');
    // With exact numerics, the fingerprint has more than with fast ones.
    for (const numerics of inLongForm(['fast', 'exact'] as const, ['fast'] as const)) {
      const long = await answer(phi, { numerics }, store);
      const short = await answer(phi, { numerics, maxModelLen: 300 }, store);
      expect([long.externalTokens, short.externalTokens]).toEqual([0, 0]);
      expect(short.text).not.toBe(long.text);
      expect((await answer(phi, { numerics, maxModelLen: 301 }, store)).externalTokens).toBe(prompt.length - 8);
    }
  });
});

describe('a model file', () => {
  it('is hashed only if there is a connector', async () => {
    let hashed = 0;
    const copy = folder.file('never seen.gguf');
    copyFileSync(model, copy);
    const onDigestProgress = (): void => void hashed++;
    await answer(copy, { onDigestProgress });
    expect(hashed).toBe(0);
    await answer(copy, { onDigestProgress }, folder.file('hashed'));
    expect(hashed).toBeGreaterThan(0);
  });

  it('that is replaced after its header was read and before its weights are read causes an error', async () => {
    const replaced = folder.file('replaced.gguf');
    copyFileSync(model, replaced);
    let isReplaced = false;
    const onDigestProgress = (): void => {
      if (!isReplaced) copyFileSync(copy, replaced);
      isReplaced = true;
    };
    await expect(answer(replaced, { onDigestProgress }, folder.file('replaced'))).rejects.toMatchObject({
      code: 'KVASIR_MODEL_FILE_CHANGED',
    });
  });
});
