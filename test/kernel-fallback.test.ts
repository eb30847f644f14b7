/** An engine says which kernels it does without, if the machine could have them, and answers all the same. */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEngine } from '../src/compose.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { promptOf } from './support/drive.ts';
import { itNeeds } from './support/needs.ts';
import { temporaryFolder } from './support/tiny-model.ts';

const folder = temporaryFolder();
const before = { ...process.env };
beforeAll(() => {
  process.env.XDG_CACHE_HOME = folder.file('cache');
});
afterAll(() => {
  process.env = before;
  folder.remove();
});

const hasCompiler = spawnSync('cc', ['--version']).status === 0;

/** What an engine answers and says with this C compiler. */
async function answer(compiler: string, more: Partial<EngineOptions> = {}) {
  process.env.CC = compiler;
  const events: string[] = [];
  const onEvent = ({ message }: { readonly message: string }): void => void events.push(message);
  const options = { model: 'models/kvasir-demo.gguf', threads: 1, kvCacheMemory: 16 << 20, onEvent, ...more };
  const engine = await createEngine(options);
  try {
    const said: unknown[] = [];
    const params = { maxTokens: 12, temperature: 0, ignoreEos: true };
    for await (const { tokenIds } of engine.generate({ prompt: promptOf(40, 3, 250), params })) said.push(...tokenIds);
    return { said, events, attention: engine.model.attention };
  } finally {
    await engine.close();
  }
}

function broken(name: string): string {
  const path = folder.file(name);
  writeFileSync(path, '#!/bin/sh\ntest "$1" = --version && exit 0\necho "x.c:1: error: out of order" >&2\nexit 1\n');
  chmodSync(path, 0o755);
  return path;
}

describe('an engine', () => {
  it('whose compiler is broken says so once for each kernel, also with several ranks in processes', async () => {
    const compiler = broken('broken-cc');
    const alone = await answer(compiler);
    expect(alone.events.filter((message) => message.startsWith('The native attention kernel'))).toEqual([
      'The native attention kernel cannot be used: x.c:1: error: out of order. ' +
        'ggml computes attention instead, which is slower, and the text may differ from engines that have the kernel.',
    ]);
    expect(alone.events.filter((message) => message.startsWith('The kernel for sampling'))).toHaveLength(1);
    expect(new Set(alone.events).size).toBe(alone.events.length);
    const apart = await answer(compiler, { pipelineParallelSize: 2 });
    expect(new Set(apart.events)).toEqual(new Set(alone.events));
    expect(apart.events).toHaveLength(alone.events.length);
    expect(apart.said).toEqual(alone.said);
  });

  it('on a machine without a compiler says so in its description only', async () => {
    const { events, attention } = await answer('/nonexistent/cc');
    expect(events).toEqual([]);
    expect(attention).toContain('there is no C compiler');
  });

  const title = 'whose cache folder cannot be used has all kernels, and says that it compiles them at each start';
  itNeeds(hasCompiler, 'no C compiler', title, async () => {
    const cache = folder.file('a-file');
    writeFileSync(cache, '');
    process.env.XDG_CACHE_HOME = cache;
    mkdirSync(folder.file('tmp'));
    process.env.TMPDIR = folder.file('tmp');
    const { events, attention } = await answer('cc');
    expect(events).toHaveLength(1);
    expect(events[0]).toMatch(/^The cache folder .*a-file.kvasir cannot be used/);
    expect(attention).toContain('native kernel');
  });
});
