/** A model in several files runs as the same model in one file. */
import { copyFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEngine } from '../src/compose.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { readGguf } from '../src/ggml/gguf.ts';
import { splitModel } from './support/split-model.ts';
import { temporaryFolder } from './support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
const demo = 'models/kvasir-demo.gguf';
const prompt = 'Once upon a time there was a small fox who lived by the lake. '.repeat(8);

async function answer(model: string, more: Partial<EngineOptions> = {}) {
  const engine = await createEngine({ model, threads: 1, kvCacheMemory: 64 << 20, ...more });
  try {
    let tokens: readonly number[] = [];
    const params = { maxTokens: 24, temperature: 0 };
    for await (const { tokenIds } of engine.generate({ prompt, params })) tokens = [...tokens, ...tokenIds];
    return { tokens, externalTokens: engine.stats().externalTokens };
  } finally {
    await engine.close();
  }
}

const stored = (store: string): Partial<EngineOptions> => ({
  kvTransferConfig: {
    kv_connector: 'SharedStorageConnector',
    kv_role: 'kv_both',
    kv_connector_extra_config: { shared_storage_path: store },
  },
});

describe('a split model', () => {
  let parts: string[];
  beforeAll(async () => {
    parts = await splitModel(demo, folder.file('demo'), 3);
  });

  it('has the tensors and the text of the whole model, also in two processes', async () => {
    const whole = await readGguf(demo);
    const split = await readGguf(parts[0]!);
    expect([...split.tensors.keys()]).toEqual([...whole.tensors.keys()]);
    expect(new Set([...split.tensors.values()].map(({ part }) => part))).toEqual(new Set([0, 1, 2]));
    const { tokens } = await answer(demo);
    expect((await answer(parts[0]!)).tokens).toEqual(tokens);
    expect((await answer(parts[0]!, { pipelineParallelSize: 2 })).tokens).toEqual(tokens);
  });

  it('may have a first part without tensors', async () => {
    const [first = ''] = await splitModel(demo, folder.file('empty'), 3, true);
    expect((await answer(first)).tokens).toEqual((await answer(demo)).tokens);
  });

  it('shares KV with copies of all of its parts, and with no other model', async () => {
    const store = folder.file('store');
    const { tokens, externalTokens } = await answer(parts[0]!, stored(store));
    expect(externalTokens).toBe(0);
    const copies = parts.map((part) => part.replace('demo-', 'copy-'));
    for (const [i, part] of parts.entries()) copyFileSync(part, copies[i]!);
    const copied = await answer(copies[0]!, stored(store));
    expect(copied.externalTokens).toBeGreaterThan(0);
    expect(copied.tokens).toEqual(tokens);
    const changed = readFileSync(copies[2]!);
    changed[changed.length - 100]! ^= 1;
    writeFileSync(copies[2]!, changed);
    expect((await answer(copies[0]!, stored(store))).externalTokens).toBe(0);
  });

  describe('is refused', () => {
    let copies: string[];
    beforeAll(async () => {
      copies = await splitModel(demo, folder.file('wrong'), 3);
    });

    it('by another part than the first', async () => {
      const message = `part 2 of 3 of a split model. Give the first part: ${copies[0]}`;
      await expect(readGguf(copies[1]!)).rejects.toThrow(message);
    });

    it('if its name does not have its number', async () => {
      const renamed = folder.file('renamed.gguf');
      copyFileSync(copies[0]!, renamed);
      await expect(readGguf(renamed)).rejects.toThrow(/part 1 of 3 .* Name it NAME-00001-of-00003\.gguf/);
    });

    it('if two parts are exchanged', async () => {
      copyFileSync(parts[1]!, copies[2]!);
      await expect(readGguf(copies[0]!)).rejects.toThrow(/wrong-00003-of-00003.* does not say that it is part 3 of 3/);
      copyFileSync(parts[2]!, copies[2]!);
    });

    it('if a part is from another split', async () => {
      const [, other = ''] = await splitModel(demo, folder.file('other'), 3, true);
      copyFileSync(other, copies[1]!);
      await expect(readGguf(copies[0]!)).rejects.toThrow(/tensor \S+ is in an earlier part too/);
      copyFileSync(parts[1]!, copies[1]!);
    });

    it('if a part is truncated or missing', async () => {
      writeFileSync(copies[1]!, readFileSync(parts[1]!).subarray(0, -100));
      await expect(readGguf(copies[0]!)).rejects.toThrow(/wrong-00002-of-00003.gguf is truncated/);
      rmSync(copies[1]!);
      await expect(readGguf(copies[0]!)).rejects.toThrow(/Cannot read .*wrong-00002-of-00003.gguf/);
    });
  });
});
