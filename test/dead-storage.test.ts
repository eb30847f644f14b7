/**
 * A store that does not answer, with whole engines and servers. The files of blocks are FIFOs, whose `open` does not return, as on a dead NFS
 * mount. There are more FIFOs than libuv has threads.
 */
import { spawnSync } from 'node:child_process';
import { closeSync, constants, cpSync, openSync, readdirSync, renameSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { blockedThreadCount } from '../src/base/call-thread.ts';
import type { JsonObject } from '../src/base/json.ts';
import { createEngine } from '../src/compose.ts';
import type { Engine } from '../src/engine/engine.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { buildCommand, killCommands, serve } from './support/cli-process.ts';
import { promptOf } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import { allGone, childrenOf } from './support/processes.ts';
import { temporaryFolder } from './support/tiny-model.ts';
import { until } from './support/until.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

const request = (seed: number) => ({
  prompt: [...promptOf(320, seed, 250)],
  params: { maxTokens: 8, temperature: 0, ignoreEos: true, logprobs: 1 },
});
const [stored, storedToo, other] = [request(3), request(5), request(4)];

const optionsFor = (store: string | undefined, role = 'kv_both', extra: JsonObject = {}): EngineOptions => ({
  model: 'models/kvasir-demo.gguf',
  threads: 1,
  kvCacheMemory: 16 << 20,
  maxModelLen: 512,
  maxNumBatchedTokens: 64,
  enablePrefixCaching: true,
  ...(store === undefined
    ? {}
    : {
        kvTransferConfig: {
          kv_connector: 'SharedStorageConnector',
          kv_role: role,
          kv_connector_extra_config: { shared_storage_path: store, loads_at_once: 8, ...extra },
        },
      }),
});

async function textOf(engine: Engine, asked: ReturnType<typeof request>): Promise<string> {
  const outputs: unknown[] = [];
  for await (const { text, tokenIds, logprobs } of engine.generate(asked)) outputs.push(text, tokenIds, logprobs);
  return JSON.stringify(outputs);
}

const blocksOf = (store: string): string[] =>
  readdirSync(store, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.kv'))
    .map((name) => join(store, name));

/** Replaces block files with FIFOs; returns a function that unblocks their readers and restores the blocks. */
function killBlocks(store: string, countMax = Infinity): () => void {
  const blocks = blocksOf(store).slice(0, countMax);
  expect(blocks.length).toBeGreaterThan(5);
  for (const path of blocks) {
    renameSync(path, `${path}.kept`);
    expect(spawnSync('mkfifo', [path]).status).toBe(0);
  }
  return () => {
    for (const path of blocks) {
      closeSync(openSync(path, 'r+'));
      renameSync(`${path}.kept`, path);
    }
  };
}

const filled = folder.file('filled');
let expected: readonly [string, string, string];
beforeAll(async () => {
  const plain = await createEngine(optionsFor(undefined));
  expected = [await textOf(plain, stored), await textOf(plain, other), await textOf(plain, storedToo)];
  await plain.close();
  const producer = await createEngine(optionsFor(filled));
  for (const one of [stored, storedToo]) await textOf(producer, one);
  await producer.close();
});
const deadStore = (name: string): { readonly store: string; readonly mend: () => void } => {
  const store = folder.file(name);
  cpSync(filled, store, { recursive: true });
  return { store, mend: killBlocks(store) };
};

it('a store that hangs ends loads at their deadline, delays no other request, and serves loads again when it answers', async () => {
  const { store, mend } = deadStore('dead');
  const engine = await createEngine(optionsFor(store, 'kv_consumer'));
  const order: string[] = [];
  const done = async (name: string, text: Promise<string>): Promise<string> => {
    const output = await text;
    order.push(name);
    return output;
  };
  const waiting = done('stored', textOf(engine, stored));
  await until(() => engine.stats().transfers.open > 0);
  // The load has begun and lasts until its deadline: a request without stored KV ends earlier.
  expect(await done('other', textOf(engine, other))).toBe(expected[1]);
  expect(await waiting).toBe(expected[0]);
  expect(order).toEqual(['other', 'stored']);
  const { counters } = engine.stats().transfers;
  expect(counters['loadFailed.timedOut']).toBeGreaterThan(6);
  expect(blockedThreadCount()).toBeGreaterThan(0);
  // The circuit breaker is open: the engine does not ask the store again, and no request waits for a deadline.
  expect(await textOf(engine, storedToo)).toBe(expected[2]);
  expect(engine.stats().transfers.counters['loadFailed.storeDown']).toBeGreaterThan(6);
  // The blocks of the loads are unpinned although their threads are still stuck.
  await until(() => engine.stats().transfers.open === 0);
  expect(engine.stats().blocks.referenced).toBe(0);
  mend();
  await until(() => blockedThreadCount() === 0);
  await engine.close();
  const again = await createEngine(optionsFor(store, 'kv_consumer'));
  expect(await textOf(again, stored)).toBe(expected[0]);
  expect(again.stats().transfers.counters.loadedBlocks).toBeGreaterThan(6);
  await again.close();
});

it('only the hung blocks are computed again, although more blocks hang than load at once', async () => {
  const store = folder.file('some-dead');
  const producer = await createEngine(optionsFor(store));
  expect(await textOf(producer, stored)).toBe(expected[0]);
  await producer.close();
  const consume = async (load_timeout_seconds: number) => {
    const engine = await createEngine(optionsFor(store, 'kv_consumer', { loads_at_once: 2, load_timeout_seconds }));
    expect(await textOf(engine, stored)).toBe(expected[0]);
    const { loadedBlocks = 0, 'loadFailed.timedOut': timedOut = 0 } = engine.stats().transfers.counters;
    await engine.close();
    return { loadedBlocks, timedOut };
  };
  const healthy = await consume(60);
  expect(healthy.timedOut).toBe(0);
  const mend = killBlocks(store, 6);
  let { loadedBlocks, timedOut } = await consume(2);
  // A busy machine starts the threads that replace blocked ones too late for a short deadline.
  if (timedOut > 6) ({ loadedBlocks, timedOut } = await consume(40));
  // The block of the last tokens may be one of the six, and it is computed in any case.
  expect([5, 6]).toContain(timedOut);
  expect(loadedBlocks).toBe(healthy.loadedBlocks - timedOut);
  mend();
  await until(() => blockedThreadCount() === 0);
});

it('an engine closes although its store hangs', async () => {
  const { store, mend } = deadStore('closing');
  const engine = await createEngine(optionsFor(store, 'kv_consumer'));
  expect(await textOf(engine, stored)).toBe(expected[0]);
  expect(blockedThreadCount()).toBeGreaterThan(0);
  await engine.close();
  mend();
  await until(() => blockedThreadCount() === 0);
});

// The default form has programs whose calls hang in `own-sides-faults.test.ts`.
it.each(inLongForm(['process.exit(3)', 'process.exitCode = 3'], []))(
  'a program that uses the library ends although its store hangs: %s',
  (end) => {
    const { store } = deadStore(`exit ${end}`);
    const script = `
    import { createEngine } from ${JSON.stringify(resolve('dist/bundle/src/index.js'))};
    const engine = await createEngine(${JSON.stringify(optionsFor(store, 'kv_consumer'))});
    let count = 0;
    for await (const { tokenIds } of engine.generate(${JSON.stringify(stored)})) count += tokenIds.length;
    await engine.close();
    console.log(count);
    process.on('exit', (code) => console.log('at exit', code));
    ${end};
  `;
    const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      encoding: 'utf8',
      timeout: 100_000,
    });
    expect([status, stdout], stderr).toEqual([3, '8\nat exit 3\n']);
  },
);

const closers: (() => void)[] = [];
afterEach(() => {
  killCommands();
  for (const close of closers.splice(0)) close();
});

/** Whether a process waits in `open` of the FIFO. If so, the FIFO gets a writer that writes nothing: `read` does not return either. */
function hangsAt(path: string): boolean {
  try {
    const writer = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
    closers.push(() => closeSync(writer));
    return true;
  } catch (error) {
    // The FIFO has no reader.
    expect(error).toMatchObject({ code: 'ENXIO' });
    return false;
  }
}

const anHour = { load_timeout_seconds: 3600 };
const sharedStorage = (store: string) => ({
  kv_connector: 'SharedStorageConnector',
  kv_role: 'kv_both',
  kv_connector_extra_config: { shared_storage_path: store, ...anHour },
});
const diskTier = (store: string) => ({
  kv_connector: 'OffloadingConnector',
  kv_role: 'kv_both',
  kv_connector_extra_config: { tiers: [`disk:${store}`], kv_load_policy: 'always', ...anHour },
});
const servers: [string, (store: string) => JsonObject, 1 | 2][] = [
  ['SharedStorageConnector', sharedStorage, 1],
  ['SharedStorageConnector', sharedStorage, 2],
  ['a disk tier', diskTier, 1],
];
it.each(inLongForm(servers, []))(
  'a server whose request waits for a hung load ends at its shutdown timeout: %s, ranks: $2',
  async (name, configFor, pipelineParallelSize) => {
    await buildCommand();
    const store = folder.file(`${name} ${pipelineParallelSize}`);
    const kvTransferConfig = configFor(store);
    const producer = await createEngine({ ...optionsFor(undefined), kvTransferConfig, pipelineParallelSize });
    expect(await textOf(producer, stored)).toBe(expected[0]);
    await producer.close();
    killBlocks(store);
    const flags = ['--kv-transfer-config', JSON.stringify(kvTransferConfig), '--shutdown-timeout', '1'];
    const server = await serve([...flags, '--pipeline-parallel-size', `${pipelineParallelSize}`]);
    const workers = childrenOf(server.child.pid!);
    const answer = server.complete({ prompt: stored.prompt, max_tokens: 8 }).then((response) => response.text());
    const outcome = answer.catch(() => 'no answer');
    await until(() => blocksOf(store).some(hangsAt));
    expect((await fetch(`${server.origin}/health`)).status).toBe(200);
    expect(await server.stop()).toContain('the shutdown timeout of 1 s is over: 1 request was aborted\n');
    expect(await server.exited).toEqual([143, null]);
    expect(await outcome).toMatch(/^no answer$|"finish_reason":"abort"/);
    await allGone(workers);
  },
);
