import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { ServeFlags } from '../serve.ts';
import { ModelCatalog } from './model-catalog.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-catalog-'));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe('a name with * at its end, in the section of a model', () => {
  it('stands for all names that begin so and that no model has itself; the longest wins', async () => {
    for (const name of ['gpt-oss-20b', 'qwen', 'small']) writeFileSync(join(folder, `${name}.gguf`), '');
    const names: Readonly<Record<string, readonly string[]>> = {
      qwen: ['coder', 'claude-*', 'gpt-*'],
      small: ['claude-haiku-*'],
    };
    const flagsOf = (name: string) => ({ servedModelName: names[name] }) as unknown as ServeFlags;
    const models = { given: new Map<string, string>(), folder, hub: 'none', flagsOf, socketPath: () => '' } as const;
    const catalog = new ModelCatalog(models, {
      memoryMaxBytes: 1,
      shareOnGpu: () => Promise.reject(new Error('no model is loaded')),
    });
    await catalog.check();
    const found = async (name: string) => (await catalog.find(name))?.name;
    expect(await found('gpt-oss-20b')).toBe('gpt-oss-20b');
    expect(await found('gpt-5.6-codex')).toBe('qwen');
    expect(await found('coder')).toBe('qwen');
    expect(await found('claude-opus-5')).toBe('qwen');
    expect(await found('claude-haiku-5')).toBe('small');
    expect(await found('gemini-3')).toBeUndefined();
    // A file that is new has its name at once.
    writeFileSync(join(folder, 'gpt-5.6-codex.gguf'), '');
    expect(await found('gpt-5.6-codex')).toBe('gpt-5.6-codex');
  });
});
