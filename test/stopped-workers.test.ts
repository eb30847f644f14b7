/** Stopped worker processes (SIGSTOP) are killed and replaced, and the text stays the same. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { JsonObject } from '../src/base/json.ts';
import { type MeasuredEngine, openMeasuredEngine } from '../src/compose.ts';
import type { AsyncEngine, EngineEvent, OutputDelta } from '../src/engine/contract.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import type { RestartPolicy } from '../src/worker/restart-budget.ts';
import { buildCommand } from './support/cli-process.ts';
import { inLongForm, itInLongForm } from './support/long-form.ts';
import { allGone, childrenOf, isRunning } from './support/processes.ts';
import { smallDemo } from './support/small-demo.ts';
import { temporaryFolder } from './support/tiny-model.ts';

const folder = temporaryFolder();
const opened: MeasuredEngine[] = [];
const patient: RestartPolicy = { startsMax: 100, withinMs: 60_000, backoffMs: 0 };
/** Options for `expect.poll`. */
const patience = { timeout: 60_000, interval: 10 };

beforeAll(buildCommand, 60_000);
afterEach(async () => {
  for (const { engine } of opened.splice(0)) await engine.close();
  await allGone(childrenOf(process.pid));
});

afterAll(() => folder.remove());

const engineOptions = { ...smallDemo, pipelineParallelSize: 2, workerTimeout: 1 };

async function open(options: Partial<EngineOptions> = {}) {
  const events: EngineEvent[] = [];
  const measured = await openMeasuredEngine(
    {
      ...engineOptions,
      onEvent: (event) => events.push(event),
      ...options,
    },
    patient,
  );
  opened.push(measured);
  return { ...measured, events };
}

/** `onToken`: called after each token, with the number of tokens. */
async function complete(engine: AsyncEngine, onToken: (count: number) => void = () => undefined) {
  const params = { maxTokens: 60, temperature: 0.8, seed: 3n, ignoreEos: true, logprobs: 2 };
  const deltas: OutputDelta[] = [];
  for await (const delta of engine.generate({ prompt: 'There was a fox. '.repeat(12), params })) {
    deltas.push(delta);
    onToken(deltas.length);
  }
  return {
    text: deltas.map(({ text }) => text).join(''),
    logprobs: deltas.flatMap(({ logprobs }) => logprobs ?? []),
    finish: deltas.at(-1)?.finish?.reason,
  };
}

/** The completion of an engine in one process. */
let expected: Awaited<ReturnType<typeof complete>>;
beforeAll(async () => {
  expected = await complete((await open({ pipelineParallelSize: 1 })).engine);
});

const stop = (processId: number | undefined): boolean => process.kill(processId!, 'SIGSTOP');

/** A connector whose worker side blocks the 20th step without end, once; the engine sees it as a kernel that hangs. */
function endlessStep() {
  const path = folder.file('endless.mjs');
  const [rank, marker] = [join(process.cwd(), 'dist/src/worker/rank-inline.js'), folder.file('has-hung')];
  writeFileSync(
    path,
    `import { existsSync, writeFileSync } from 'node:fs';
     import { InlineRank } from ${JSON.stringify(rank)};
     const nothing = { finishedSending: [], finishedRecving: [], drained: [], failedRecving: [], saveFailures: [],
       evicted: [], counters: {}, expectedFinishedCount: 0 };
     export class Endless {
       openScheduler() {
         return { getMatchedBlocks: () => ({ kind: 'found', blocks: [], mode: 'async' }), updateStateAfterAlloc() {},
           buildConnectorMeta: () => ({ saves: [] }), updateConnectorOutput() {}, requestFinished: () => ({}),
           takeEvents: () => [], hasPendingWork: () => false, close: async () => {} };
       }
       openWorker() {
         let steps = 0;
         return { registerKvCaches() {}, handlePreemptions: async () => {}, bindConnectorMetadata() {},
           startLoadKv() { steps++; },
           async waitForLayerLoad() {
             if (steps !== 20 || existsSync(${JSON.stringify(marker)})) return;
             writeFileSync(${JSON.stringify(marker)}, '');
             Object.defineProperty(InlineRank.prototype, 'isComputing', { get: () => true });
             await new Promise(() => {});
           },
           saveKvLayer() {}, waitForSave: async () => {}, getFinished: () => nothing,
           getBlockIdsWithLoadErrors: () => [], clearConnectorMetadata() {},
           shutdown: async () => ({ drained: true }) };
       }
     }`,
  );
  return { kv_connector: 'Endless', kv_role: 'kv_both', kv_connector_module_path: path };
}

/** Completes in a process that runs the modules of the compiler, because the connector changes one of them in the worker process. */
async function completeInModules(options: Partial<EngineOptions>) {
  const program = `
    const { openMeasuredEngine } = await import(${JSON.stringify(join(process.cwd(), 'dist', 'src', 'compose.js'))});
    const events = [];
    const options = { ...${JSON.stringify({ ...engineOptions, ...options })}, onEvent: (event) => events.push(event) };
    const { engine } = await openMeasuredEngine(options, ${JSON.stringify(patient)});
    ${complete.toString()}
    const completed = await complete(engine);
    await engine.close();
    console.log(JSON.stringify({ completed, events }, (_, value) => (typeof value === 'bigint' ? Number(value) : value)));
  `;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', program]);
  return JSON.parse(stdout) as { completed: Awaited<ReturnType<typeof complete>>; events: EngineEvent[] };
}

itInLongForm('a worker that answers but computes one step without end is replaced', async () => {
  const { completed, events } = await completeInModules({ kvTransferConfig: endlessStep() });
  expect(completed).toEqual(JSON.parse(JSON.stringify(expected)));
  expect(events.map(({ message }) => message).join('\n')).toMatch(
    /The worker process of rank \d of 2 computed one step for 6(\.\d)? s and was killed\. It is started again/,
  );
});

describe('a stopped worker', () => {
  const stopped: [string, number[]][] = [
    ['the first rank', [0]],
    ['the last rank', [1]],
    ['all ranks', [0, 1]],
  ];
  it.each(inLongForm(stopped, stopped.slice(1, 2)))(
    'is replaced while it computes, and the text stays the same: %s',
    async (_, ranks) => {
      const { engine, processIds, events } = await open();
      const before = processIds();
      const statuses = new Set<string>();
      const states = new Set<string>();
      const watching = setInterval(() => {
        const health = engine.health();
        statuses.add(health.status);
        if (health.status !== 'recovering') return;
        for (const { rank, state, processId } of health.ranks ?? [])
          states.add(`${rank} is ${state}${state === 'silent' ? `: ${processId}` : ''}`);
      }, 5);
      const onToken = (count: number): void => {
        if (count === 20) for (const rank of ranks) stop(before[rank]);
      };
      expect(await complete(engine, onToken)).toEqual(expected);
      clearInterval(watching);
      expect(statuses).toEqual(new Set(['ok', 'recovering']));
      for (const rank of ranks) {
        expect(states).toContain(`rank ${rank} of 2 is silent: ${before[rank]}`);
        expect(states).toContain(`rank ${rank} of 2 is restarting`);
      }
      // On a very busy machine, a live worker may fail to answer within its second, too.
      expect(events.map(({ message }) => message)).toEqual(
        expect.arrayContaining(
          ranks.map(
            (rank) =>
              `The worker process of rank ${rank} of 2 did not answer for 1 s and was killed. It is started again, and its KV is computed again.`,
          ),
        ),
      );
      for (const rank of ranks) expect(isRunning(before[rank]!)).toBe(false);
      await expect.poll(() => engine.health(), patience).toEqual({ status: 'ok' });
      expect(engine.stats().blocks.referenced).toBe(0);
    },
  );

  // The default form has the health in the test above, and a killed worker without a request in `worker-processes.test.ts`.
  itInLongForm('is replaced while no request runs, and the health names it', async () => {
    const { engine, processIds } = await open();
    expect(await complete(engine)).toEqual(expected);
    const [, second] = processIds();
    stop(second);
    await expect
      .poll(() => engine.health(), patience)
      .toMatchObject({
        status: 'recovering',
        ranks: [{ rank: 'rank 1 of 2', state: 'silent', processId: second }],
      });
    await expect
      .poll(() => engine.health(), patience)
      .toMatchObject({
        status: 'recovering',
        ranks: [{ rank: 'rank 1 of 2', state: 'restarting' }],
      });
    await expect.poll(() => engine.health(), patience).toEqual({ status: 'ok' });
    expect(await complete(engine)).toEqual(expected);
  });

  it.each(inLongForm(['sync', 'async'], []))(
    'is replaced while it loads KV, and no transfer stays open (%s)',
    async (mode) => {
      const storeWith = (rules: readonly JsonObject[]) => ({
        kv_connector: 'SharedStorageConnector',
        kv_role: 'kv_both',
        kv_connector_extra_config: {
          shared_storage_path: folder.file(`store-${mode}`),
          async_load: mode === 'async',
          fault_injection: { seed: 1, rules },
        },
      });
      const writer = await open({ kvTransferConfig: storeWith([]) });
      expect(await complete(writer.engine)).toEqual(expected);
      await writer.engine.close();

      // The load takes longer than the test needs to see it.
      const rules = [{ fault: 'slow', on: 'load', delay_ms: 700 }];
      const { engine, processIds, events } = await open({ kvTransferConfig: storeWith(rules) });
      const [, second] = processIds();
      const completed = complete(engine);
      await expect.poll(() => engine.stats().transfers.open, { ...patience, interval: 1 }).toBeGreaterThan(0);
      stop(second);
      expect(await completed).toEqual(expected);
      expect(events.map(({ message }) => message).join('\n')).toContain('rank 1 of 2 did not answer for 1 s');
      await expect.poll(() => engine.stats().transfers.open, patience).toBe(0);
      expect(engine.stats().blocks.referenced).toBe(0);
    },
  );

  it('is not replaced if it continues in time', async () => {
    const { engine, processIds, events } = await open({ workerTimeout: 3600 });
    expect(await complete(engine)).toEqual(expected);
    const before = processIds();
    const onToken = (count: number): void => {
      if (count !== 20) return;
      stop(before[1]);
      setTimeout(() => process.kill(before[1]!, 'SIGCONT'), 300);
    };
    expect(await complete(engine, onToken)).toEqual(expected);
    expect(processIds()).toEqual(before);
    expect(events).toEqual([]);
  });

  itInLongForm('is replaced again if its replacement is stopped while it loads', async () => {
    const { engine, processIds, events } = await open({ pipelineParallelSize: 1, distributedExecutorBackend: 'mp' });
    expect(await complete(engine)).toEqual(expected);
    const [first] = processIds();
    process.kill(first!, 'SIGKILL');
    await expect.poll(() => processIds()[0], { ...patience, interval: 1 }).not.toBe(first);
    stop(processIds()[0]);
    expect(await complete(engine)).toEqual(expected);
    expect(events.map(({ message }) => message).join('\n')).toMatch(/died of SIGKILL[\s\S]*did not answer for 6 s/);
  });

  it('does not delay the close of the engine, and ends', async () => {
    const { engine, processIds } = await open({ workerTimeout: 3600 });
    const before = processIds();
    for (const id of before) stop(id);
    await engine.close();
    expect(before.filter(isRunning)).toEqual([]);
  });

  // `worker-processes.test.ts` has the default form of this.
  it.each(inLongForm(['too many starts'], []))(
    'is not replaced after %s, and the health says that the state is final',
    async () => {
      const { engine, processIds } = await openMeasuredEngine(
        { ...smallDemo, distributedExecutorBackend: 'mp', workerTimeout: 1 },
        { startsMax: 1, withinMs: 60_000, backoffMs: 0 },
      );
      stop(processIds()[0]);
      await expect
        .poll(() => engine.health(), patience)
        .toMatchObject({
          status: 'broken',
          message: 'The worker process of rank 0 of 1 did not answer for 1 s and was killed, and is not started again.',
        });
      await engine.close();
    },
  );
});
