import { writeFileSync } from 'node:fs';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { type ClusterRow, clusterRow } from '../../sim/cluster/cluster-table.ts';
import { routings } from '../../sim/cluster/router.ts';
import { type ClustersReport, randomClusters } from '../../sim/cluster/run-clusters.ts';
import { leastPoolTokens, type TableSettings, tableDefaults } from '../../sim/cluster/table-options.ts';
import { tablePlot } from '../../sim/cluster/table-plot.ts';
import { formatTable } from '../base/table.ts';
import type { KvLoadPolicy } from '../connector/connector.ts';
import { bytesFlag, integerFrom, numberFlag } from './args.ts';
import type { CliContext, ExitCode } from './context.ts';
import { Interruption } from './interrupt.ts';

/** Absent flags have the table's defaults. */
export interface ClusterFlags {
  readonly cluster?: true;
  readonly worlds?: number;
  readonly first?: number;
  readonly replicas?: readonly number[];
  readonly tierGbits?: readonly number[];
  readonly tierLatencyMs?: number;
  readonly conversations?: number;
  readonly thinkSeconds?: number;
  readonly poolTokens?: number;
  readonly restartSeconds?: number;
  readonly routing?: TableSettings['routing'];
  readonly kvLoadPolicy?: KvLoadPolicy;
  readonly prefillTokensPerSecond?: number;
  readonly decodeMs?: number;
  readonly kvBytesPerToken?: number;
  readonly plot?: string;
}

const replicasDefault = [1, 4, 16];
const gigabitsDefault = [0, 0.3, 1, 3, 10];

/** The flags that only `--cluster` reads, by the name of their value. */
const clusterFlagNames = {
  worlds: '--worlds',
  first: '--first',
  replicas: '--replicas',
  tierGbits: '--tier-gbits',
  tierLatencyMs: '--tier-latency-ms',
  conversations: '--conversations',
  thinkSeconds: '--think-seconds',
  poolTokens: '--pool-tokens',
  restartSeconds: '--restart-seconds',
  routing: '--routing',
  kvLoadPolicy: '--kv-load-policy',
  prefillTokensPerSecond: '--prefill-tokens-per-second',
  decodeMs: '--decode-ms',
  kvBytesPerToken: '--kv-bytes-per-token',
  plot: '--plot',
} as const satisfies Partial<Record<keyof ClusterFlags, string>>;

export function addClusterFlags(command: Command): Command {
  const { costs } = tableDefaults;
  return command
    .optionsGroup('Clusters:')
    .option('--cluster', 'simulate servers with a router and a shared tier, in a table of sizes and bandwidths')
    .option('--worlds <n>', 'instead of the table: random small clusters with every kind of fault', integerFrom(1))
    .option('--first <n>', 'of a random cluster, only the first conversations; for a reduced failure', integerFrom(1))
    .option('--replicas <list>', `servers (default: ${replicasDefault.join()})`, numbersFrom(1, Number.isInteger))
    .option(
      '--tier-gbits <list>',
      `gigabits per second of the shared tier; 0: no tier (default: ${gigabitsDefault.join()})`,
      numbersFrom(0),
    )
    .option('--tier-latency-ms <ms>', `latency of the tier (default: ${tableDefaults.tierLatencyMs})`, positive)
    .option(
      '--conversations <n>',
      `conversations per server (default: ${tableDefaults.conversationsPerReplica})`,
      integerFrom(1),
    )
    .option(
      '--think-seconds <s>',
      `mean time from an answer to the next turn (default: ${tableDefaults.thinkSeconds})`,
      positive,
    )
    .option(
      '--pool-tokens <n>',
      `tokens in the pool of a server (default: ${tableDefaults.poolTokens})`,
      integerFrom(leastPoolTokens),
    )
    .option(
      '--restart-seconds <s>',
      `mean time between two restarts of a server; 0: none (default: ${tableDefaults.restartSeconds})`,
      notNegative,
    )
    .addOption(
      new Option('--routing <name>', `by known prefixes or only by load (default: ${tableDefaults.routing})`).choices(
        routings,
      ),
    )
    .addOption(
      new Option('--kv-load-policy <name>', `as in offloading (default: ${tableDefaults.loadPolicy})`).choices([
        'auto',
        'always',
      ]),
    )
    .option(
      '--prefill-tokens-per-second <n>',
      `of a prompt of 512 tokens (default: ${costs.prefillTokensPerSecond})`,
      positive,
    )
    .option('--decode-ms <ms>', `of one request (default: ${costs.decodeMs})`, positive)
    .option('--kv-bytes-per-token <bytes>', `(default: ${costs.kvBytesPerToken})`, bytesFlag)
    .option('--plot <file>', 'also write the p99 of the time to the first token as SVG');
}

/** The first flag that has no effect without `--cluster`. */
export function clusterFlagIn(flags: ClusterFlags): string | undefined {
  for (const [name, flag] of Object.entries(clusterFlagNames)) if (Object.hasOwn(flags, name)) return flag;
  return undefined;
}

/** Flags of the table have no effect on random clusters, and the other way round. */
export function unreadClusterFlag(flags: ClusterFlags): string | undefined {
  if (flags.worlds === undefined) return flags.first === undefined ? undefined : '--first needs --worlds';
  const { worlds: _worlds, first: _first, ...ofTable } = flags;
  const unread = clusterFlagIn(ofTable);
  return unread === undefined ? undefined : `${unread} has no effect with --worlds`;
}

interface ClusterRun extends ClusterFlags {
  readonly seed: number;
  readonly off: readonly string[];
  readonly json: boolean;
}

/** `kvasir sim --cluster`. */
export async function runClusters(context: CliContext, flags: ClusterRun): Promise<ExitCode> {
  using interruption = new Interruption(context);
  try {
    if (flags.worlds === undefined) await showTable(context, flags, interruption.signal);
    else await showRandom(context, flags, flags.worlds, interruption.signal);
    return 0;
  } catch (error) {
    if (interruption.signal.aborted) return interruption.exitCode;
    context.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    return 1;
  }
}

async function showTable({ stdout, stderr }: CliContext, flags: ClusterRun, signal: AbortSignal): Promise<void> {
  const settings = settingsOf(flags);
  // A file that cannot be written is an error before the simulation, not after it.
  if (flags.plot !== undefined) writeFileSync(flags.plot, '');
  const rows: ClusterRow[] = [];
  for (const replicas of flags.replicas ?? replicasDefault)
    for (const tierGigabits of flags.tierGbits ?? gigabitsDefault) {
      stderr.write(`${replicas} replicas, ${tierGigabits === 0 ? 'no tier' : `a tier of ${tierGigabits} Gbit/s`}\n`);
      try {
        rows.push(await clusterRow(flags.seed, { replicas, tierGigabits }, settings, signal));
      } catch (error) {
        signal.throwIfAborted();
        throw new Error(`${String(error)}\nrerun: ${rerunLine(flags, replicas, tierGigabits)}`, { cause: error });
      }
    }
  if (flags.plot !== undefined) writeFileSync(flags.plot, tablePlot(rows));
  if (flags.json) stdout.write(`${JSON.stringify({ seed: flags.seed, settings, rows })}\n`);
  else stdout.write(`all texts equal the reference, no request was lost\n\n${tableOf(rows)}`);
}

function tableOf(rows: readonly ClusterRow[]): string {
  const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;
  return formatTable(
    ['replicas', 'tier Gbit/s', 'pool hits', 'tier hits', 'possible', 'TTFT p50 ms', 'p99 ms', 'requests', 'restarts'],
    rows.map((row) => [
      `${row.replicas}`,
      row.tierGigabits === 0 ? 'none' : `${row.tierGigabits}`,
      percent(row.poolHits),
      percent(row.tierHits),
      percent(row.known),
      row.firstTokenP50Ms,
      row.firstTokenP99Ms,
      row.requests,
      row.restarts,
    ]),
  );
}

async function showRandom(
  { stdout }: CliContext,
  { seed, off, first, json }: ClusterRun,
  worlds: number,
  signal: AbortSignal,
): Promise<void> {
  let report: ClustersReport | undefined;
  for await (report of randomClusters(seed, worlds, { off: new Set(off), conversations: first }, signal));
  if (report === undefined) return;
  if (json) {
    stdout.write(`${JSON.stringify({ seed, ...report })}\n`);
    return;
  }
  const faults = Object.entries(report.faults).flatMap(([name, count]) => (count === 0 ? [] : `${name} ${count}`));
  stdout.write(
    `all texts equal the reference, no request was lost\n` +
      `  ${report.steps} steps in ${report.worlds} clusters from seed ${seed}\n` +
      `  ${report.finished} requests finished, ${report.left} clients left, ${report.retries} retries\n` +
      `  ${report.loads} blocks loaded, ${report.loadFailures} of them failed\n` +
      `  faults: ${faults.join(', ') || 'none'}\n`,
  );
}

function settingsOf(flags: ClusterFlags): TableSettings {
  const { costs } = tableDefaults;
  return {
    ...tableDefaults,
    conversationsPerReplica: flags.conversations ?? tableDefaults.conversationsPerReplica,
    thinkSeconds: flags.thinkSeconds ?? tableDefaults.thinkSeconds,
    poolTokens: flags.poolTokens ?? tableDefaults.poolTokens,
    tierLatencyMs: flags.tierLatencyMs ?? tableDefaults.tierLatencyMs,
    restartSeconds: flags.restartSeconds ?? tableDefaults.restartSeconds,
    routing: flags.routing ?? tableDefaults.routing,
    loadPolicy: flags.kvLoadPolicy ?? tableDefaults.loadPolicy,
    costs: {
      ...costs,
      prefillTokensPerSecond: flags.prefillTokensPerSecond ?? costs.prefillTokensPerSecond,
      decodeMs: flags.decodeMs ?? costs.decodeMs,
      kvBytesPerToken: flags.kvBytesPerToken ?? costs.kvBytesPerToken,
    },
  };
}

/** The command for one row, with all flags that change it. */
function rerunLine(flags: ClusterRun, replicas: number, gigabits: number): string {
  const given = Object.entries(clusterFlagNames).flatMap(([name, flag]) => {
    const value = Object.hasOwn(flags, name) ? flags[name as keyof ClusterFlags] : undefined;
    return value === undefined || name === 'replicas' || name === 'tierGbits' || name === 'plot'
      ? []
      : [`${flag} ${String(value)}`];
  });
  const row = `--seed ${flags.seed} --replicas ${replicas} --tier-gbits ${gigabits}`;
  return ['npx kvasir sim --cluster', row, ...given].join(' ');
}

/** Numbers between commas, each at least `min`. */
function numbersFrom(min: number, isAllowed: (value: number) => boolean = Number.isFinite): (text: string) => number[] {
  return (text) => {
    const values = text.split(',').map(numberFlag);
    if (values.every((value) => value >= min && isAllowed(value))) return values;
    const kind = isAllowed === Number.isFinite ? 'numbers' : 'whole numbers';
    throw new InvalidArgumentError(`It must be ${kind} of at least ${min}, between commas.`);
  };
}

function positive(text: string): number {
  const value = numberFlag(text);
  if (value > 0) return value;
  throw new InvalidArgumentError('It must be above 0.');
}

function notNegative(text: string): number {
  const value = numberFlag(text);
  if (value >= 0) return value;
  throw new InvalidArgumentError('It must be 0 or more.');
}
