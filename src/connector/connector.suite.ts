import * as vitest from 'vitest';
import { expect } from 'vitest';
import { FaultyReports, type ReportFaults } from '../../test/support/faulty-reports.ts';
import { inLongForm } from '../../test/support/long-form.ts';
import type { JsonObject } from '../base/json.ts';
import { Prng } from '../base/prng.ts';
import type { SchedulerStats } from '../scheduler/contract.ts';
import type { BlockKey } from './block-key.ts';
import type { KvConnector, KvIdentity, KvRole, LoadMode } from './connector.ts';
import { keysOf, promptOf, suiteWorld } from './connector-checks.suite.ts';
import { EngineHarness, type HarnessOptions, type HarnessRequest } from './connector-harness.suite.ts';
import { type FaultKind, type FaultRule, faultKinds, faultRule } from './fault/fault-rules.ts';

export interface ConnectorSettings {
  readonly role: KvRole;
  readonly mode: LoadMode;
  readonly seed?: number;
  readonly rules?: readonly FaultRule[];
  readonly maxBytes?: number;
}

export interface ConnectorUnderTest {
  /** The name of a new store, which several engines use one after the other. Equal names are the same store. */
  newStorage(): string;
  create(storage: string, settings: ConnectorSettings): KvConnector | Promise<KvConnector>;
  /** Default: both. */
  readonly modes?: readonly LoadMode[];
  /** Ranks of the pipelines. Default: 1 and 2. */
  readonly ranks?: readonly number[];
  /** A loaded block is also stored in a faster place, which has an event. Default: no. */
  readonly keepsLoadedBlocks?: boolean;
}

/** Receives the cases of the suite: vitest, or a test of the suite itself. */
export interface SuiteRunner {
  describe(name: string, body: () => void): void;
  it(name: string, run: () => Promise<void>): void;
}

/** Fault rules as `fault_injection` among the settings of a connector. */
export const faultSettings = ({ seed = 0, rules }: ConnectorSettings): JsonObject =>
  rules === undefined
    ? {}
    : {
        fault_injection: {
          seed,
          rules: rules.map(({ fault, on, probability, limit, delayMs, ignoresAbort, blocks, keys, requests }) => ({
            fault,
            on,
            probability,
            limit,
            delay_ms: delayMs,
            ignores_abort: ignoresAbort,
            blocks: blocks ?? null,
            keys: keys ?? null,
            requests: requests ?? null,
          })),
        },
      };

/** Of loads that must time out. The last ones are only for machines that are very busy. */
const deadlinesMs = [500, 4_000, 32_000];

/**
 * Runs a case in which a load must miss its deadline, and other loads must not. A short deadline saves time. If the machine was too busy
 * for the other loads (`isDisturbed`), the case runs again with a longer deadline.
 */
export async function withDeadlines<Outcome>(
  run: (loadTimeoutMs: number) => Promise<Outcome>,
  isDisturbed: (outcome: Outcome) => boolean,
): Promise<Outcome> {
  let outcome: Outcome | undefined;
  for (const deadlineMs of deadlinesMs) {
    outcome = await run(deadlineMs);
    if (!isDisturbed(outcome)) break;
  }
  return outcome!;
}

/** The contract of every connector, in both modes, with one rank and with two. */
export function connectorSuite(
  name: string,
  {
    newStorage,
    create,
    modes = ['async', 'sync'],
    ranks: worlds = [1, 2],
    keepsLoadedBlocks = false,
  }: ConnectorUnderTest,
  { describe, it }: SuiteRunner = vitest,
): void {
  const open = async (
    storage: string,
    settings: Partial<ConnectorSettings> = {},
    options: Partial<HarnessOptions> = {},
  ): Promise<EngineHarness> =>
    EngineHarness.open(await create(storage, { role: 'kv_both', mode: 'async', ...settings }), {
      identities: suiteWorld(1),
      blockCount: 64,
      loadTimeoutMs: 120_000,
      ...options,
    });

  /** Computes these prompts and stores their blocks. `offers`: which valid blocks the connector gets. */
  async function fill(
    storage: string,
    prompts: readonly Int32Array[],
    identities = suiteWorld(1),
    offers: (key: BlockKey) => boolean = () => true,
  ): Promise<void> {
    const engine = await open(storage, { role: 'kv_producer' }, { identities, blockCount: 256, offers });
    for (const [i, prompt] of prompts.entries()) engine.add(`fill ${i}`, prompt);
    await engine.runToEnd();
    await engine.runToDrained();
    expect(await engine.close()).toBe(true);
    expect(engine.usedBlocks).toBe(0);
  }

  /** Runs these prompts to their end. After that, all blocks must be free. */
  async function serve(engine: EngineHarness, prompts: readonly Int32Array[]): Promise<HarnessRequest[]> {
    const requests = prompts.map((prompt, i) => engine.add(`serve ${i}`, prompt));
    await engine.runToEnd();
    for (const request of requests) engine.end(request);
    await engine.runToDrained();
    expect(engine.usedBlocks).toBe(0);
    return requests;
  }

  for (const mode of modes) {
    // Ranks transfer in the same way in both modes, so the default form has each mode once, and the first with several ranks.
    for (const ranks of inLongForm(worlds, mode === modes[0] ? worlds.slice(-1) : worlds.slice(0, 1))) {
      const identities = suiteWorld(ranks);

      describe(`${name}: the connector's contract, ${mode} loads, ${ranks} rank(s)`, () => {
        it('loads in one engine the blocks that another engine computed', async () => {
          const storage = newStorage();
          const prompts = [promptOf('a', 5), promptOf('b', 3)];
          await fill(storage, prompts, identities);
          const engine = await open(storage, { mode }, { identities });
          const requests = await serve(engine, prompts);
          expect(requests.map(({ loadedBlocks, computedBlocks }) => [loadedBlocks, computedBlocks])).toEqual([
            [5, 0],
            [3, 0],
          ]);
          expect(engine.counters.loadedBlocks).toBe(8 * ranks);
          expect(engine.wakeups).toBeGreaterThan(0);
          expect(await engine.close()).toBe(true);
        });

        it('finds a set of blocks, not a prefix: only the blocks of a hole are computed', async () => {
          const storage = newStorage();
          const prompt = promptOf('a', 6);
          const [first, , , fourth] = keysOf(prompt);
          await fill(storage, [prompt], identities, (key) => key !== first && key !== fourth);
          const engine = await open(storage, { mode }, { identities });
          const [request] = await serve(engine, [prompt]);
          expect([request!.loadedBlocks, request!.computedBlocks, request!.failures]).toEqual([4, 2, []]);
          await engine.close();
        });

        it('stores the computed blocks of a request that also loads, each once, with events', async () => {
          const storage = newStorage();
          const prompt = promptOf('a', 6);
          await fill(storage, [promptOf('a', 4)], identities);
          const engine = await open(storage, { mode }, { identities });
          await serve(engine, [prompt]);
          await engine.close();
          const stored = engine.events.flatMap((event) => (event.kind === 'stored' ? [event] : []));
          expect(new Set(stored.flatMap(({ keys }) => keys))).toEqual(
            new Set(keepsLoadedBlocks ? keysOf(prompt) : keysOf(prompt).slice(4)),
          );
          // A tier below another one may store a block before the engine closes, or later.
          const names = stored.flatMap(({ keys, place }) => keys.map((key) => `${place} ${key}`));
          expect(names).toEqual([...new Set(names)]);
          const later = await open(storage, { mode }, { identities });
          const [request] = await serve(later, [prompt]);
          expect([request!.loadedBlocks, request!.computedBlocks, request!.failures]).toEqual([6, 0, []]);
          await later.close();
        });

        it('a producer loads nothing, a consumer stores nothing', async () => {
          const storage = newStorage();
          const prompt = promptOf('a', 4);
          const consumer = await open(storage, { mode, role: 'kv_consumer' }, { identities });
          expect((await serve(consumer, [prompt]))[0]!.computedBlocks).toBe(4);
          await consumer.close();
          for (const _ of [1, 2]) {
            const producer = await open(storage, { mode, role: 'kv_producer' }, { identities });
            expect((await serve(producer, [prompt]))[0]!.computedBlocks).toBe(4);
            await producer.close();
          }
          const again = await open(storage, { mode, role: 'kv_consumer' }, { identities });
          expect((await serve(again, [prompt]))[0]!.loadedBlocks).toBe(4);
          await again.close();
        });

        const onLoad: readonly (readonly [FaultKind, string | undefined])[] = [
          ['missing', 'missing'],
          ['truncated', 'truncated'],
          ['bitFlip', undefined],
          ['wrongModel', 'wrongModel'],
          ['partial', 'storeFailed'],
          ['error', 'storeFailed'],
          ['hung', 'timedOut'],
          ['late', 'timedOut'],
        ];
        for (const [fault, reason] of onLoad) {
          it(`a block whose load has the fault ${fault} is computed, and the other blocks are loaded`, async () => {
            const storage = newStorage();
            const prompt = promptOf('a', 6);
            await fill(storage, [prompt, promptOf('b', 2)], identities);
            const serveWith = async (loadTimeoutMs: number) => {
              const delayMs = 2 * loadTimeoutMs;
              const rules = [faultRule({ fault, blocks: [2, 4], requests: ['serve 0'], limit: 2, delayMs })];
              const engine = await open(storage, { mode, rules }, { identities, loadTimeoutMs });
              const [request, other] = await serve(engine, [prompt, promptOf('b', 2)]);
              expect(await engine.close()).toBe(true);
              return { request: request!, other: other! };
            };
            const { request, other } =
              reason === 'timedOut'
                ? await withDeadlines(
                    serveWith,
                    ({ request, other }) => request.failures.length + other.failures.length > 2,
                  )
                : await serveWith(120_000);
            expect([request.loadedBlocks, request.computedBlocks]).toEqual([4, 2]);
            if (reason !== undefined) expect(request.failures).toEqual([reason, reason]);
            expect(request.failures).toHaveLength(2);
            expect([other.loadedBlocks, other.computedBlocks, other.failures]).toEqual([2, 0, []]);
          });
        }

        for (const fault of ['slow', 'duplicate'] as const) {
          it(`a block whose load has the fault ${fault} is loaded correctly`, async () => {
            const storage = newStorage();
            const prompt = promptOf('a', 4);
            await fill(storage, [prompt], identities);
            const engine = await open(storage, { mode, rules: [faultRule({ fault, delayMs: 20 })] }, { identities });
            const [request] = await serve(engine, [prompt]);
            expect([request!.loadedBlocks, request!.computedBlocks, request!.failures]).toEqual([4, 0, []]);
            await engine.close();
          });
        }

        it('a block that a hung load may still write stays pinned until the load ends', async () => {
          const storage = newStorage();
          const prompt = promptOf('a', 6);
          await fill(storage, [prompt], identities);
          const rules = [faultRule({ fault: 'hung', blocks: [1], limit: 1, ignoresAbort: true })];
          const serveWith = async (loadTimeoutMs: number) => {
            const engine = await open(storage, { mode, rules, role: 'kv_consumer' }, { identities, loadTimeoutMs });
            const request = engine.add('r', prompt);
            await engine.runToEnd();
            const isDisturbed = request.failures.length > 1;
            if (isDisturbed) await engine.close(50);
            return { engine, request, isDisturbed };
          };
          const { engine, request } = await withDeadlines(serveWith, ({ isDisturbed }) => isDisturbed);
          expect(request.failures).toEqual(['timedOut']);
          expect(engine.scheduler.stats().transfers.open).toBe(1);
          // Other requests can use all other blocks.
          const other = engine.add('other', promptOf('c', 61));
          await engine.runToEnd();
          expect(other.computedBlocks).toBe(61);
          await engine.runToDrained(1);
          expect(engine.usedBlocks).toBe(1);
          expect(await engine.close(50)).toBe(false);
        });

        /** How many of the four blocks with this fault are found later. */
        const onStore: readonly (readonly [FaultKind, number])[] = [
          ['missing', 0],
          ['full', 0],
          ['error', 0],
          ['truncated', 0],
          ['bitFlip', 0],
          ['wrongModel', 0],
          ['slow', 4],
          ['duplicate', 4],
        ];
        for (const [fault, kept] of onStore) {
          it(`blocks whose store has the fault ${fault} are at most future misses`, async () => {
            const storage = newStorage();
            const prompt = promptOf('a', 8);
            const failing = keysOf(prompt).filter((_, i) => i % 2 === 1);
            const rules = [faultRule({ fault, on: 'store', keys: failing, delayMs: 20 })];
            const engine = await open(storage, { mode, rules }, { identities });
            const [request] = await serve(engine, [prompt]);
            expect([request!.loadedBlocks, request!.computedBlocks]).toEqual([0, 8]);
            expect(await engine.close()).toBe(true);
            const later = await open(storage, { mode, role: 'kv_consumer' }, { identities });
            const [again] = await serve(later, [prompt]);
            expect([again!.loadedBlocks, again!.computedBlocks]).toEqual([4 + kept, 4 - kept]);
            expect(later.counters.loadedBlocks).toBeGreaterThanOrEqual((4 + kept) * ranks);
            await later.close();
          });
        }

        it('if stores hang, the blocks that were stored before can be loaded, and the engine closes', async () => {
          const storage = newStorage();
          const prompt = promptOf('a', 8);
          await fill(storage, [promptOf('a', 5)], identities);
          const rules = [faultRule({ fault: 'hung', on: 'store' })];
          const engine = await open(storage, { mode, rules }, { identities });
          const request = engine.add('r', prompt);
          await engine.runToEnd();
          expect([request.loadedBlocks, request.computedBlocks]).toEqual([5, 3]);
          await engine.close(100);
          const later = await open(storage, { mode, role: 'kv_consumer' }, { identities });
          const [again] = await serve(later, [prompt]);
          expect([again!.loadedBlocks, again!.computedBlocks]).toEqual([5, 3]);
          await later.close();
        });

        for (const fault of ['error', 'slow', 'hung', 'missing'] as const) {
          it(`a request whose look-up has the fault ${fault} does not wait for ever`, async () => {
            const storage = newStorage();
            const prompt = promptOf('a', 4);
            await fill(storage, [prompt], identities);
            const rules = [faultRule({ fault, on: 'has', delayMs: 5, ignoresAbort: true })];
            const engine = await open(storage, { mode, rules }, { identities });
            const [request] = await serve(engine, [prompt]);
            expect([request!.loadedBlocks, request!.computedBlocks]).toEqual(fault === 'slow' ? [4, 0] : [0, 4]);
            await engine.close();
          });
        }

        it('a block that failed for a request is not loaded again for it', async () => {
          const storage = newStorage();
          const prompt = promptOf('a', 4);
          await fill(storage, [prompt], identities);
          const rules = [faultRule({ fault: 'error', blocks: [1] })];
          const engine = await open(storage, { mode, rules }, { identities });
          const request = engine.add('r', prompt, 8);
          await engine.runToLength(request, prompt.length + 1);
          expect(request.failures).toEqual(['storeFailed']);
          expect(request.status).toBe('live');
          engine.invalidateBlocks();
          await engine.runToEnd();
          expect(request.failures).toEqual(['storeFailed']);
          expect(request.loadedBlocks).toBe(3 + 3);
          engine.invalidateBlocks();
          const other = engine.add('s', prompt);
          await engine.runToEnd();
          expect(other.failures).toEqual(['storeFailed']);
          await engine.close();
        });

        it('blocks of another model are never found', async () => {
          const storage = newStorage();
          const prompt = promptOf('a', 3);
          await fill(storage, [prompt], identities);
          const others = identities.map((identity) => ({ ...identity, fingerprint: 'another' }));
          const engine = await open(storage, { mode }, { identities: others });
          expect((await serve(engine, [prompt]))[0]!.computedBlocks).toBe(3);
          await engine.close();
        });

        it('a shutdown ends running transfers', async () => {
          const storage = newStorage();
          await fill(storage, [promptOf('a', 20)], identities);
          // Only the shutdown ends the transfers. The abort ends the delays at once, but not a read or write of a thread. A step waits for its
          // sync loads, so they are over before the shutdown.
          const endless = 1e9;
          const rules = [
            faultRule({ fault: 'slow', on: 'load', delayMs: mode === 'async' ? endless : 20 }),
            faultRule({ fault: 'slow', on: 'store', delayMs: endless }),
          ];
          const engine = await open(storage, { mode, rules }, { identities });
          engine.add('a', promptOf('a', 20));
          engine.add('b', promptOf('b', 20));
          await engine.runUntil(() => engine.scheduler.stats().transfers.open > 0);
          expect(await engine.close(100)).toBe(true);
        });

        it('after random faults, aborts, preemptions and wrong reports, all requests end with the right KV', async () => {
          const total = { failedLoads: 0, recoveries: 0 };
          for (let seed = 1; seed <= inLongForm(6, 2); seed++) {
            try {
              const { transfers } = await chaos(seed, mode, identities);
              total.failedLoads += transfers.failedLoads;
              total.recoveries += transfers.recoveries;
            } catch (error) {
              throw new Error(`seed ${seed}, ${mode}, ${identities.length} ranks: ${(error as Error).message}`, {
                cause: error,
              });
            }
          }
          // How often depends on the store.
          expect(total.failedLoads).toBeGreaterThan(0);
          expect(total.recoveries).toBeGreaterThan(0);
        });
      });
    }
  }

  async function chaos(seed: number, mode: LoadMode, identities: readonly KvIdentity[]): Promise<SchedulerStats> {
    const prng = new Prng(seed);
    const storage = newStorage();
    const prompts = Array.from({ length: 6 }, (_, i) => promptOf(`${seed}/${i}`, prng.between(1, 8)));
    await fill(storage, prompts.slice(0, 4), [...identities]);
    const kinds = faultKinds.filter((fault) => fault !== 'duplicate' && fault !== 'full');
    const rules = kinds.map((fault) => faultRule({ fault, probability: 0.04, delayMs: prng.between(1, 30) }));
    rules.push(faultRule({ fault: prng.pick(kinds), on: 'store', probability: 0.2, delayMs: 5 }));
    const reports: ReportFaults = { seed, duplicate: 0.1, late: 0.2, unknown: 0.1 };
    const engine = await open(
      storage,
      { mode, rules, seed },
      {
        identities,
        blockCount: prng.between(14, 20),
        loadTimeoutMs: 25,
        scheduling: { maxNumBatchedTokens: prng.pick([20, 64, 512]) },
        wrapWorker: (side, rank) => new FaultyReports(side, { ...reports, seed: seed * 10 + rank }),
      },
    );
    for (let i = 0; i < 60; i++) {
      const live = [...engine.requests.values()];
      if (live.length < 7 && prng.chance(0.5)) engine.add(`r${i}`, prng.pick(prompts), prng.between(1, 60));
      const event = prng.unit();
      if (event < 0.06) engine.invalidateBlocks(engine.anyBlocks(prng));
      else if (live.length > 0 && event < 0.14) engine.end(prng.pick(live));
      await engine.step();
      if (prng.chance(0.3)) await new Promise((resolve) => setTimeout(resolve, prng.between(0, 8)));
      for (const request of live) if (request.status === 'done') engine.end(request);
    }
    await engine.runToEnd((request) => engine.end(request));
    await engine.runToDrained();
    expect(engine.usedBlocks).toBe(0);
    expect(await engine.close()).toBe(true);
    return engine.scheduler.stats();
  }
}
