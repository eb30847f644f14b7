/**
 * A directory that processes share, with whole engines. Blocks with another identity are a miss with the reason. No engine loads a
 * half-written block of a killed writer.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Prng } from '../src/base/prng.ts';
import { createEngine } from '../src/compose.ts';
import type { BlockKey } from '../src/connector/block-key.ts';
import type { KvIdentity } from '../src/connector/connector.ts';
import { BlockCodec, headerBytes } from '../src/connector/tier/block-header.ts';
import type { IdentityRecord } from '../src/connector/tier/identity.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { buildCommand } from './support/cli-process.ts';
import { promptOf } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import { temporaryFolder } from './support/tiny-model.ts';
import { until } from './support/until.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

const prefix = promptOf(320, 3, 250);
const requests = Array.from({ length: 4 }, (_, i) => ({
  prompt: [...prefix, ...promptOf(30 + i, i + 10, 250)],
  params: { maxTokens: 8, temperature: i % 2 === 0 ? 0 : 0.8, seed: i, ignoreEos: true, logprobs: 1 },
}));
/** Full blocks of all prompts; shared blocks count once. */
const promptBlocks = 20 + requests.reduce((sum, { prompt }) => sum + Math.floor(prompt.length / 16) - 20, 0);

const optionsFor = (store: string | undefined, role = 'kv_both'): EngineOptions => ({
  model: 'models/kvasir-demo.gguf',
  threads: 1,
  kvCacheMemory: 16 << 20,
  maxModelLen: 512,
  maxNumBatchedTokens: 64,
  ...(store === undefined
    ? {}
    : {
        kvTransferConfig: {
          kv_connector: 'SharedStorageConnector',
          kv_role: role,
          // A long timeout, because these tests count the found blocks, and a late lookup finds none.
          kv_connector_extra_config: { shared_storage_path: store, lookup_timeout_seconds: 60 },
        },
      }),
});

/** The outputs of all requests in one batch, and the engine's transfer statistics. */
async function answers(options: EngineOptions) {
  const engine = await createEngine(options);
  const texts = await Promise.all(
    requests.map(async (request) => {
      const outputs: unknown[] = [];
      for await (const { text, tokenIds, logprobs } of engine.generate(request)) outputs.push(text, tokenIds, logprobs);
      return JSON.stringify(outputs);
    }),
  );
  const { transfers, recomputedTokens } = engine.stats();
  await engine.close();
  return { texts, transfers, recomputedTokens };
}

const filesOf = (store: string, end: string): string[] =>
  existsSync(store)
    ? readdirSync(store, { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith(end))
        .map((name) => join(store, name))
    : [];

let expected: readonly string[];
const filled = folder.file('filled');
beforeAll(async () => {
  await buildCommand();
  expected = (await answers(optionsFor(undefined))).texts;
  expect((await answers(optionsFor(filled))).texts).toEqual(expected);
});

describe('blocks in a shared directory', () => {
  const others: readonly (readonly [string, string, (ours: KvIdentity) => KvIdentity])[] = [
    ['another model', 'wrongModel', (ours) => ({ ...ours, fingerprint: `not ${ours.fingerprint}` })],
    ['another dtype', 'wrongDtype', (ours) => ({ ...ours, dtype: 'bf16' })],
    ['another block size', 'wrongBlockSize', (ours) => withGroup(ours, { blockSize: 32 })],
    ['another layout of layers', 'wrongLayers', (ours) => withGroup(ours, { layers: [0, 1] })],
    ['another number of ranks', 'wrongRank', (ours) => ({ ...ours, worldSize: 2 })],
  ];

  // `tier-disk.test.ts` has each reason.
  it.each(inLongForm(others, others.slice(0, 1)))(
    'from %s are a miss, and the counters have the reason',
    async (name, reason, change) => {
      const store = folder.file(name);
      cpSync(filled, store, { recursive: true });
      const [record] = filesOf(store, 'config.json');
      const { model, ...rest } = JSON.parse(readFileSync(record!, 'utf8')) as IdentityRecord;
      const theirs = new BlockCodec(change({ modelName: model, ...rest }));
      for (const file of filesOf(store, '.kv')) {
        const payload = readFileSync(file).subarray(headerBytes);
        const [digest] = basename(file).split('-');
        writeFileSync(file, Buffer.concat([theirs.encode(`0-${digest}` as BlockKey, payload), payload]));
      }
      const { texts, transfers, recomputedTokens } = await answers(optionsFor(store, 'kv_consumer'));
      expect(texts).toEqual(expected);
      expect(transfers.counters).toMatchObject({ [`loadFailed.${reason}`]: promptBlocks });
      expect(transfers.counters.loadedBlocks).toBeUndefined();
      // If a prompt ends at a block boundary, its last token is computed in any case.
      const lastTokens = requests.filter(({ prompt }) => prompt.length % 16 === 0).length;
      expect(recomputedTokens).toBe(promptBlocks * 16 - lastTokens);
    },
  );

  it('from an engine with another block size are in another folder, which the engine does not search', async () => {
    const { texts, transfers } = await answers({ ...optionsFor(filled, 'kv_consumer'), blockSize: 32 });
    expect(texts).toEqual(expected);
    expect(transfers).toMatchObject({ failedLoads: 0 });
    expect(transfers.counters.loadedBlocks).toBeUndefined();
  });
});

const withGroup = (ours: KvIdentity, change: Partial<KvIdentity['groups'][number]>): KvIdentity => ({
  ...ours,
  groups: ours.groups.map((group) => ({ ...group, ...change })),
});

/** A program that computes the requests from its standard input and saves their KV. */
const writer = `
  import { text } from 'node:stream/consumers';
  import { createEngine } from ${JSON.stringify(pathToFileURL(join('dist', 'bundle', 'src', 'index.js')).href)};
  const { engine: options, requests } = JSON.parse(await text(process.stdin));
  const engine = await createEngine(options);
  const complete = async (request) => {
    for await (const { finish } of engine.generate(request)) if (finish !== undefined) return;
  };
  await Promise.all(requests.map(complete));
  await engine.close();
`;

describe('an engine that was killed with -9', () => {
  const children: ChildProcess[] = [];
  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
  });

  /** Runs an engine in a separate process, which computes all requests and saves their KV; kills it after this many blocks. */
  async function killedWriter(store: string, blocks: number, delayMs: number): Promise<void> {
    const order = { engine: optionsFor(store), requests };
    const arguments_ = ['--input-type=module', '-e', writer];
    const child = spawn(process.execPath, arguments_, { stdio: ['pipe', 'ignore', 'inherit'] });
    children.push(child);
    const closed = once(child, 'close');
    let isOver = false;
    void closed.then(() => (isOver = true));
    child.stdin!.end(JSON.stringify(order));
    await until(() => isOver || filesOf(store, '.kv').length >= blocks);
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    child.kill('SIGKILL');
    await closed;
  }

  it('leaves only complete blocks, and the next engine generates the same text', async () => {
    const seed = 20261120;
    const prng = new Prng(seed);
    let interrupted = 0;
    // Repeats until one engine was killed while it saved: otherwise the test shows nothing.
    for (let round = 0; round < inLongForm(4, 2) || interrupted === 0; round++) {
      const store = folder.file(`killed-${round}`);
      await killedWriter(store, prng.between(1, promptBlocks - 1), prng.between(0, 3));
      const stored = filesOf(store, '.kv').length;
      if (stored < promptBlocks || filesOf(store, '.tmp').length > 0) interrupted++;
      const { texts, transfers } = await answers(optionsFor(store));
      const at = `seed ${seed}, round ${round}, ${stored} blocks`;
      expect(texts, at).toEqual(expected);
      // No block was half written: every promised block was loaded and verified.
      expect(transfers, at).toMatchObject({ failedLoads: 0 });
      expect(transfers.counters.loadedBlocks, at).toBeGreaterThan(0);
    }
  });
});
