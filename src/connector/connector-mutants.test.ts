import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { readKvTransferConfig } from './config.ts';
import { connectorSuite } from './connector.suite.ts';
import type { KvIdentity } from './connector.ts';
import { SharedStorageConnector } from './shared-storage/shared-storage-connector.ts';
import type { DiskTier } from './tier/disk/tier-disk.ts';
import type { Tier } from './tier/tier.ts';

/** Connectors with one bug each: the suite must catch every one, by the case that is about it. */
type Mutation = (tier: Tier, identity: KvIdentity) => Partial<Tier>;

const mutants: Readonly<Record<string, { readonly caughtBy: RegExp; readonly mutate: Mutation | undefined }>> = {
  'loads nothing, and says that it did': {
    caughtBy: /loads in one engine/,
    mutate: () => ({ load: async () => undefined }),
  },
  'loads a wrong byte': {
    caughtBy: /loads in one engine/,
    mutate: (tier) => ({
      load: async (key, into, signal, context) => {
        const miss = await tier.load(key, into, signal, context);
        into[into.length - 1]! ^= 1;
        return miss;
      },
    }),
  },
  'loads the block of another rank or key': {
    caughtBy: /loads in one engine/,
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
  'says that a load is over, and writes later': {
    caughtBy: /loads in one engine/,
    mutate: (tier) => ({
      load: async (key, into, signal, context) => {
        setImmediate(() => void tier.load(key, into, signal, context).catch(() => undefined));
        return undefined;
      },
    }),
  },
  'stores nothing, and says that it did': {
    caughtBy: /loads in one engine/,
    mutate: () => ({ store: async () => 'stored' }),
  },
  'forgets every other save': {
    caughtBy: /loads in one engine/,
    mutate: (tier) => {
      let calls = 0;
      return { store: (...args) => (calls++ % 2 === 0 ? tier.store(...args) : Promise.resolve('stored' as const)) };
    },
  },
  'stores a block under the name of another': {
    caughtBy: /loads in one engine/,
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
    caughtBy: /a hole costs one block/,
    mutate: () => ({ has: async (keys) => keys.map(() => true) }),
  },
  'finds no block': {
    caughtBy: /loads in one engine/,
    mutate: () => ({ has: async (keys) => keys.map(() => false) }),
  },
  'finds a prefix only': {
    caughtBy: /a hole costs one block/,
    mutate: (tier) => ({
      has: async (keys, signal) => {
        const found = await tier.has(keys, signal);
        const hole = found.indexOf(false);
        return found.map((answer, i) => answer === true && (hole < 0 || i < hole));
      },
    }),
  },
  'has no bug': { caughtBy: /^$/, mutate: undefined },
};

const root = mkdtempSync(join(tmpdir(), 'kvasir-mutants-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let serial = 0;

/** The cases of the suite that loads blocks and finds holes, on one rank, in both modes. */
function casesFor(mutate: Mutation | undefined): { readonly name: string; run(): Promise<void> }[] {
  class Mutant extends SharedStorageConnector {
    protected override tierFor(tier: DiskTier, identity: KvIdentity): Tier {
      if (mutate === undefined) return tier;
      const mutations = mutate(tier, identity);
      return new Proxy<Tier>(tier, {
        get: (target, name) => {
          const value: unknown = Reflect.get(mutations, name) ?? Reflect.get(target, name, target);
          return typeof value === 'function' ? value.bind(target) : value;
        },
      });
    }
  }
  const cases: { name: string; run(): Promise<void> }[] = [];
  let group = '';
  connectorSuite(
    'mutant',
    {
      newStorage: () => join(root, `${serial++}`),
      create: (storage, { role, mode }) =>
        new Mutant(
          readKvTransferConfig({
            kvConnector: 'Mutant',
            kvRole: role,
            kvConnectorExtraConfig: { shared_storage_path: storage, async_load: mode === 'async', loads_at_once: 2 },
          }),
        ),
    },
    {
      describe: (name, body) => {
        group = name;
        body();
      },
      it: (name, run) => {
        if (group.includes('1 rank')) cases.push({ name, run });
      },
    },
  );
  return cases.filter(({ name }) => /loads in one engine|a hole costs one block/.test(name));
}

describe('the suite catches a connector that', () => {
  it.each(Object.entries(mutants))('%s', async (_, { caughtBy, mutate }) => {
    const caught: string[] = [];
    for (const { name, run } of casesFor(mutate)) {
      const isCaught = await run().then(
        () => false,
        () => true,
      );
      if (isCaught) caught.push(name);
    }
    // In both modes.
    expect(caught.filter((name) => caughtBy.test(name))).toHaveLength(mutate === undefined ? 0 : 2);
    if (mutate === undefined) expect(caught).toEqual([]);
  });
});
