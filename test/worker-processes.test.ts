/** Worker processes with the bundled model generate the same text as one process, and all of them end. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type MeasuredEngine, openMeasuredEngine } from '../src/compose.ts';
import type { AsyncEngine, EngineEvent, OutputDelta } from '../src/engine/contract.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import type { RestartPolicy } from '../src/worker/restart-budget.ts';
import { buildCommand, main } from './support/cli-process.ts';
import { describeInLongForm, inLongForm, itInLongForm } from './support/long-form.ts';
import { writeNanToken } from './support/nan-token.ts';
import { allGone, childrenOf, isRunning } from './support/processes.ts';
import { smallDemo } from './support/small-demo.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const folder = temporaryFolder();
const opened: MeasuredEngine[] = [];
const children: ChildProcess[] = [];

beforeAll(buildCommand);
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  for (const { engine } of opened.splice(0)) await engine.close();
  await allGone(childrenOf(process.pid));
});
afterAll(() => folder.remove());

/** For tests with more kills than the default policy allows. */
const patient: RestartPolicy = { startsMax: 100, withinMs: 60_000, backoffMs: 0 };

async function open(options: Partial<EngineOptions>, restarts?: RestartPolicy): Promise<MeasuredEngine> {
  const measured = await openMeasuredEngine({ ...smallDemo, ...options }, restarts);
  opened.push(measured);
  return measured;
}

async function completion(engine: AsyncEngine, prompt: string | number[], temperature = 0) {
  const params = { maxTokens: 30, temperature, seed: 3n, ignoreEos: true, logprobs: 2 };
  const deltas: OutputDelta[] = [];
  for await (const delta of engine.generate({ prompt, params })) deltas.push(delta);
  return {
    text: deltas.map(({ text }) => text).join(''),
    logprobs: deltas.flatMap(({ logprobs }) => logprobs ?? []),
    finish: deltas.at(-1)?.finish,
  };
}

const prompts = ['Once upon a time', 'There was a fox. '.repeat(12), 'There was a fox. '.repeat(10), 'Rain fell'];
const completions = (engine: AsyncEngine) =>
  Promise.all(prompts.map((prompt, index) => completion(engine, prompt, index % 2 === 0 ? 0 : 0.8)));

describe('worker processes', () => {
  it('give the same text and logprobs as one process, with one rank or several', async () => {
    const expected = await completions((await open({})).engine);
    const several: readonly Partial<EngineOptions>[] = [
      { pipelineParallelSize: 3 },
      { pipelineParallelSize: 2, distributedExecutorBackend: 'uni' },
    ];
    // The default form has one rank in a process in the tests of its errors.
    const all = inLongForm<typeof several>([{ distributedExecutorBackend: 'mp' }, ...several], several);
    for (const options of all) {
      const { engine, processIds } = await open(options);
      const hasWorkers = options.distributedExecutorBackend !== 'uni';
      expect(new Set(processIds()).size, 'processes').toBe(hasWorkers ? (options.pipelineParallelSize ?? 1) : 1);
      expect(processIds().includes(process.pid)).toBe(!hasWorkers);
      expect(await completions(engine)).toEqual(expected);
      // And again, from the prefix cache.
      expect(await completions(engine)).toEqual(expected);
      expect(engine.stats().blocks.referenced).toBe(0);
    }
  });

  it('together have the requested memory, with equally many blocks', async () => {
    const [one, two] = [await open({}), await open({ pipelineParallelSize: 2, distributedExecutorBackend: 'uni' })];
    expect(two.engine.stats().blocks.total).toBe(one.engine.stats().blocks.total);
  });

  it('report the error of one request with its code and fields', async () => {
    const model = folder.file('nan.gguf');
    await writeTinyModel(model, { architecture: 'llama', type: 'F32', tied: false });
    await writeNanToken(model, 77);
    const { engine } = await open({ model, maxModelLen: 64, distributedExecutorBackend: 'mp' });
    const [failed, good] = await Promise.all([completion(engine, [5, 77, 6]), completion(engine, [5, 6, 7])]);
    expect(failed.finish?.error).toMatchObject({
      code: 'KVASIR_BROKEN_LOGITS',
      httpStatus: 500,
      fields: { position: 3 },
    });
    expect(good.finish?.reason).toBe('length');
  });

  it('that cannot be opened report the reason, and none stays running', async () => {
    await expect(
      open({ pipelineParallelSize: 2, kvCacheMemory: 2 ** 37, skipMemoryCheck: true }),
    ).rejects.toMatchObject({
      code: 'KVASIR_OUT_OF_NATIVE_MEMORY',
    });
    await expect(open({ pipelineParallelSize: 99 })).rejects.toMatchObject({
      code: 'KVASIR_TOO_MANY_RANKS',
      httpStatus: 400,
      fields: { ranks: 99 },
    });
    expect(childrenOf(process.pid).filter(isRunning)).toEqual([]);
  });

  itInLongForm('report how many bytes all of them have read, and end when the engine is closed', async () => {
    const seen: (readonly [number, number])[] = [];
    const { engine, processIds } = await open({
      pipelineParallelSize: 2,
      onProgress: (...report) => seen.push(report),
    });
    const last = seen.at(-1)!;
    expect(last[0]).toBe(last[1]);
    for (const [i, [loaded, total]] of seen.entries()) {
      expect(total).toBe(last[1]);
      expect(loaded).toBeGreaterThanOrEqual(seen[i - 1]?.[0] ?? 0);
    }
    const ids = processIds();
    expect(ids.every(isRunning)).toBe(true);
    await engine.close();
    expect(ids.some(isRunning)).toBe(false);
  });
});

describe('a killed worker', () => {
  it('is replaced while no request runs, and its cached blocks are computed again', async () => {
    const events: EngineEvent[] = [];
    const { engine, processIds } = await open(
      { pipelineParallelSize: 2, onEvent: (event) => events.push(event) },
      patient,
    );
    const expected = await completion(engine, prompts[1]!);
    const before = processIds();
    process.kill(before[1]!, 'SIGKILL');
    await expect.poll(() => processIds()[1]).not.toBe(before[1]);
    expect(await completion(engine, prompts[1]!)).toEqual(expected);
    expect(events[0]).toEqual({
      level: 'warn',
      message: 'The worker process of rank 1 of 2 died of SIGKILL. It is started again, and its KV is computed again.',
      fields: { rank: 'rank 1 of 2', processId: before[1], reason: 'died of SIGKILL' },
    });
    expect(processIds()[0]).toBe(before[0]);
  });

  // The default form has the limit in `src/worker/restart-budget.test.ts`.
  itInLongForm('is not replaced after too many starts, and the engine reports the reason', async () => {
    const events: EngineEvent[] = [];
    const { engine, processIds } = await open(
      { pipelineParallelSize: 2, onEvent: (event) => events.push(event) },
      { startsMax: 2, withinMs: 60_000, backoffMs: 0 },
    );
    const [first] = processIds();
    process.kill(first!, 'SIGKILL');
    expect((await completion(engine, 'Once')).finish?.reason).toBe('length');
    process.kill(processIds()[0]!, 'SIGKILL');
    expect((await completion(engine, 'Once')).finish?.reason).toBe('error');
    expect(engine.isHealthy()).toBe(false);
    await expect(completion(engine, 'Once')).rejects.toMatchObject({
      code: 'KVASIR_ENGINE_BROKEN',
      message: expect.stringMatching(/rank 0 of 2 died of SIGKILL\. It is not started again, because it ended 2 times/),
      cause: { code: 'KVASIR_WORKER_GONE', fields: { starts: 2 } },
    });
    expect(events.filter(({ level }) => level === 'error')).toEqual([
      expect.objectContaining({ message: expect.stringContaining('is not started again') }),
    ]);
  });
});

describeInLongForm('a failing worker', () => {
  /** A connector whose worker side works for 19 steps and then fails in the given way. */
  const breaking = (what: string) => {
    const path = folder.file(`breaking-${what}.mjs`);
    writeFileSync(
      path,
      `const nothing = { finishedSending: [], finishedRecving: [], drained: [], failedRecving: [], saveFailures: [],
         evicted: [], counters: {}, expectedFinishedCount: 0 };
       const failures = {
         throw() { throw new RangeError('one step too many'); },
         exit() { process.exit(3); },
         uncaught() { setTimeout(() => { throw new Error('uncaught error'); }); },
         disconnect() { process.disconnect(); },
       };
       export class Breaking {
         openScheduler() {
           return { getMatchedBlocks: () => ({ kind: 'found', blocks: [], mode: 'async' }), updateStateAfterAlloc() {},
             buildConnectorMeta: () => ({ saves: [] }), updateConnectorOutput() {}, requestFinished: () => ({}),
             takeEvents: () => [], hasPendingWork: () => false, close: async () => {} };
         }
         openWorker() {
           let steps = 0;
           return { registerKvCaches() {}, handlePreemptions: async () => {}, bindConnectorMetadata() {},
             startLoadKv() { if (++steps === 20) failures.${what}(); },
             waitForLayerLoad: async () => {}, saveKvLayer() {}, waitForSave: async () => {}, getFinished: () => nothing,
             getBlockIdsWithLoadErrors: () => [], clearConnectorMetadata() {},
             shutdown: async () => ({ drained: true }) };
         }
       }`,
    );
    return { kv_connector: 'Breaking', kv_role: 'kv_both', kv_connector_module_path: path };
  };

  const failures: readonly (readonly [what: string, reason: string])[] = [
    ['throw', 'died of SIGKILL (one step too many)'],
    ['exit', 'exited with code 3'],
    ['uncaught', 'exited with code 1'],
    ['disconnect', 'died of SIGKILL'],
  ];
  // They end the process in other ways than the killed worker above.
  it.each(failures)(
    'is replaced after a failure of its connector (%s), and the text stays the same',
    async (what, reason) => {
      const expected = await completion((await open({})).engine, 'Once');
      const events: EngineEvent[] = [];
      const options = { pipelineParallelSize: 2, kvTransferConfig: breaking(what) };
      const { engine } = await open({ ...options, onEvent: (event) => events.push(event) }, patient);
      expect(await completion(engine, 'Once')).toEqual(expected);
      const deaths = events.filter(({ fields }) => 'reason' in fields);
      expect(deaths.length).toBeGreaterThan(0);
      for (const { fields } of deaths) expect(fields.reason).toBe(reason);
    },
  );

  // The default form has this with all workers in `stopped-workers.test.ts`.
  itInLongForm('that no longer answers is killed when the engine closes', async () => {
    const { engine, processIds } = await open({ pipelineParallelSize: 2 });
    const ids = processIds();
    process.kill(ids[1]!, 'SIGSTOP');
    await engine.close();
    expect(ids.some(isRunning)).toBe(false);
  });
});

describe('the process of the engine', () => {
  /** A command that generates without end, in its own process group, and its workers. */
  async function startCommand() {
    const flags = ['--pipeline-parallel-size', '2', '--threads', '1', '--kv-cache-memory', '8MiB'];
    const what = ['--prompt', 'Once upon a time', '--max-tokens', '1500', '--ignore-eos'];
    const child = spawn(process.execPath, [main, 'generate', ...flags, ...what], {
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    children.push(child);
    let log = '';
    child.stderr.on('data', (piece) => {
      log += piece;
    });
    const exited = once(child, 'exit');
    await Promise.race([once(child.stdout, 'data'), exited]);
    child.stdout.resume();
    const workers = childrenOf(child.pid!);
    expect(workers.length, log).toBe(2);
    return { child, workers, exited, log: () => log };
  }

  it('ends its workers when it is killed with -9', async () => {
    const { child, workers, exited } = await startCommand();
    child.kill('SIGKILL');
    await exited;
    await allGone(workers);
  });

  itInLongForm('ends its workers when it is killed with -9 while they start', async () => {
    const child = spawn(process.execPath, [main, 'generate', '--pipeline-parallel-size', '2', '--prompt', 'Once'], {
      stdio: 'ignore',
    });
    children.push(child);
    await expect.poll(() => childrenOf(child.pid!).length, { interval: 5 }).toBe(2);
    const workers = childrenOf(child.pid!);
    child.kill('SIGKILL');
    await allGone(workers);
  });

  itInLongForm('closes its workers in order after Ctrl-C in a terminal, which signals all its processes', async () => {
    const { child, workers, exited, log } = await startCommand();
    process.kill(-child.pid!, 'SIGINT');
    expect(await exited).toEqual([130, null]);
    expect(workers.some(isRunning)).toBe(false);
    expect(log()).not.toContain('died');
  });

  itInLongForm('ends its workers when it exits without closing the engine', async () => {
    const script = `
      const { createEngine } = await import(${JSON.stringify(join(process.cwd(), 'dist', 'bundle', 'src', 'index.js'))});
      const engine = await createEngine(${JSON.stringify({ ...smallDemo, pipelineParallelSize: 2 })});
      for await (const { text } of engine.generate({ prompt: 'Once', params: { maxTokens: 5 } })) process.stdout.write(text);
    `;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(child);
    const exited = once(child, 'exit');
    await Promise.race([once(child.stdout, 'data'), exited]);
    child.stdout.resume();
    const workers = childrenOf(child.pid!);
    expect(await exited).toEqual([0, null]);
    await allGone(workers);
  });
});
