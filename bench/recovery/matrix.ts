import { join } from 'node:path';
import { Prng } from '../../src/base/prng.ts';
import { type Completion, type CompletionRequest, completeAll } from '../../src/cli/proof/completion.ts';
import { FilledStore } from '../../src/cli/proof/filled-store.ts';
import { longestBlock, type ReferenceGroup } from '../../src/cli/proof/needed-tokens.ts';
import { ServerProcess, withServer } from '../../src/cli/proof/server-process.ts';
import { type CaseRow, type LoadMode, runCase } from './case-run.ts';
import { type FaultSettings, faultsOf, undisturbed } from './faults.ts';
import { probesOf, type SamplingName, type WorkloadOptions, workloadOf } from './workload.ts';

export interface MatrixOptions {
  readonly workload: WorkloadOptions;
  readonly faults: FaultSettings;
  /** The model's KV groups. With more than one, requests run one after the other, because the minimum depends on their order. */
  readonly groups: readonly ReferenceGroup[];
  /** Flags of `kvasir serve`, the model among them. */
  readonly serverArgs: readonly string[];
  /** Further flags of servers with a store. */
  readonly storeArgs: readonly string[];
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
  readonly filled: FilledStore;
  readonly expected: Readonly<Record<SamplingName, readonly Completion[]>>;
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
            filled: prepared.filled,
            groups: options.groups,
            serverArgs: [...options.serverArgs, ...options.storeArgs],
            folder: join(options.folder, `case-${rows.length}-${ranks}`),
            prng: prng.fork(),
            signal,
          });
          rows.push(row);
          options.onProgress(`  ${described(row)}`);
        }
      }
    }
    await prepared.filled.store.remove();
  }
  return rows;
}

export interface PreparedRequests {
  readonly workloads: Readonly<Record<SamplingName, readonly CompletionRequest[]>>;
  readonly probes: readonly CompletionRequest[];
}

/** Computes every request on a server without a store, and again on a server that stores all blocks. */
export async function prepare(
  { serverArgs, storeArgs, folder, groups }: Pick<MatrixOptions, 'serverArgs' | 'storeArgs' | 'folder' | 'groups'>,
  ranks: 1 | 2,
  { workloads: { greedy, seeded }, probes }: PreparedRequests,
  signal: AbortSignal,
): Promise<Prepared> {
  const start = (flags: readonly string[]) => ServerProcess.start([...serverArgs, ...flags], signal);
  const expected = await withServer(start(['--pipeline-parallel-size', `${ranks}`]), async ({ origin }) => ({
    greedy: await completeAll(origin, greedy, { signal }),
    seeded: await completeAll(origin, seeded, { signal }),
  }));
  const path = join(folder, `store-of-${ranks}`);
  const lists = [greedy, seeded, probes];
  const startWithStore = (flags: readonly string[]) => start([...flags, ...storeArgs]);
  const filled = await FilledStore.fill({ path, ranks, groups, lists, start: startWithStore, signal });
  return { filled, expected };
}

function described(row: CaseRow): string {
  const { textsEqual, requests, computedTokens, minimumTokens, givenUpTokens = 0, requestsLost } = row;
  const givenUp = givenUpTokens === 0 ? '' : ` (${givenUpTokens} for loads given up)`;
  return `${textsEqual}/${requests} texts equal, ${computedTokens} tokens computed, minimum ${minimumTokens}${givenUp}, ${requestsLost} requests lost`;
}
