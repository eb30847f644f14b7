/** Lists of real connectors beside the real scheduler, with runners that check all KV that they read. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { inLongForm } from '../../../test/support/long-form.ts';
import { until } from '../../../test/support/until.ts';
import { blockedThreadCount } from '../../base/call-thread.ts';
import type { JsonObject } from '../../base/json.ts';
import { connectorSuite } from '../connector.suite.ts';
import { keysOf, promptOf, suiteWorld } from '../connector-checks.suite.ts';
import { EngineHarness, type HarnessRequest } from '../connector-harness.suite.ts';
import { type FaultKind, faultKinds } from '../fault/fault-rules.ts';
import { disk, halves, multi } from './multi-under-test.suite.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-multi-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let serial = 0;
const newStorage = (): string => join(root, `${serial++}`);

/** Each prompt has blocks in both directories, so its loads have two parts. One connector has its faults in the tier, the other around its sides. */
connectorSuite('a list of two connectors', {
  modes: inLongForm(['async', 'sync'], ['async']),
  // Two ranks are in the cases below.
  ranks: inLongForm([1, 2], [1]),
  newStorage,
  create: (storage, settings) => halves(storage, settings, ['HalfConnector', 'OwnSidesHalf']),
});

/** The cases of the contract that a list inside of a list, or worker sides that repeat their reports, could break. */
function someCases(name: string, names: RegExp, create: Parameters<typeof connectorSuite>[1]['create']): void {
  connectorSuite(
    name,
    { modes: inLongForm(['async', 'sync'], ['sync']), ranks: inLongForm([1, 2], [2]), newStorage, create },
    { describe, it: (title, run) => void (names.test(title) && it(title, run)) },
  );
}
someCases(
  'a list in a list',
  inLongForm(
    /loads in one engine|only the blocks of a hole|the fault bitFlip|after random faults/,
    /after random faults/,
  ),
  (storage, settings) => halves(storage, settings, ['HalfConnector', 'MultiConnector']),
);
someCases(
  'connectors that report late, twice, and of transfers that they do not have',
  /loads in one engine|after random faults/,
  (storage, settings) => halves(storage, settings, ['NoisyHalf', 'NoisyHalf']),
);

describe('two connectors that have all blocks', () => {
  const identities = suiteWorld(2);
  const prompt = promptOf('both', 6);
  const open = async (connectors: readonly JsonObject[], more: JsonObject = {}, loadTimeoutMs = 120_000) =>
    EngineHarness.open(await multi(connectors, more), { identities, blockCount: 64, loadTimeoutMs });
  /** One request from the store. Returns it with the blocks that were loaded from each place. */
  async function ask(engine: EngineHarness, name = 'r'): Promise<HarnessRequest> {
    engine.invalidateBlocks();
    const request = engine.add(name, prompt);
    await engine.runToEnd();
    engine.end(request);
    await engine.runToDrained();
    return request;
  }
  const outcomeOf = ({ loadedBlocks, computedBlocks, failures }: HarnessRequest) => ({
    loadedBlocks,
    computedBlocks,
    failures,
  });
  const foldersOf = async (): Promise<[string, string]> => {
    const [first, second] = [newStorage(), newStorage()];
    const engine = await open([disk(first), disk(second)]);
    await ask(engine);
    expect(await engine.close()).toBe(true);
    return [first, second];
  };
  const loadedFrom = ({ counters }: EngineHarness): (number | undefined)[] =>
    ['c0', 'c1'].map((name) => counters[`tier.${name}-loaded`]);

  it('multi_example_connector_consistency: both store every block, with events of both', async () => {
    const engine = await open([disk(newStorage()), disk(newStorage())]);
    await ask(engine);
    for (const place of ['c0-shared-storage', 'c1-shared-storage']) {
      const keys = engine.events.flatMap((event) =>
        event.place === place && event.kind === 'stored' ? event.keys : [],
      );
      expect(keys).toHaveLength(6);
      expect(new Set(keys)).toEqual(new Set(keysOf(prompt)));
    }
    expect(engine.counters).toMatchObject({ savedBlocks: 24, 'tier.c0-stored': 12, 'tier.c1-stored': 12 });
    await engine.close();
  });

  it('the first loads all, and the second nothing', async () => {
    const engine = await open((await foldersOf()).map((path) => disk(path)));
    expect(outcomeOf(await ask(engine))).toEqual({ loadedBlocks: 6, computedBlocks: 0, failures: [] });
    expect(engine.counters).toMatchObject({ loadedBlocks: 12, 'tier.c0-loaded': 12 });
    expect(loadedFrom(engine)[1] ?? 0).toBe(0);
    await engine.close();
  });

  it('if the first has lost its blocks, the second loads them, and the first stores them again', async () => {
    const [first, second] = await foldersOf();
    rmSync(first, { recursive: true });
    const engine = await open([disk(first), disk(second)]);
    expect(outcomeOf(await ask(engine))).toEqual({ loadedBlocks: 6, computedBlocks: 0, failures: [] });
    expect(engine.counters).toMatchObject({ 'tier.c1-loaded': 12, 'tier.c0-stored': 12 });
    await engine.close();
    const alone = await open([disk(first)]);
    expect(outcomeOf(await ask(alone))).toEqual({ loadedBlocks: 6, computedBlocks: 0, failures: [] });
    await alone.close();
  });

  it.each(faultKinds.filter((fault) => !['slow', 'duplicate', 'full'].includes(fault)))(
    'blocks whose load fails in the first with %s are loaded from the second',
    async (fault: FaultKind) => {
      const [first, second] = await foldersOf();
      const isTimeout = fault === 'hung' || fault === 'late';
      const rules = [{ fault, blocks: [2, 4], delay_ms: 2_000 }];
      const engine = await open(
        [disk(first, { fault_injection: { rules } }), disk(second)],
        {},
        isTimeout ? 1_000 : undefined,
      );
      const request = await ask(engine);
      expect(outcomeOf(request)).toMatchObject({ loadedBlocks: 6, computedBlocks: 0 });
      // On a busy machine, other loads may miss the short deadline, too.
      expect(request.failures.length).toBeGreaterThanOrEqual(2);
      if (!isTimeout) expect(request.failures).toHaveLength(2);
      expect(loadedFrom(engine)[1]).toBeGreaterThanOrEqual(2);
      await engine.close();
      await until(() => blockedThreadCount() === 0);
    },
  );

  it('a first connector whose stores and look-ups hang keeps no block from the second', async () => {
    const [first, second] = [newStorage(), newStorage()];
    const rules = ['store', 'has'].map((on) => ({ fault: 'hung', on }));
    const hanging = disk(first, { fault_injection: { rules }, lookup_timeout_seconds: 0.5, save_timeout_seconds: 0.5 });
    const engine = await open([hanging, disk(second)]);
    expect(outcomeOf(await ask(engine))).toMatchObject({ computedBlocks: 6 });
    expect(outcomeOf(await ask(engine, 'again'))).toEqual({ loadedBlocks: 6, computedBlocks: 0, failures: [] });
    expect(engine.counters).toMatchObject({ 'tier.c1-stored': 12 });
    await engine.close(1_000);
    await until(() => blockedThreadCount() === 0);
  });

  it('each has its own role', async () => {
    const [first, second] = [newStorage(), newStorage()];
    const connectors = [disk(first, {}, { kv_role: 'kv_consumer' }), disk(second, {}, { kv_role: 'kv_producer' })];
    for (const computedBlocks of [6, 6]) {
      const engine = await open(connectors);
      expect(outcomeOf(await ask(engine))).toEqual({ loadedBlocks: 0, computedBlocks, failures: [] });
      await engine.close();
    }
    const engine = await open([disk(second)]);
    expect(outcomeOf(await ask(engine))).toEqual({ loadedBlocks: 6, computedBlocks: 0, failures: [] });
    await engine.close();
  });

  it('fault rules of the list are those of each connector without its own', async () => {
    const [first, second] = await foldersOf();
    const rules = { seed: 1, rules: [{ fault: 'missing', blocks: [1] }] };
    const engine = await open([disk(first), disk(second, { fault_injection: {} })], { fault_injection: rules });
    expect(outcomeOf(await ask(engine))).toEqual({ loadedBlocks: 6, computedBlocks: 0, failures: ['missing'] });
    await engine.close();
    const both = await open([disk(first), disk(second)], { fault_injection: rules });
    expect(outcomeOf(await ask(both))).toEqual({
      loadedBlocks: 5,
      computedBlocks: 1,
      failures: ['missing', 'missing'],
    });
    await both.close();
  });

  it('host memory of one connector and a directory of another: a load has blocks of both', async () => {
    const path = newStorage();
    const [, second, third] = keysOf(prompt);
    const offers = (key: string): boolean => key === second || key === third;
    const host = {
      kv_connector: 'OffloadingConnector',
      kv_connector_extra_config: { cpu_bytes_to_use: 1e6, kv_load_policy: 'always' },
    };
    const writer = await EngineHarness.open(await multi([disk(path)]), {
      identities,
      blockCount: 64,
      loadTimeoutMs: 120_000,
      offers,
    });
    await ask(writer);
    await writer.close();
    const engine = await open([host, disk(path)]);
    expect(outcomeOf(await ask(engine))).toEqual({ loadedBlocks: 2, computedBlocks: 4, failures: [] });
    expect(outcomeOf(await ask(engine, 'again'))).toEqual({ loadedBlocks: 6, computedBlocks: 0, failures: [] });
    expect(engine.counters).toMatchObject({ 'tier.c0-host.loadedBlocks': 12, 'tier.c1-loaded': 4 });
    await engine.close();
  });
});
