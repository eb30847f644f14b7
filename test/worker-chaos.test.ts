/**
 * I2 and I9 with real processes: workers of two ranks are killed with -9 at random moments. All texts and logprobs equal those
 * of the run without kills.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { JsonObject } from '../src/base/json.ts';
import { Prng } from '../src/base/prng.ts';
import { type MeasuredEngine, openMeasuredEngine } from '../src/compose.ts';
import type { AsyncEngine, OutputDelta } from '../src/engine/contract.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { buildCommand } from './support/cli-process.ts';
import { inLongForm } from './support/long-form.ts';
import { allGone, childrenOf } from './support/processes.ts';
import { smallDemo } from './support/small-demo.ts';
import { temporaryFolder } from './support/tiny-model.ts';

const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);
const folder = temporaryFolder();
const opened: MeasuredEngine[] = [];

beforeAll(buildCommand);
afterEach(async () => {
  for (const { engine } of opened.splice(0)) await engine.close();
  await allGone(childrenOf(process.pid));
});
afterAll(() => folder.remove());

/** Allows any number of kills. */
const patient = { startsMax: Infinity, withinMs: 60_000, backoffMs: 0 };

async function open(options: Partial<EngineOptions>): Promise<MeasuredEngine> {
  const measured = await openMeasuredEngine({ ...smallDemo, ...options }, patient);
  opened.push(measured);
  return measured;
}

/** Long prompts with a shared prefix, and short prompts; greedy and seeded. */
const prompts = ['Once upon a time', 'There was a fox. '.repeat(20), 'There was a fox. '.repeat(14), 'Rain fell'];

type OnToken = (request: number) => void;

async function complete(engine: AsyncEngine, index: number, maxTokens: number, onToken: OnToken = () => undefined) {
  const params = { maxTokens, temperature: index % 2 === 0 ? 0 : 0.8, seed: 3n, ignoreEos: true, logprobs: 2 };
  const deltas: OutputDelta[] = [];
  for await (const delta of engine.generate({ prompt: prompts[index]!, params })) {
    deltas.push(delta);
    onToken(index);
  }
  return {
    text: deltas.map(({ text }) => text).join(''),
    logprobs: deltas.flatMap(({ logprobs }) => logprobs ?? []),
    finish: deltas.at(-1)?.finish?.reason,
  };
}

const completeAll = (engine: AsyncEngine, maxTokens: number, onToken?: OnToken) =>
  Promise.all(prompts.map((_, index) => complete(engine, index, maxTokens, onToken)));

/** Kills one of the workers; returns the number of killed processes. */
function killOne({ processIds }: MeasuredEngine, prng: Prng): number {
  try {
    process.kill(prng.pick(processIds()), 'SIGKILL');
    return 1;
  } catch {
    // The process has died already, and its replacement has not started yet.
    return 0;
  }
}

describe('an engine', () => {
  it('generates the same texts and logprobs when workers die at random moments', async () => {
    const reference = await open({});
    const expected = await completeAll(reference.engine, 80);
    const measured = await open({ pipelineParallelSize: 2 });
    for (let seed = firstSeed; seed < firstSeed + inLongForm(2, 1); seed++) {
      const prng = new Prng(seed);
      let kills = 0;
      let tokens = 0;
      const certain = prng.between(5, 60);
      const timers: NodeJS.Timeout[] = [];
      // One kill between two tokens always, and up to four (in the default form two) at random times, so also during a step.
      const onToken = (): void => {
        if (++tokens >= certain && kills === 0) kills += killOne(measured, prng);
        if (timers.length < inLongForm(4, 2) && prng.chance(0.03)) {
          timers.push(setTimeout(() => (kills += killOne(measured, prng)), prng.between(0, 20)));
        }
      };
      expect(await completeAll(measured.engine, 80, onToken), `KVASIR_FUZZ_SEED=${seed}`).toEqual(expected);
      for (const timer of timers) clearTimeout(timer);
      expect(kills, `kills with KVASIR_FUZZ_SEED=${seed}`).toBeGreaterThan(0);
    }
    const { recomputedTokens, blocks, transfers } = measured.engine.stats();
    expect(recomputedTokens).toBeGreaterThan(0);
    expect(transfers.recoveries).toBeGreaterThan(0);
    expect(blocks.referenced).toBe(0);
  });

  const modes: [string, number][] = [
    ['async', 3],
    ['sync', 2],
  ];
  // The default form has the stored blocks of running requests in `hits-kept.test.ts`, and ends of transfers in `src/worker/open-transfers.test.ts`.
  it.each(inLongForm(modes, []))(
    'ends the loads and saves of killed workers, and leaves no request waiting and no block pinned (%s, %i ranks)',
    async (mode, ranks) => {
      const expected = await completeAll((await open({})).engine, 40);
      const storeAt = (path: string, rules: readonly JsonObject[]) => ({
        kv_connector: 'SharedStorageConnector',
        kv_role: 'kv_both',
        kv_connector_extra_config: {
          shared_storage_path: path,
          async_load: mode === 'async',
          fault_injection: { seed: firstSeed, rules },
        },
      });
      const path = folder.file(`store-${mode}`);
      const writer = await open({ pipelineParallelSize: ranks, kvTransferConfig: storeAt(path, []) });
      expect(await completeAll(writer.engine, 40)).toEqual(expected);
      await writer.engine.close();

      // A load that ends before the kill shows nothing: then another engine tries again.
      const rules = [
        { fault: 'slow', on: 'load', delay_ms: 1_500 },
        { fault: 'slow', on: 'store', delay_ms: 300 },
      ];
      const prng = new Prng(firstSeed);
      for (let failedLoads = 0; failedLoads === 0; ) {
        const measured = await open({ pipelineParallelSize: ranks, kvTransferConfig: storeAt(path, rules) });
        const { engine } = measured;
        let kills = 0;
        const onToken = (): void => {
          if (kills > 0 && kills < 3 && prng.chance(0.05)) kills += killOne(measured, prng);
        };
        const completed = completeAll(engine, 40, onToken);
        await expect.poll(() => engine.stats().transfers.open, { interval: 5 }).toBeGreaterThan(0);
        kills += killOne(measured, prng);
        expect(await completed).toEqual(expected);
        expect(kills).toBeGreaterThan(0);
        await expect.poll(() => engine.stats().transfers.open).toBe(0);
        expect(engine.stats().blocks.referenced).toBe(0);
        failedLoads = engine.stats().transfers.counters['loadFailed.workerDied'] ?? 0;
        await engine.close();
      }
    },
  );

  it('ends the requests with invalid KV of a killed worker, and only these, with the policy fail', async () => {
    const kvTransferConfig = {
      kv_connector: 'SharedStorageConnector',
      kv_role: 'kv_consumer',
      kv_load_failure_policy: 'fail',
      kv_connector_extra_config: { shared_storage_path: folder.file('empty') },
    };
    const { engine, processIds } = await open({ pipelineParallelSize: 2, kvTransferConfig });
    // A request has valid KV as soon as it has a token.
    const started = new Set<number>();
    let isKilled = false;
    const onToken = (request: number): void => {
      if (isKilled || started.add(request).size < prompts.length) return;
      isKilled = true;
      process.kill(processIds()[0]!, 'SIGKILL');
    };
    for (const { finish } of await completeAll(engine, 200, onToken)) expect(finish).toBe('error');
    expect((await complete(engine, 0, 5)).finish).toBe('length');
    expect(engine.stats().blocks.referenced).toBe(0);
  });
});
