import * as vitest from 'vitest';
import { expect } from 'vitest';
import { Prng } from '../base/prng.ts';
import type { BlockKey } from './block-key.ts';
import type { KvConnector, KvIdentity, KvRole, LoadMode } from './connector.ts';
import { EngineHarness, type HarnessOptions, type HarnessRequest } from './connector-harness.suite.ts';
import { type FaultKind, type FaultRule, faultRule } from './fault-rules.ts';
import { FaultyReports, type ReportFaults } from './faulty-reports.ts';
import { suiteIdentity, suiteKey } from './tier.suite.ts';

export interface ConnectorSettings {
  readonly role: KvRole;
  readonly mode: LoadMode;
  readonly seed?: number;
  readonly rules?: readonly FaultRule[];
  readonly maxBytes?: number;
}

export interface ConnectorUnderTest {
  /** A store that outlives the engines; equal names are the same store. */
  newStorage(): string;
  create(storage: string, settings: ConnectorSettings): KvConnector;
}

const keysOf = (name: string, count: number): BlockKey[] =>
  Array.from({ length: count }, (_, i) => suiteKey(`${name}/${i}`));

/** Small pages: these tests are about order, not about bytes. */
const pageBytes = 512;
const world = (size: number): KvIdentity[] =>
  Array.from({ length: size }, (_, rank) => ({
    ...suiteIdentity,
    pageBytes,
    rank,
    worldSize: size,
    groups: suiteIdentity.groups.map((group) => ({ ...group, layers: group.layers.map((layer) => layer + 10 * rank) })),
  }));

/** Where the suite's cases go: to vitest, or to a test of the suite itself. */
export interface SuiteRunner {
  describe(name: string, body: () => void): void;
  it(name: string, run: () => Promise<void>): void;
}

/** What every connector does, in both modes, with one rank and with two. */
export function connectorSuite(
  name: string,
  { newStorage, create }: ConnectorUnderTest,
  { describe, it }: SuiteRunner = vitest,
): void {
  const open = (storage: string, settings: Partial<ConnectorSettings> = {}, options: Partial<HarnessOptions> = {}) =>
    EngineHarness.open(create(storage, { role: 'kv_both', mode: 'async', ...settings }), {
      identities: world(1),
      pageCount: 64,
      loadTimeoutMs: 10_000,
      ...options,
    });

  /** Computes these prompts and stores their blocks. */
  async function fill(
    storage: string,
    prompts: readonly (readonly BlockKey[])[],
    identities = world(1),
  ): Promise<void> {
    const engine = await open(storage, { role: 'kv_producer' }, { identities, pageCount: 256 });
    for (const [i, keys] of prompts.entries()) engine.add(`fill ${i}`, keys);
    await engine.runToEnd();
    await engine.runToDrained();
    expect(await engine.close()).toBe(true);
    engine.expectNothingHeld();
  }

  /** Runs these prompts to their end, then everything must be given back. */
  async function serve(engine: EngineHarness, prompts: readonly (readonly BlockKey[])[]): Promise<HarnessRequest[]> {
    const requests = prompts.map((keys, i) => engine.add(`serve ${i}`, keys));
    await engine.runToEnd();
    for (const request of requests) engine.end(request);
    await engine.runToDrained();
    engine.expectNothingHeld();
    return requests;
  }

  for (const mode of ['async', 'sync'] as const) {
    for (const ranks of [1, 2]) {
      const identities = world(ranks);

      describe(`${name}: the connector's contract, ${mode} loads, ${ranks} rank(s)`, () => {
        it('loads in one engine what another has computed', async () => {
          const storage = newStorage();
          const prompts = [keysOf('a', 5), keysOf('b', 3)];
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

        it('finds a set of blocks, not a prefix: a hole costs one block', async () => {
          const storage = newStorage();
          const keys = keysOf('a', 6);
          await fill(storage, [keys.filter((_, i) => i !== 0 && i !== 3)], identities);
          const engine = await open(storage, { mode }, { identities });
          const [request] = await serve(engine, [keys]);
          expect([request!.loadedBlocks, request!.computedBlocks, request!.failures]).toEqual([4, 2, []]);
          await engine.close();
        });

        it('stores what it has computed while it loads, each block once, and says so', async () => {
          const storage = newStorage();
          const keys = keysOf('a', 6);
          await fill(storage, [keys.slice(0, 4)], identities);
          const engine = await open(storage, { mode }, { identities });
          await serve(engine, [keys]);
          await engine.close();
          const stored = engine.events.flatMap((event) => (event.kind === 'stored' ? event.keys : []));
          expect(new Set(stored)).toEqual(new Set(keys.slice(4)));
          expect(stored).toHaveLength(2);
          const later = await open(storage, { mode }, { identities });
          const [request] = await serve(later, [keys]);
          expect([request!.loadedBlocks, request!.computedBlocks, request!.failures]).toEqual([6, 0, []]);
          await later.close();
        });

        it('a producer loads nothing, a consumer stores nothing', async () => {
          const storage = newStorage();
          const keys = keysOf('a', 4);
          const consumer = await open(storage, { mode, role: 'kv_consumer' }, { identities });
          expect((await serve(consumer, [keys]))[0]!.computedBlocks).toBe(4);
          await consumer.close();
          for (const _ of [1, 2]) {
            const producer = await open(storage, { mode, role: 'kv_producer' }, { identities });
            expect((await serve(producer, [keys]))[0]!.computedBlocks).toBe(4);
            await producer.close();
          }
          const again = await open(storage, { mode, role: 'kv_consumer' }, { identities });
          expect((await serve(again, [keys]))[0]!.loadedBlocks).toBe(4);
          await again.close();
        });

        const onLoad: readonly (readonly [FaultKind, string | undefined])[] = [
          ['missing', 'absent'],
          ['truncated', 'truncated'],
          ['bitFlip', undefined],
          ['wrongModel', 'wrongModel'],
          ['partial', 'storeFailed'],
          ['error', 'storeFailed'],
          ['hung', 'timedOut'],
          ['late', 'timedOut'],
        ];
        for (const [fault, reason] of onLoad) {
          it(`a block that is ${fault} costs its own computation and nothing else`, async () => {
            const storage = newStorage();
            const keys = keysOf('a', 6);
            await fill(storage, [keys, keysOf('b', 2)], identities);
            const rules = [faultRule({ fault, blocks: [2, 4], requests: ['serve 0'], limit: 2, delayMs: 2000 })];
            // Only what is to time out gets little time: sound blocks of the same load need a thread for a moment.
            const loadTimeoutMs = reason === 'timedOut' ? 1000 : 30_000;
            const engine = await open(storage, { mode, rules }, { identities, loadTimeoutMs });
            const [request, other] = await serve(engine, [keys, keysOf('b', 2)]);
            expect([request!.loadedBlocks, request!.computedBlocks]).toEqual([4, 2]);
            if (reason !== undefined) expect(request!.failures).toEqual([reason, reason]);
            expect(request!.failures).toHaveLength(2);
            expect([other!.loadedBlocks, other!.computedBlocks, other!.failures]).toEqual([2, 0, []]);
            expect(await engine.close()).toBe(true);
          });
        }

        for (const fault of ['slow', 'duplicate'] as const) {
          it(`a block that is ${fault} is right all the same`, async () => {
            const storage = newStorage();
            const keys = keysOf('a', 4);
            await fill(storage, [keys], identities);
            const engine = await open(storage, { mode, rules: [faultRule({ fault, delayMs: 20 })] }, { identities });
            const [request] = await serve(engine, [keys]);
            expect([request!.loadedBlocks, request!.computedBlocks, request!.failures]).toEqual([4, 0, []]);
            await engine.close();
          });
        }

        it('a page that a hung load may still write is not used again until it is over', async () => {
          const storage = newStorage();
          const keys = keysOf('a', 6);
          await fill(storage, [keys], identities);
          const rules = [faultRule({ fault: 'hung', blocks: [1], limit: 1, ignoresAbort: true })];
          const engine = await open(storage, { mode, rules }, { identities, loadTimeoutMs: 1000 });
          const request = engine.add('r', keys);
          await engine.runToEnd();
          expect(request.failures).toEqual(['timedOut']);
          expect([...engine.ledger.countHolds().values()].length).toBeGreaterThanOrEqual(1);
          engine.end(request);
          expect(await engine.close(50)).toBe(false);
        });

        /** How many of four blocks whose stores fail are found later all the same. */
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
          it(`a store that fails (${fault}) is a future miss and nothing else`, async () => {
            const storage = newStorage();
            const keys = keysOf('a', 8);
            const failing = keys.filter((_, i) => i % 2 === 1);
            const rules = [faultRule({ fault, on: 'store', keys: failing, delayMs: 20 })];
            const engine = await open(storage, { mode, rules }, { identities });
            const [request] = await serve(engine, [keys]);
            expect([request!.loadedBlocks, request!.computedBlocks]).toEqual([0, 8]);
            expect(await engine.close()).toBe(true);
            const later = await open(storage, { mode, role: 'kv_consumer' }, { identities });
            const [again] = await serve(later, [keys]);
            expect([again!.loadedBlocks, again!.computedBlocks]).toEqual([4 + kept, 4 - kept]);
            expect(later.counters.loadedBlocks).toBeGreaterThanOrEqual((4 + kept) * ranks);
            await later.close();
          });
        }

        it('a store that hangs keeps what it had stored, and the engine closes', async () => {
          const storage = newStorage();
          const keys = keysOf('a', 8);
          await fill(storage, [keys.slice(0, 5)], identities);
          const rules = [faultRule({ fault: 'hung', on: 'store' })];
          const engine = await open(storage, { mode, rules }, { identities });
          const request = engine.add('r', keys);
          await engine.runToEnd();
          expect([request.loadedBlocks, request.computedBlocks]).toEqual([5, 3]);
          await engine.close(100);
          const later = await open(storage, { mode, role: 'kv_consumer' }, { identities });
          const [again] = await serve(later, [keys]);
          expect([again!.loadedBlocks, again!.computedBlocks]).toEqual([5, 3]);
          await later.close();
        });

        for (const fault of ['error', 'slow', 'hung', 'missing'] as const) {
          it(`a look-up that fails (${fault}) holds nobody up for ever`, async () => {
            const storage = newStorage();
            const keys = keysOf('a', 4);
            await fill(storage, [keys], identities);
            const rules = [faultRule({ fault, on: 'has', delayMs: 5, ignoresAbort: true })];
            const engine = await open(storage, { mode, rules }, { identities });
            const [request] = await serve(engine, [keys]);
            expect([request!.loadedBlocks, request!.computedBlocks]).toEqual(fault === 'slow' ? [4, 0] : [0, 4]);
            await engine.close();
          });
        }

        it('a block that failed is not promised to the same request again', async () => {
          const storage = newStorage();
          const keys = keysOf('a', 4);
          await fill(storage, [keys], identities);
          const rules = [faultRule({ fault: 'error', blocks: [1] })];
          const engine = await open(storage, { mode, rules }, { identities });
          const request = engine.add('r', keys);
          await engine.runToEnd();
          expect(request.failures).toEqual(['storeFailed']);
          engine.preempt(request);
          await engine.runToEnd();
          expect(request.failures).toEqual(['storeFailed']);
          expect(request.loadedBlocks).toBe(3 + 3);
          engine.end(request);
          const other = engine.add('s', keys);
          await engine.runToEnd();
          expect(other.failures).toEqual(['storeFailed']);
          await engine.close();
        });

        it('blocks of another model are never found', async () => {
          const storage = newStorage();
          const keys = keysOf('a', 3);
          await fill(storage, [keys], identities);
          const others = identities.map((identity) => ({ ...identity, fingerprint: 'another' }));
          const engine = await open(storage, { mode }, { identities: others });
          expect((await serve(engine, [keys]))[0]!.computedBlocks).toBe(3);
          await engine.close();
        });

        it('a shutdown while transfers run ends them', async () => {
          const storage = newStorage();
          await fill(storage, [keysOf('a', 20)], identities);
          const engine = await open(storage, { mode: 'async' }, { identities });
          engine.add('a', keysOf('a', 20));
          engine.add('b', keysOf('b', 20));
          for (let i = 0; i < 4; i++) await engine.step();
          expect(await engine.close()).toBe(true);
        });

        it('survives any events: faults, aborts, preemptions, reports that lie; then calm, and all is right', async () => {
          for (let seed = 1; seed <= 6; seed++) {
            try {
              await chaos(seed, mode, identities);
            } catch (error) {
              throw new Error(`seed ${seed}, ${mode}, ${identities.length} ranks: ${(error as Error).message}`, {
                cause: error,
              });
            }
          }
        });
      });
    }
  }

  async function chaos(seed: number, mode: LoadMode, identities: readonly KvIdentity[]): Promise<void> {
    const prng = new Prng(seed);
    const storage = newStorage();
    const prompts = Array.from({ length: 6 }, (_, i) => keysOf(`${seed}/${i}`, prng.between(1, 8)));
    await fill(storage, prompts.slice(0, 4), [...identities]);
    const kinds: FaultKind[] = [
      'missing',
      'truncated',
      'bitFlip',
      'wrongModel',
      'partial',
      'slow',
      'late',
      'error',
      'hung',
    ];
    const rules = kinds.map((fault) => faultRule({ fault, probability: 0.04, delayMs: prng.between(1, 30) }));
    rules.push(faultRule({ fault: prng.pick(kinds), on: 'store', probability: 0.2, delayMs: 5 }));
    const reports: ReportFaults = { seed, duplicate: 0.1, late: 0.2, unknown: 0.1 };
    const engine = await open(
      storage,
      { mode, rules, seed },
      {
        identities,
        pageCount: prng.between(12, 30),
        loadTimeoutMs: 25,
        wrapWorker: (half, rank) => new FaultyReports(half, { ...reports, seed: seed * 10 + rank }),
      },
    );
    for (let i = 0; i < 60; i++) {
      const live = [...engine.requests.values()];
      if (live.length < 5 && prng.chance(0.4)) engine.add(`r${i}`, prng.pick(prompts));
      const event = prng.unit();
      if (live.length > 0 && event < 0.1) engine.preempt(prng.pick(live));
      else if (live.length > 0 && event < 0.2) engine.end(prng.pick(live));
      await engine.step();
      if (prng.chance(0.3)) await new Promise((resolve) => setTimeout(resolve, prng.between(0, 8)));
      for (const request of live) if (request.status === 'done') engine.end(request);
    }
    await engine.runToEnd((request) => engine.end(request));
    await engine.runToDrained();
    engine.expectNothingHeld();
    expect(await engine.close()).toBe(true);
  }
}
