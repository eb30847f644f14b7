/** An engine without some kernels works, and reports what is missing or unusual when it starts. */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEngine } from '../src/compose.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { readGguf } from '../src/ggml/gguf.ts';
import { readModelConfig } from '../src/ggml/model-config.ts';
import { promptOf } from './support/drive.ts';
import { itInLongForm } from './support/long-form.ts';
import { needs } from './support/needs.ts';
import { quickCompiler } from './support/quick-compiler.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const folder = temporaryFolder();
const before = { ...process.env };
beforeAll(() => {
  process.env.XDG_CACHE_HOME = folder.file('cache');
});
afterAll(() => {
  process.env = before;
  folder.remove();
});

const demoContext = readModelConfig(await readGguf('models/kvasir-demo.gguf')).contextLength;
const hasCompiler = spawnSync('cc', ['--version']).status === 0;

/** The tokens and the events of an engine with this C compiler. */
async function answer(compiler: string, more: Partial<EngineOptions> = {}) {
  process.env.CC = compiler;
  const events: string[] = [];
  const onEvent = ({ message }: { readonly message: string }): void => void events.push(message);
  const options = { model: 'models/kvasir-demo.gguf', threads: 1, kvCacheMemory: 16 << 20, onEvent, ...more };
  const engine = await createEngine(options);
  try {
    const tokens: unknown[] = [];
    const params = { maxTokens: 12, temperature: 0, ignoreEos: true };
    for await (const { tokenIds } of engine.generate({ prompt: promptOf(40, 3, 250), params }))
      tokens.push(...tokenIds);
    return { tokens, events, attention: engine.model.attention };
  } finally {
    await engine.close();
  }
}

function brokenCompiler(name: string): string {
  const path = folder.file(name);
  writeFileSync(path, '#!/bin/sh\ntest "$1" = --version && exit 0\necho "x.c:1: error: out of order" >&2\nexit 1\n');
  chmodSync(path, 0o755);
  return path;
}

describe('an engine', () => {
  it('whose compiler fails reports each kernel once, also with several ranks in worker processes', async () => {
    const compiler = brokenCompiler('broken-cc');
    const alone = await answer(compiler);
    expect(alone.events.filter((message) => message.startsWith('The native attention kernel'))).toEqual([
      'The native attention kernel cannot be used: x.c:1: error: out of order. ' +
        'ggml computes attention instead, which is slower, and the text may differ from engines that have the kernel.',
    ]);
    expect(alone.events.filter((message) => message.startsWith('The kernel for sampling'))).toHaveLength(1);
    expect(new Set(alone.events).size).toBe(alone.events.length);
    const ranks = await answer(compiler, { pipelineParallelSize: 2 });
    expect(new Set(ranks.events)).toEqual(new Set(alone.events));
    expect(ranks.events).toHaveLength(alone.events.length);
    expect(ranks.tokens).toEqual(alone.tokens);
  });

  it('on a machine without a compiler says once that its kernels are missing, and what that costs', async () => {
    const { events, attention } = await answer('/nonexistent/cc');
    expect(events).toEqual([
      'Kernels of Kvasir are missing: the package has none for this machine and model, and there is no C compiler `/nonexistent/cc`. ' +
        'ggml computes instead, at as little as half the speed, and the text may differ from engines that have them. `kvasir doctor` says what to change.',
    ]);
    expect(attention).toContain('there is no C compiler');
  });

  it('that is to take longer texts than the model was made for says so, and takes them', async () => {
    const warned = async (maxModelLen: number): Promise<string[]> =>
      (await answer('/nonexistent/cc', { maxModelLen, kvCacheMemory: 1 << 30 })).events.filter((message) =>
        message.includes('max-model-len'),
      );
    expect(await warned(demoContext)).toEqual([]);
    expect(await warned(demoContext + 1)).toEqual([
      `--max-model-len is ${demoContext + 1}, and the model was made for ${demoContext} tokens: texts that are longer than that are usually poor.`,
    ]);
  });

  itInLongForm(
    "computes recurrent states with ggml's operations if there is no compiler, with the same tokens",
    async () => {
      const model = folder.file('lfm2.gguf');
      await writeTinyModel(model, { architecture: 'lfm2', type: 'F32' });
      const options = { model, stateCheckpointTokens: 16, maxNumBatchedTokens: 23 };
      const { tokens } = await answer('/nonexistent/cc', options);
      expect(tokens).toHaveLength(12);
      expect(await answer('/nonexistent/cc', { ...options, maxNumBatchedTokens: 64 })).toMatchObject({ tokens });
      if (hasCompiler) expect(await answer(quickCompiler(folder.file('quick-cc')), options)).toMatchObject({ tokens });
    },
  );

  const title = 'whose cache folder cannot be used has all kernels, and reports that it compiles them at each start';
  it(title, needs(hasCompiler, 'no C compiler'), async () => {
    const cache = folder.file('a-file');
    writeFileSync(cache, '');
    process.env.XDG_CACHE_HOME = cache;
    mkdirSync(folder.file('tmp'));
    process.env.TMPDIR = folder.file('tmp');
    const { events, attention } = await answer(quickCompiler(folder.file('quick-cc')));
    expect(events).toHaveLength(1);
    expect(events[0]).toMatch(/^The cache folder .*a-file.kvasir cannot be used/);
    expect(attention).toContain('native kernel');
  });
});
