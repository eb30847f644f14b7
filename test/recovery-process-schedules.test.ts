/**
 * I1, I2 and I3 with real processes and files: random schedules of faults, arrivals and aborts on a directory, with two ranks in
 * worker processes. In the long form, each rank of both engines has two threads. One engine computes a workload and saves it, and the other loads it with
 * faults in its store; the next schedule swaps them. Each schedule has its own cache salt, so that no block is in the pools.
 *
 * 112 schedules: `KVASIR_TEST_LONG=1 RECOVERY_WORKLOADS=7 npx vitest run test/recovery-process-schedules.test.ts`.
 */
import { mkdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, onTestFailed } from 'vitest';
import { Prng } from '../src/base/prng.ts';
import { fullAttention, neededTokens } from '../src/cli/proof/needed-tokens.ts';
import { BlockStore, keysOf } from '../src/cli/proof/stored-blocks.ts';
import { createEngine } from '../src/compose.ts';
import type { FaultPlan } from '../src/connector/fault/fault-rules.ts';
import type { AsyncEngine, EngineStats } from '../src/engine/contract.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { buildCommand } from './support/cli-process.ts';
import { inLongForm, isLongForm } from './support/long-form.ts';
import { allGone, childrenOf } from './support/processes.ts';
import { randomFaults, randomRequests } from './support/random-schedules.ts';
import type { HarnessRequest } from './support/recovery-harness.ts';
import { ScheduledFaults } from './support/scheduled-connector.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';
import { until } from './support/until.ts';

const ranks = 2;
const blockSize = 16;
/** The long form of `.ci/run` runs 2, with 16 schedules each. */
const workloads = Number(process.env.RECOVERY_WORKLOADS ?? 1);
const schedulesPerWorkload = inLongForm(16, 3);

const folder = temporaryFolder();
const model = folder.file('qwen3.gguf');
const store = folder.file('store');
const opened: AsyncEngine[] = [];

/** An engine, and the faults of its store. */
interface Side {
  readonly engine: AsyncEngine;
  readonly faults: ScheduledFaults;
}
const sides: Side[] = [];
let alone: AsyncEngine;
let fingerprint: string;

beforeAll(async () => {
  await buildCommand();
  await writeTinyModel(model, { architecture: 'qwen3', type: 'Q8_0' });
  alone = await open({ threads: 1 });
  for (const mode of ['sync', 'async'] as const) sides.push(await openSide(mode));
  await complete(sides[0]!.engine, { prompt: Array.from({ length: 40 }, (_, i) => i), params: { maxTokens: 1 } });
  await settled(sides[0]!.engine);
  fingerprint = await new BlockStore(store).fingerprint();
});
afterAll(async () => {
  for (const engine of opened) await engine.close();
  await allGone(childrenOf(process.pid));
  folder.remove();
});

async function open(options: Partial<EngineOptions>): Promise<AsyncEngine> {
  const engine = await createEngine({
    model,
    kvCacheMemory: 16 << 20,
    maxModelLen: 512,
    maxNumBatchedTokens: 256,
    ...options,
  });
  opened.push(engine);
  return engine;
}

async function openSide(mode: 'sync' | 'async'): Promise<Side> {
  const control = folder.file(mode);
  mkdirSync(control);
  const faults = new ScheduledFaults(control, ranks);
  const kvTransferConfig = {
    kv_connector: 'ScheduledConnector',
    kv_connector_module_path: faults.modulePath,
    kv_role: 'kv_both',
    kv_connector_extra_config: {
      shared_storage_path: store,
      control_path: faults.controlPath,
      async_load: mode === 'async',
      lookup_timeout_seconds: 60,
    },
  };
  // Only in the long form, because ggml's threads spin while they wait.
  const threads = inLongForm(2, 1);
  const engine = await open({ threads, pipelineParallelSize: ranks, kvTransferConfig });
  return { engine, faults };
}

async function complete(engine: AsyncEngine, { arriveMs = 0, abortAfter = Infinity, ...request }: HarnessRequest) {
  if (arriveMs > 0) await sleep(arriveMs);
  const abort = new AbortController();
  const output = { text: '', tokens: [] as number[], logprobs: [] as unknown[], reason: 'none' };
  for await (const delta of engine.generate(request, { signal: abort.signal })) {
    output.text += delta.text;
    output.tokens.push(...delta.tokenIds);
    output.logprobs.push(...(delta.logprobs ?? []));
    output.reason = delta.finish?.reason ?? output.reason;
    if (output.tokens.length >= abortAfter) abort.abort();
  }
  return output;
}
type Output = Awaited<ReturnType<typeof complete>>;

/** Waits until no transfer is open, and the step in flight has released the blocks of aborted requests (I7). */
async function settled(engine: AsyncEngine): Promise<void> {
  const isBusy = ({ transfers, blocks }: EngineStats): boolean => transfers.open > 0 || blocks.referenced > 0;
  await until(() => !isBusy(engine.stats()));
}

/** Runs the requests with these faults, and compares their output and the computed tokens. `isCompared`: whether the minimum is known. */
async function run(
  { engine, faults }: Side,
  requests: readonly HarnessRequest[],
  expected: readonly Output[],
  cacheSalt: string,
  plans: readonly FaultPlan[],
) {
  faults.next(plans);
  const before = engine.stats();
  const outputs = await Promise.all(requests.map((request) => complete(engine, { ...request, cacheSalt })));
  await settled(engine);
  const after = engine.stats();
  for (const [i, { reason, text, tokens, logprobs }] of outputs.entries()) {
    const wanted = expected[i]!;
    const isCut = reason === 'abort';
    expect(isCut ? requests[i]!.abortAfter : reason).toBe(isCut ? requests[i]!.abortAfter : wanted.reason);
    const count = isCut ? tokens.length : wanted.tokens.length;
    expect(tokens).toEqual(wanted.tokens.slice(0, count));
    expect(logprobs).toEqual(wanted.logprobs.slice(0, count));
    if (!isCut) expect(text).toBe(wanted.text);
  }
  const isCompared = after.preemptions === before.preemptions && after.aborts === before.aborts;
  const failed = after.transfers.failedLoads - before.transfers.failedLoads;
  if (!isCompared) return { isCompared, failed, arrived: 0 };
  const arrived = await faults.arrived();
  const reference = requests.map(({ prompt }, i) => ({
    tokenCount: (prompt as number[]).length,
    keys: [keysOf(prompt as number[], blockSize, fingerprint, { cacheSalt })],
    outputTokens: outputs[i]!.tokens.length,
    available: arrived,
  }));
  expect(after.computedTokens - before.computedTokens, 'I3').toBe(neededTokens(reference, fullAttention(blockSize)));
  return { isCompared, failed, arrived: arrived.size };
}

/** Deadlines are the defaults, which are seconds: few schedules have a hung call. */
function faultsOf(prng: Prng, canHang: boolean): FaultPlan[] {
  return Array.from({ length: ranks }, () => {
    const plan = randomFaults(prng, 20);
    const rules = plan.rules.map((rule) => ({ ...rule, ignoresAbort: false, limit: Math.min(rule.limit, 40) }));
    return { ...plan, rules: rules.filter(({ fault, on }) => fault !== 'hung' || (canHang && on === 'load')) };
  });
}

const title = `engines with worker processes give the same output in ${workloads * schedulesPerWorkload} random schedules of faults on disk`;
it(title, { timeout: 600_000 * Math.max(1, workloads / 3) }, async () => {
  // If the time of the test is over while `settled` waits, transfers or blocks are not released (I7, I8).
  onTestFailed(() => console.error(JSON.stringify(sides.map(({ engine }) => engine.stats()))));
  const seen = { compared: 0, failed: 0, arrived: 0 };
  for (let w = 1; w <= workloads; w++) {
    // Few steps, because a step is slow on a busy CPU: ggml's threads spin while they wait.
    const drawn = randomRequests(new Prng(w), alone.model.vocabSize).slice(0, 4);
    const requests = drawn.map((request) => ({
      ...request,
      params: { ...request.params, maxTokens: Math.min(request.params!.maxTokens!, 3) },
    }));
    const expected: Output[] = [];
    for (const request of requests) expected.push(await complete(alone, request));
    for (let i = 0; i < schedulesPerWorkload; i++) {
      const seed = w * 1000 + i;
      const prng = new Prng(seed);
      const salt = `schedule ${seed}`;
      const [writer, reader] = i % 2 === 0 ? [sides[0]!, sides[1]!] : [sides[1]!, sides[0]!];
      const schedule = requests.map((request) => ({
        ...request,
        ...(prng.chance(0.4) ? { arriveMs: prng.between(1, 15) } : {}),
        ...(prng.chance(0.04) ? { abortAfter: prng.between(1, 4) } : {}),
      }));
      try {
        await run(writer, requests, expected, salt, []);
        const { isCompared, failed, arrived } = await run(reader, schedule, expected, salt, faultsOf(prng, i === 7));
        if (isCompared) seen.compared++;
        seen.failed += failed;
        seen.arrived += arrived;
      } catch (error) {
        throw new Error(`schedule ${seed} failed`, { cause: error });
      }
    }
  }
  if (isLongForm) console.log(JSON.stringify({ schedules: workloads * schedulesPerWorkload, ...seen }));
  expect(seen.compared, JSON.stringify(seen)).toBeGreaterThan((workloads * schedulesPerWorkload) / 2);
  expect(seen.failed, JSON.stringify(seen)).toBeGreaterThan(workloads * schedulesPerWorkload);
  // On a fast machine, more requests have ended before the next arrives.
  expect(seen.arrived, JSON.stringify(seen)).toBeGreaterThan(0);
});
