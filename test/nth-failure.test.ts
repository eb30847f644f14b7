/**
 * Every system call of an engine fails once: file calls of all threads, native allocations, buffers outside the heap. Then the text is
 * right, or the engine has reported an error of the catalogue. Nothing stays open, and the store has no wrong block.
 *
 * `npm test` fails one call at each site in the sources. `KVASIR_TEST_EVERY_FAILURE=1` fails every call (`support/fault-runs.ts`).
 * Other tests cover calls that never return (`tier-disk-dead.test.ts`) and processes that die (`connector-kill.test.ts`). No test covers
 * memory that ggml allocates itself, because ggml then ends the process (`GGML_ABORT`).
 */
import {
  closeSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import koffi from 'koffi';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { defaultCacheFolder } from '../src/base/cache-folder.ts';
import { KvasirError } from '../src/base/errors.ts';
import { createEngine } from '../src/compose.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import { withAllocationFailure } from '../src/ggml/allocation-failure.ts';
import { digestFile } from '../src/ggml/file-digest.ts';
import { sealedFile } from '../src/ggml/libc.ts';
import { findLibrary, keepLibrary } from '../src/native/kernel-cache.ts';
import { forgetSelfTests } from '../src/runner/attention/attention-choice.ts';
import { Scheduler } from '../src/scheduler/scheduler.ts';
import { compileModule } from './support/compile-module.ts';
import { promptOf } from './support/drive.ts';
import { type FaultPoints, installFaultPoints, type OpenObjects } from './support/fault-points.ts';
import { type Fault, failEach, isEvery, type Run } from './support/fault-runs.ts';
import { needs } from './support/needs.ts';
import { openFilesBelow } from './support/open-files.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const folder = temporaryFolder();
const [complete, store, cache] = [folder.file('complete'), folder.file('store'), folder.file('cache')];
const model = folder.file('tiny.gguf');
const covered = new Set<string>();
let points: FaultPoints;
let open: OpenObjects;
let nothingOpen: Record<string, number>;
let expected: Answers;
/** Threads that stay for the next engine: those that compute and have jobs (`native-thread.ts`, `job-thread.ts`), and all kinds with `io-threads.ts`. */
const spareWithoutStore = 4 + 4;
const spareThreads = spareWithoutStore + 8;

beforeAll(async () => {
  ({ points, open } = await installFaultPoints(compileModule('fault-points.ts', folder.path), koffi as never));
  mkdirSync(join(cache, 'kvasir'), { recursive: true });
  const kernels = defaultCacheFolder();
  if (kernels !== undefined && existsSync(kernels)) {
    // The folder also has the tools of `.ci/run`, with hundreds of megabytes.
    const filter = (path: string): boolean => path === kernels || path.endsWith('.so');
    cpSync(kernels, join(cache, 'kvasir'), { recursive: true, filter });
  }
  process.env.XDG_CACHE_HOME = cache;
  await writeTinyModel(model, { architecture: 'llama', type: 'F16', layers: 1, feedForward: 256 });
  // The digest of a file that has changed less than two seconds ago is not cached.
  await sleep(Math.max(0, statSync(model).ctimeMs + 2_500 - Date.now()));
  const { apply } = Scheduler.prototype;
  Scheduler.prototype.apply = function (this: Scheduler, ...args) {
    const updates = apply.apply(this, args);
    this.checkInvariants();
    return updates;
  };
  const alone = await engineWith(undefined, () => undefined);
  expected = await answersOf(alone);
  await alone.close();
  const isFree = (): boolean => Object.values(open.counts()).every((count) => count === 0);
  await vi.waitUntil(() => points.threadCount <= spareWithoutStore && isFree(), { timeout: 60_000 });
  nothingOpen = open.counts();
  const storing = await engineWith({}, () => undefined);
  await answersOf(storing);
  await storing.close();
  cpSync(store, complete, { recursive: true });
});
afterAll(() => folder.remove());

const prefix = promptOf(40, 3, 250);
const requests = [0, 1].map((index) => ({
  prompt: [...prefix, ...promptOf(20 + index, index + 10, 250)],
  params: { maxTokens: 3, temperature: index * 0.8, seed: index, ignoreEos: true, logprobs: 1 },
}));

type Extra = Readonly<Record<string, boolean | number>>;

const engineWith = (extra: Extra | undefined, event: (message: string) => void): Promise<AsyncEngine> =>
  createEngine({
    model,
    threads: 1,
    kvCacheMemory: 1 << 20,
    maxModelLen: 256,
    maxNumBatchedTokens: 64,
    onEvent: ({ message }) => event(message),
    ...(extra === undefined
      ? {}
      : {
          kvTransferConfig: {
            kv_connector: 'SharedStorageConnector',
            kv_role: 'kv_both',
            kv_connector_extra_config: { shared_storage_path: store, lookup_timeout_seconds: 60, ...extra },
          },
        }),
  });

interface Answers {
  readonly texts: readonly string[];
  /** Text, tokens and logprobs: the same bits in each run with the same kernels. */
  readonly bits: readonly string[];
  readonly finishes: readonly string[];
}

async function answersOf(engine: AsyncEngine): Promise<Answers> {
  const answers = await Promise.all(
    requests.map(async (request) => {
      const [text, bits, finishes]: [string[], unknown[], string[]] = [[], [], []];
      for await (const delta of engine.generate(request)) {
        text.push(delta.text);
        bits.push(delta.text, delta.tokenIds, delta.logprobs);
        if (delta.finish !== undefined) finishes.push(delta.finish.reason);
      }
      return { text: text.join(''), bits: JSON.stringify(bits), finish: finishes.join() };
    }),
  );
  return {
    texts: answers.map(({ text }) => text),
    bits: answers.map(({ bits }) => bits),
    finishes: answers.map(({ finish }) => finish),
  };
}

describe('when the n-th system call fails,', {
  ...needs(existsSync('/proc/self/fd'), 'no /proc'),
  timeout: isEvery ? 3_600_000 : 300_000,
}, () => {
  const all = async (seed: number, run: Run): Promise<void> => {
    const failures = await failEach(run, { points, seed, covered });
    expect(failures.join('\n\n')).toBe('');
  };

  it('a digest is computed again or is not cached', () =>
    all(1, async (fault) => {
      const cacheFolder = folder.file('digests');
      rmSync(cacheFolder, { recursive: true, force: true });
      await withFault(fault, async () => {
        for (let time = 0; time < 2; time++) {
          const digest = await digestFile(model, { cacheFolder }).catch((error: unknown) => {
            // The runner does this for an engine.
            throw withAllocationFailure(error, 'the digest', 'CPU');
          });
          expect(digest.sha256).toMatch(/^[0-9a-f]{64}$/);
          expect(digest.state.bytes).toBe(statSync(model).size);
        }
      });
      expect(temporaryFilesIn(cacheFolder)).toEqual([]);
    }));

  it('a cached library is found complete or not at all', () =>
    all(2, async (fault) => {
      const cacheFolder = folder.file('libraries');
      rmSync(cacheFolder, { recursive: true, force: true });
      const library = new Uint8Array(5000).fill(7);
      let path: string | undefined;
      await withFault(fault, async () => {
        const error = await keepLibrary(cacheFolder, 'key', library).then(
          () => undefined,
          (reason: unknown) => reason,
        );
        if (error !== undefined) expect(error).toHaveProperty('syscall');
        const found = (await findLibrary(cacheFolder, 'key')).library;
        if (found !== undefined) expect([...found]).toEqual([...library]);
        path = sealedFile('test', library);
      });
      if (path !== undefined) expect([...readFileSync(path)]).toEqual([...library]);
      expect(openFilesBelow('/memfd:test').length).toBe(path === undefined ? 0 : 1);
      for (const { descriptor } of openFilesBelow('/memfd:test')) closeSync(descriptor);
      expect(temporaryFilesIn(cacheFolder)).toEqual([]);
    }));

  it('an engine that stores blocks has the same output or reports an error', () =>
    all(3, (fault) => runEngine(fault, undefined, { fsync: true })));

  it('an engine with async loads has the same output or reports an error', () =>
    all(4, (fault) => runEngine(fault, complete, { async_load: true })));

  it('an engine with sync loads has the same output or reports an error', () =>
    all(5, (fault) => runEngine(fault, complete, { async_load: false })));

  it('an engine that cleans up a store has the same output or reports an error', () => {
    const untidy = untidyStore();
    return all(6, (fault) => runEngine(fault, untidy, { max_bytes: 3 * 17_000, others_max_bytes: 0 }));
  });
});

/** The complete store with a corrupt block, a temporary file of a dead writer, and blocks of another model. */
function untidyStore(): string {
  const untidy = folder.file('untidy');
  cpSync(complete, untidy, { recursive: true });
  const [block] = filesIn(untidy, '.kv');
  const bytes = readFileSync(block!);
  bytes[bytes.length - 1]! ^= 1;
  writeFileSync(block!, bytes);
  const old = join(dirname(block!), '.old.tmp');
  writeFileSync(old, 'half a block');
  const other = join(untidy, 'kv-00000000000000000000000000000000', 'rank0of1', '00', basename(block!));
  mkdirSync(dirname(other), { recursive: true });
  writeFileSync(other, bytes);
  const longAgo = new Date(Date.now() - 30 * 86_400_000);
  for (const path of [old, other, dirname(other), dirname(dirname(other))]) utimesSync(path, longAgo, longAgo);
  return untidy;
}

/**
 * Memory of a step's graph and of its attention. If it cannot be allocated, the engine ends, because the executor cannot know what the
 * step has written. No other failure ends an engine that has started.
 */
const isMemoryOfStep = ({ site } = { site: '' }): boolean =>
  [
    /^ggml_gallocr_alloc_graph in allocate \(ggml\/compute-memory:/,
    /^ggml_backend_graph_compute in .* \(ggml\/native-thread-main:/,
    /^new ArrayBuffer in #grow \(ggml\/graph:/,
    // A step with a new number of rows has a new graph.
    /^new ArrayBuffer in <instance_members_initializer> \(ggml\/graph:/,
    /^new ArrayBuffer in reserve \(native\/native-memory:.* \(runner\/attention\//,
  ].some((pattern) => pattern.test(site));

async function runEngine(fault: Fault | undefined, content: string | undefined, extra: Extra): Promise<void> {
  rmSync(store, { recursive: true, force: true });
  if (content !== undefined) cpSync(content, store, { recursive: true, preserveTimestamps: true });
  const events: string[] = [];
  forgetSelfTests();
  await withFault(fault, async () => {
    const engine = await engineWith(extra, (message) => events.push(message));
    try {
      const answers = await answersOf(engine);
      if (answers.finishes.includes('error')) {
        expect(isMemoryOfStep(fault), 'only a step without memory ends the engine').toBe(true);
        const message = expect.stringMatching(/^Could not allocate (memory|a buffer) for a step/) as unknown;
        expect(engine.health()).toMatchObject({ status: 'broken', message });
        await expect(answersOf(engine)).rejects.toThrow(KvasirError);
        return;
      }
      // Other kernels give other bits, and an event reports them.
      const hasOtherKernels = events.some((event) => event.includes('cannot be used'));
      if (hasOtherKernels) expect(answers.texts).toEqual(expected.texts);
      else expect(answers).toEqual(expected);
      const { blocks } = engine.stats();
      expect(blocks.free + blocks.cached).toBe(blocks.total);
    } finally {
      await engine.close();
    }
  });
  if (content !== undefined && content !== complete) return;
  // An engine with other kernels has its own folder.
  const ours = filesIn(store, '.kv').filter((path) => existsSync(join(complete, relative(store, path))));
  expect(temporaryFilesIn(store)).toEqual([]);
  for (const path of ours) {
    expect(readFileSync(path).equals(readFileSync(join(complete, relative(store, path)))), `${path} is complete`).toBe(
      true,
    );
  }
}

/** Runs `use` with this fault, and checks that nothing stays open. An error of the catalogue is a right result. */
async function withFault(fault: Fault | undefined, use: () => Promise<void>): Promise<void> {
  points.begin(fault);
  try {
    await use();
  } catch (error) {
    if (fault === undefined || !(error instanceof KvasirError)) throw error;
  } finally {
    points.end();
    await expect.poll(() => openFilesBelow(folder.path)).toEqual([]);
    await expect
      .poll(() => open.counts())
      .toEqual(nothingOpen)
      .finally(() => {
        // One leak fails one run, not all later runs.
        nothingOpen = open.counts();
      });
    await expect.poll(() => points.threadCount).toBeLessThanOrEqual(spareThreads);
  }
}

const filesIn = (path: string, end: string): string[] =>
  existsSync(path)
    ? readdirSync(path, { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith(end))
        .map((name) => join(path, name))
    : [];

const temporaryFilesIn = (path: string): string[] => filesIn(path, '.tmp');
