import { mkdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { JsonObject } from '../../base/json.ts';
import type { BlockKey } from '../../connector/block-key.ts';
import { type Completion, type CompletionRequest, completeAll } from './completion.ts';
import { blocksNotStored } from './errors.ts';
import { longestBlock, neededTokens, type ReferenceGroup } from './needed-tokens.ts';
import { proofConnector } from './proof-connector.ts';
import { type ServerProcess, withServer } from './server-process.ts';
import { BlockStore, keysInGroups, type RanksOfBlock } from './stored-blocks.ts';

export interface FillOptions {
  /** The directory; it must not exist. */
  readonly path: string;
  readonly ranks: 1 | 2;
  readonly groups: readonly ReferenceGroup[];
  /** The requests of one list run at the same time, or one after the other. */
  readonly lists: readonly (readonly CompletionRequest[])[];
  readonly isSequential?: boolean;
  /** Starts a server with further flags. */
  start(flags: readonly string[]): Promise<ServerProcess>;
  readonly signal: AbortSignal;
}

interface StoreFacts extends Pick<FilledStore, 'store' | 'ranksOf' | 'completions'> {
  readonly fingerprint: string;
  readonly groups: readonly ReferenceGroup[];
}

/** A store with every full block of some requests, and what a reference counts with them. */
export class FilledStore {
  readonly store: BlockStore;
  readonly ranksOf: RanksOfBlock;
  /** By list and request. The store was empty when the first list began. */
  readonly completions: readonly (readonly Completion[])[];
  readonly #facts: StoreFacts;
  readonly #keys = new Map<readonly number[], readonly (readonly BlockKey[])[]>();

  /** Runs all lists on a server, and waits until their blocks are stored. */
  static async fill({
    path,
    ranks,
    groups,
    lists,
    isSequential = false,
    start,
    signal,
  }: FillOptions): Promise<FilledStore> {
    await mkdir(path);
    const store = new BlockStore(path);
    return withServer(start(storeFlags({ path, ranks })), async ({ origin }) => {
      const completions: Completion[][] = [];
      for (const list of lists) completions.push(await completeAll(origin, list, { signal, isSequential }));
      const ranksOf = await store.ranksOfBlocks();
      const fingerprint = await store.fingerprint();
      const filled = new FilledStore({ store, ranksOf, completions, fingerprint, groups });
      const keys = lists.flat().flatMap(({ prompt }) => filled.loadableKeysOf(prompt).flat());
      await whenStored(store, new Set(keys), ranksOf, signal);
      return filled;
    });
  }

  private constructor(facts: StoreFacts) {
    this.store = facts.store;
    this.ranksOf = facts.ranksOf;
    this.completions = facts.completions;
    this.#facts = facts;
  }

  /** By KV group, the key of every full block of a prompt. */
  keysOf(prompt: readonly number[]): readonly (readonly BlockKey[])[] {
    const keys = this.#keys.get(prompt) ?? keysInGroups(prompt, this.#facts.groups, this.#facts.fingerprint);
    this.#keys.set(prompt, keys);
    return keys;
  }

  /**
   * The keys without those of blocks that no request loads. The tokens after the last whole block of any group are computed in any
   * case. In a model with states these are the tokens after the last checkpoint, and the last token never has a checkpoint.
   */
  loadableKeysOf(prompt: readonly number[]): readonly (readonly BlockKey[])[] {
    const keys = this.keysOf(prompt);
    const { groups } = this.#facts;
    const length = groups.some(({ kind }) => kind === 'state') ? prompt.length - 1 : prompt.length;
    const longest = longestBlock(groups);
    const loadable = Math.floor(length / longest) * longest;
    return keys.map((ofGroup, group) => ofGroup.slice(0, loadable / groups[group]!.blockSize));
  }

  /** The smallest number of tokens that a server computes for the requests if it can load these blocks. */
  neededTokens(requests: readonly CompletionRequest[], available: ReadonlySet<BlockKey>): number {
    const asked = requests.map(({ prompt, maxTokens }) => ({
      tokenCount: prompt.length,
      keys: this.keysOf(prompt),
      outputTokens: maxTokens,
      available,
    }));
    return neededTokens(asked, this.#facts.groups);
  }
}

/** A server's store: host memory, and below it the directory of a `BlockStore`. */
export interface StoreOptions {
  readonly path: string;
  readonly ranks: 1 | 2;
  readonly backend?: 'uni' | 'mp';
  /** Default 1 GiB: host memory keeps each block at least until it is written. */
  readonly hostBytes?: number;
}

export const defaultHostBytes = 1024 ** 3;

/** As `--kv-tier host:... --kv-tier disk:...`. In such a text, the end of a path could be read as a setting: `?ttl=5`. */
export const tierSettings = (hostBytes: number, path?: string): JsonObject => ({
  spec_name: 'TieringOffloadingSpec',
  cpu_bytes_to_use: hostBytes,
  secondary_tiers: path === undefined ? [] : [{ type: 'fs', root_dir: path }],
});

/** The flags of a server with a store. `settings`: further settings of `ProofConnector`. */
export function storeFlags(
  { path, ranks, backend = ranks === 1 ? 'uni' : 'mp', hostBytes = defaultHostBytes }: StoreOptions,
  settings: JsonObject = {},
): readonly string[] {
  const config = proofConnector({ ...tierSettings(hostBytes, path), ...provable, ...settings });
  return [
    ...['--pipeline-parallel-size', `${ranks}`, '--distributed-executor-backend', backend],
    ...['--kv-transfer-config', JSON.stringify(config)],
  ];
}

/**
 * A small model computes so fast that loading does not pay on every machine, and a proof shows loads. Blocks that wait for an idle CPU to be
 * written could not be compared, and would be lost with a worker process. A block without an answer in time is computed, which a proof counts
 * as more than the minimum; the default is half of this time.
 */
const provable = { kv_load_policy: 'always', busy_write_share: 1, lookup_timeout_seconds: 1 } as const;

/**
 * Saves end after their requests, and a server that ends waits only a few seconds for them.
 * @throws KvasirError `blocksNotStored` if no further block is stored.
 */
export async function whenStored(
  store: BlockStore,
  keys: ReadonlySet<BlockKey>,
  ranksOf: RanksOfBlock,
  signal: AbortSignal,
): Promise<void> {
  const wanted = [...keys].reduce((sum, key) => sum + ranksOf(key).length, 0);
  const countStored = async (): Promise<number> => (await store.blocks()).filter(({ key }) => keys.has(key)).length;
  let stored = await countStored();
  for (let polls = 0; stored < wanted; polls++) {
    if (polls === pollsWithoutBlock) throw blocksNotStored({ stored, wanted });
    await sleep(pollMs, undefined, { signal });
    const before = stored;
    stored = await countStored();
    if (stored > before) polls = 0;
  }
}

const pollMs = 100;
/** A save has failed after 30 s. */
const pollsWithoutBlock = 400;
