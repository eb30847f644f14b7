import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Prng } from '../../src/base/prng.ts';
import { longestBlock, type ReferenceGroup } from '../../src/cli/proof/needed-tokens.ts';
import { keysInGroups, readFingerprint, readRanksOfBlocks } from '../../src/cli/proof/stored-blocks.ts';
import type { BlockKey } from '../../src/connector/block-key.ts';
import { BlockStore } from './block-store.ts';
import { type CaseRow, type LoadMode, runCase } from './case-run.ts';
import { type Completion, complete } from './completion.ts';
import { blocksNotStored } from './errors.ts';
import { type FaultSettings, faultsOf, undisturbed } from './faults.ts';
import { ServerProcess } from './server-process.ts';
import {
  probesOf,
  type SamplingName,
  samplingNames,
  type WorkloadOptions,
  type WorkloadRequest,
  workloadOf,
} from './workload.ts';

export interface MatrixOptions {
  readonly workload: WorkloadOptions;
  readonly faults: FaultSettings;
  /** The model's KV groups. With more than one, requests run one after the other, because the minimum depends on their order. */
  readonly groups: readonly ReferenceGroup[];
  /** Flags of `kvasir serve`, the model among them. */
  readonly serverArgs: readonly string[];
  readonly modes: readonly LoadMode[];
  readonly samplings: readonly SamplingName[];
  readonly ranks: readonly (1 | 2)[];
  /** Runs only faults whose name matches. */
  readonly only?: RegExp;
  readonly folder: string;
  onProgress(text: string): void;
}

/** The preparation for one number of ranks: the expected completions, computed without a store, and a store of all blocks. */
export interface Prepared {
  readonly store: BlockStore;
  readonly storeBytes: number;
  readonly expected: Readonly<Record<SamplingName, readonly Completion[]>>;
  readonly fingerprint: string;
}

/**
 * Probes after the fault; during it, there is one probe each second. Two probes are sent each second. The last cool-down
 * of a circuit breaker is at most 30 s, and hardly longer than the time for which the store was down.
 */
const probesAfterFault = (downSeconds: number): number => 10 + 3 * Math.min(30, downSeconds + 1);

/** Runs one workload with every fault in every variant, each on a new server process and a copy of the store. */
export async function runMatrix(options: MatrixOptions, signal: AbortSignal): Promise<CaseRow[]> {
  const workloads = { greedy: workloadOf(options.workload, 'greedy'), seeded: workloadOf(options.workload, 'seeded') };
  const { downSeconds } = options.faults;
  const probes = probesOf(
    options.workload,
    downSeconds + probesAfterFault(downSeconds),
    2 * longestBlock(options.groups) + 1,
  );
  const faults = [undisturbed, ...faultsOf(options.faults)].filter(
    ({ name }) => name === undisturbed.name || options.only?.test(name) !== false,
  );
  const rows: CaseRow[] = [];
  const prng = new Prng(options.workload.seed);
  for (const ranks of options.ranks) {
    options.onProgress(`${ranks} rank(s): computing the texts without a store, and filling a store`);
    const prepared = await prepare(options, ranks, { workloads, probes }, signal);
    for (const fault of faults) {
      for (const mode of options.modes) {
        for (const sampling of options.samplings) {
          options.onProgress(`${fault.name}, ${mode}, ${sampling}, ${ranks} rank(s)`);
          const requests = workloads[sampling];
          const row = await runCase({
            fault,
            mode,
            sampling,
            ranks,
            requests,
            expected: prepared.expected[sampling],
            probes,
            filled: prepared.store,
            filledBytes: prepared.storeBytes,
            keysOf: memoized((prompt) => keysInGroups(prompt, options.groups, prepared.fingerprint)),
            groups: options.groups,
            serverArgs: options.serverArgs,
            folder: join(options.folder, `case-${rows.length}-${ranks}`),
            prng: prng.fork(),
            signal,
          });
          rows.push(row);
          options.onProgress(`  ${described(row)}`);
        }
      }
    }
    await prepared.store.remove();
  }
  return rows;
}

export interface PreparedRequests {
  readonly workloads: Readonly<Record<SamplingName, readonly WorkloadRequest[]>>;
  readonly probes: readonly WorkloadRequest[];
}

/** Computes every request on a server without a store, and again on a server that stores all blocks. */
export async function prepare(
  { serverArgs, folder, groups }: Pick<MatrixOptions, 'serverArgs' | 'folder' | 'groups'>,
  ranks: number,
  { workloads, probes }: PreparedRequests,
  signal: AbortSignal,
): Promise<Prepared> {
  const args = [...serverArgs, '--pipeline-parallel-size', String(ranks)];
  const expected = await onServer(args, signal, async (origin) => ({
    greedy: await completeAll(origin, workloads.greedy, signal),
    seeded: await completeAll(origin, workloads.seeded, signal),
  }));
  const path = join(folder, `store-of-${ranks}`);
  await mkdir(path);
  const connector = {
    kv_connector: 'SharedStorageConnector',
    kv_role: 'kv_producer',
    kv_connector_extra_config: { shared_storage_path: path, save_buffer_bytes: 1024 ** 3 },
  };
  const store = new BlockStore(path);
  const serverWithStore = [...args, '--kv-transfer-config', JSON.stringify(connector)];
  const fingerprint = await onServer(serverWithStore, signal, async (origin) => {
    for (const name of samplingNames) await completeAll(origin, workloads[name], signal);
    await completeAll(origin, probes, signal);
    const ofModel = await readFingerprint(path);
    const prompts = [...workloads.greedy, ...probes].map(({ prompt }) => prompt);
    const wanted = new Set(prompts.flatMap((prompt) => keysInGroups(prompt, groups, ofModel).flat()));
    const ranksOf = await readRanksOfBlocks(path, ranks);
    const parts = [...wanted].reduce((sum, key) => sum + ranksOf(key).length, 0);
    const countStored = async (): Promise<number> =>
      (await store.blocks()).filter(({ key }) => wanted.has(key as BlockKey)).length;
    const stored = await whenStored(countStored, parts, signal);
    if (stored < parts) throw blocksNotStored({ stored, wanted: parts });
    return ofModel;
  });
  return { store, storeBytes: await store.bytes(), expected, fingerprint };
}

/** Saves end after their requests, and a server that ends waits only a few seconds for them. Returns how many blocks are stored. */
async function whenStored(countStored: () => Promise<number>, wanted: number, signal: AbortSignal): Promise<number> {
  let stored = await countStored();
  for (let polls = 0; stored < wanted && polls < pollsWithoutBlock; polls++) {
    await sleep(pollMs, undefined, { signal });
    const before = stored;
    stored = await countStored();
    if (stored > before) polls = 0;
  }
  return stored;
}

const pollMs = 100;
/** A save has failed after 30 s. */
const pollsWithoutBlock = 400;

async function onServer<T>(
  args: readonly string[],
  signal: AbortSignal,
  work: (origin: string) => Promise<T>,
): Promise<T> {
  const server = await ServerProcess.start(args, signal);
  try {
    return await work(server.origin);
  } finally {
    await server.stop();
  }
}

const completeAll = (origin: string, requests: readonly WorkloadRequest[], signal: AbortSignal) =>
  Promise.all(requests.map((request) => complete(request, { origin: () => Promise.resolve(origin), signal })));

function memoized<T>(of: (prompt: readonly number[]) => T): (prompt: readonly number[]) => T {
  const known = new Map<readonly number[], T>();
  return (prompt) => {
    const keys = known.get(prompt) ?? of(prompt);
    known.set(prompt, keys);
    return keys;
  };
}

function described(row: CaseRow): string {
  const { textsEqual, requests, computedTokens, minimumTokens, givenUpTokens = 0, requestsLost } = row;
  const givenUp = givenUpTokens === 0 ? '' : ` (${givenUpTokens} for loads given up)`;
  return `${textsEqual}/${requests} texts equal, ${computedTokens} tokens computed, minimum ${minimumTokens}${givenUp}, ${requestsLost} requests lost`;
}
