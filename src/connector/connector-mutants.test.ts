import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { inLongForm } from '../../test/support/long-form.ts';
import { readKvTransferConfig } from './config.ts';
import { connectorSuite } from './connector.suite.ts';
import type { KvRole, LoadMode, SchedulerConnector, SchedulerConnectorContext } from './connector.ts';
import { MultiConnector } from './multi/multi-connector.ts';
import { SharedStorageConnector } from './shared-storage/shared-storage-connector.ts';
import type { DiskTier } from './tier/disk/tier-disk.ts';
import type { Tier } from './tier/tier.ts';

/**
 * Makes a tier with one bug. `afterReport` calls its argument after the engine received the report of a load.
 * The suite must detect each bug, in the case that is about it.
 */
type Mutation = (tier: Tier, afterReport: (write: () => void) => void) => Partial<Tier>;

const mutants: Readonly<Record<string, { readonly detectedBy: RegExp; readonly mutate: Mutation | undefined }>> = {
  'reports a load without reading the block': {
    detectedBy: /loads in one engine the blocks/,
    mutate: () => ({ load: async () => undefined }),
  },
  'loads one wrong byte': {
    detectedBy: /loads in one engine the blocks/,
    mutate: (tier) => ({
      load: async (key, into, signal, context) => {
        const miss = await tier.load(key, into, signal, context);
        into[into.length - 1]! ^= 1;
        return miss;
      },
    }),
  },
  'loads the block of the first key for every key': {
    detectedBy: /loads in one engine the blocks/,
    mutate: (tier) => {
      let first: Parameters<Tier['load']>[0] | undefined;
      return {
        load: (key, ...rest) => {
          first ??= key;
          return tier.load(first, ...rest);
        },
      };
    },
  },
  'reports a load before it writes the block': {
    detectedBy: /loads in one engine the blocks/,
    mutate: (tier, afterReport) => ({
      load: async (key, into, signal, context) => {
        const bytes = new Uint8Array(into.length);
        const miss = await tier.load(key, bytes, signal, context);
        if (miss === undefined) afterReport(() => into.set(bytes));
        return miss;
      },
    }),
  },
  'reports a store without writing the block': {
    detectedBy: /loads in one engine the blocks/,
    mutate: () => ({ store: async () => 'stored' }),
  },
  'omits every second store': {
    detectedBy: /loads in one engine the blocks/,
    mutate: (tier) => {
      let calls = 0;
      return { store: (...args) => (calls++ % 2 === 0 ? tier.store(...args) : Promise.resolve('stored' as const)) };
    },
  },
  'stores a block under the key of another': {
    detectedBy: /loads in one engine the blocks/,
    mutate: (tier) => {
      let before: Uint8Array | undefined;
      return {
        store: (key, bytes, ...rest) => {
          const other = before ?? bytes;
          before = bytes.slice();
          return tier.store(key, other, ...rest);
        },
      };
    },
  },
  'promises every block': {
    detectedBy: /only the blocks of a hole/,
    mutate: () => ({ has: async (keys) => keys.map(() => true) }),
  },
  'finds no block': {
    detectedBy: /loads in one engine the blocks/,
    mutate: () => ({ has: async (keys) => keys.map(() => false) }),
  },
  'finds a prefix only': {
    detectedBy: /only the blocks of a hole/,
    mutate: (tier) => ({
      has: async (keys, signal) => {
        const found = await tier.has(keys, signal);
        const hole = found.indexOf(false);
        return found.map((answer, i) => answer === true && (hole < 0 || i < hole));
      },
    }),
  },
  'has no bug': { detectedBy: /loads in one engine the blocks|only the blocks of a hole/, mutate: undefined },
};

const root = mkdtempSync(join(tmpdir(), 'kvasir-mutants-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let serial = 0;

/** `target` with some methods replaced. */
function replacing<T extends object>(target: T, methods: Partial<T>): T {
  return new Proxy(target, {
    get: (_, name) => {
      const value: unknown = Reflect.get(methods, name) ?? Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** The modes in which each bug must be detected. */
const modes = inLongForm<readonly LoadMode[]>(['async', 'sync'], ['async']);

interface MutantCases {
  readonly mutate: Mutation | undefined;
  readonly names: RegExp;
  /** The connector is the second of a list, whose first has no blocks. */
  readonly isInList: boolean;
}

/** The cases of the suite with these names, on one rank, in each mode. */
function casesFor({ mutate, names, isInList }: MutantCases): { readonly name: string; run(): Promise<void> }[] {
  const lateWrites: (() => void)[] = [];
  class Mutant extends SharedStorageConnector {
    override async openScheduler(context: SchedulerConnectorContext): Promise<SchedulerConnector> {
      const side = await super.openScheduler(context);
      return replacing(side, {
        updateConnectorOutput: (outcomes) => {
          side.updateConnectorOutput(outcomes);
          if (outcomes.loads.length > 0) for (const write of lateWrites.splice(0)) write();
        },
      });
    }

    protected override tierFor(tier: DiskTier): Tier {
      return mutate === undefined
        ? tier
        : replacing<Tier>(
            tier,
            mutate(tier, (write) => void lateWrites.push(write)),
          );
    }
  }
  const cases: { name: string; run(): Promise<void> }[] = [];
  connectorSuite(
    'mutant',
    {
      modes,
      ranks: [1],
      newStorage: () => join(root, `${serial++}`),
      create: (storage, { role, mode }) => {
        const configOf = (kvRole: KvRole, path: string) =>
          readKvTransferConfig({
            kvConnector: 'Mutant',
            kvRole,
            kvConnectorExtraConfig: {
              shared_storage_path: path,
              async_load: mode === 'async',
              loads_at_once: 2,
              saves_at_once: 1,
              lookup_timeout_seconds: 60,
              save_timeout_seconds: 60,
            },
          });
        const mutant = new Mutant(configOf(role, storage));
        if (!isInList) return mutant;
        return new MultiConnector([new SharedStorageConnector(configOf('kv_consumer', `${storage}-empty`)), mutant]);
      },
    },
    {
      describe: (_, body) => body(),
      it: (name, run) => void cases.push({ name, run }),
    },
  );
  return cases.filter(({ name }) => names.test(name));
}

/** Each mutant alone, and some also in a list of connectors, which must hide no bug. */
const planted = Object.entries(mutants).flatMap(([bug, mutant], i) =>
  inLongForm([false, true], i % 3 === 1 ? [false, true] : [false]).map(
    (isInList) => [isInList ? `in a list, ${bug}` : bug, { ...mutant, isInList }] as const,
  ),
);

describe('the suite detects a connector that', () => {
  it.each(planted)('%s', async (_, { detectedBy, mutate, isInList }) => {
    const failed: string[] = [];
    const cases = casesFor({ mutate, names: detectedBy, isInList });
    // Each case in each mode.
    expect(cases).toHaveLength((mutate === undefined ? 2 : 1) * modes.length);
    for (const { name, run } of cases) {
      const hasFailed = await run().then(
        () => false,
        () => true,
      );
      if (hasFailed) failed.push(name);
    }
    expect(failed).toEqual(mutate === undefined ? [] : cases.map(({ name }) => name));
  });
});
