/** The files of compiled kernels change in place while a process uses the kernels. */
import { spawnSync } from 'node:child_process';
import { join, resolve } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { hasCompiler } from './support/has-compiler.ts';
import { needs } from './support/needs.ts';
import { quickCompiler } from './support/quick-compiler.ts';
import { temporaryFolder } from './support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

/** Prints whether the text stays the same after each damage, and in an engine that starts after it. */
const script = `
  import { readdirSync, truncateSync, writeFileSync } from 'node:fs';
  import { createEngine } from ${JSON.stringify(resolve('dist/bundle/src/index.js'))};
  const libraries = () => readdirSync(process.env.XDG_CACHE_HOME, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.so'))
    .map((name) => process.env.XDG_CACHE_HOME + '/' + name);
  const options = {
    model: 'models/kvasir-demo.gguf',
    threads: 1,
    kvCacheMemory: 4 << 20,
    maxModelLen: 256,
    enablePrefixCaching: false,
    kvTransferConfig: {
      kv_connector: 'SharedStorageConnector',
      kv_role: 'kv_both',
      kv_connector_extra_config: { shared_storage_path: process.env.XDG_CACHE_HOME + '/store' },
    },
  };
  const prompt = Array.from({ length: 80 }, (_, i) => 40 + ((i * 7) % 60));
  const params = { maxTokens: 8, temperature: 0.8, seed: 1, ignoreEos: true, logprobs: 2 };
  const textOf = async (engine) => {
    const outputs = [];
    for await (const { text, tokenIds, logprobs } of engine.generate({ prompt, params })) outputs.push(text, tokenIds, logprobs);
    return JSON.stringify(outputs);
  };
  const engine = await createEngine(options);
  const expected = await textOf(engine);
  console.log(libraries().length > 1);
  for (const path of libraries()) truncateSync(path, 0);
  console.log((await textOf(engine)) === expected);
  for (const path of libraries()) writeFileSync(path, Buffer.alloc(100_000, 0xcc));
  console.log((await textOf(engine)) === expected);
  await engine.close();
  const next = await createEngine(options);
  console.log((await textOf(next)) === expected);
  await next.close();
`;

describe('a process with compiled kernels', {
  ...needs(hasCompiler, 'no C compiler'),
  ...needs(process.platform === 'linux', 'no Linux'),
}, () => {
  it('generates the same text after the files of its kernels are truncated and overwritten', () => {
    const { status, signal, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      encoding: 'utf8',
      // The engine that starts after the damage compiles the same kernels again, which copies them.
      env: { ...process.env, XDG_CACHE_HOME: join(folder.path, 'cache'), CC: quickCompiler(folder.file('quick-cc')) },
      timeout: 100_000,
    });
    expect([signal, status, stdout], stderr).toEqual([null, 0, 'true\ntrue\ntrue\ntrue\n']);
  });
});
