import { Command, Option } from 'commander';
import { formatBytes } from '../base/bytes.ts';
import { formatTable } from '../base/table.ts';
import type { TierReport, TierTraffic } from '../connector/offloading/tier-report.ts';
import type { CliContext, ExitCode } from './context.ts';
import { callServer } from './server-call.ts';
import { addTierOrders } from './tier-orders.ts';

interface TiersFlags {
  readonly apiKey?: string;
  readonly json?: boolean;
}

export function tiersCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  const command = new Command('tiers')
    .summary('show the KV tiers of a running server, and give it orders about cached KV')
    .description(
      'Show what the KV tiers of a running server have done: blocks and bytes loaded and stored, speed, failures by reason, circuit breakers, evictions.',
    )
    .argument('[url]', 'address of the server', 'http://127.0.0.1:8000')
    .addOption(new Option('--api-key <key>', 'key of the server, or its admin key').env('KVASIR_API_KEY'))
    .option('--json', 'print JSON, with all counts')
    .action(async (url: string, flags: TiersFlags) => {
      const answer = await callServer({ url, path: '/tiers', apiKey: flags.apiKey });
      const { tiers } = answer as { readonly tiers: readonly TierReport[] };
      context.stdout.write(flags.json === true ? `${JSON.stringify({ tiers }, undefined, 2)}\n` : describe(tiers));
      exit(0);
    });
  addTierOrders(command, context, exit);
  return command;
}

function describe(tiers: readonly TierReport[]): string {
  if (tiers.length === 0)
    return 'The server has no KV tiers. Start it with --kv-offloading-size 8 or --kv-tier to have some.\n';
  const header = ['tier', 'holds', 'of', 'loaded', 'GB/s', 'p50', 'p99', 'stored', 'GB/s', 'p50', 'p99', 'evicted'];
  const rows = tiers.map(({ name, loads, stores, evicted, storedBytes, maxBytes }) => [
    name,
    sizeOf(storedBytes),
    sizeOf(maxBytes),
    ...trafficCells(loads),
    ...trafficCells(stores),
    evicted,
  ]);
  return formatTable(header, rows) + tiers.map(troubleOf).join('');
}

const sizeOf = (bytes: number | undefined): string => (bytes === undefined ? '-' : formatBytes(bytes));

const trafficCells = ({ bytes, gigabytesPerSecond, p50Ms, p99Ms }: TierTraffic): string[] => [
  formatBytes(bytes),
  gigabytesPerSecond === undefined ? '-' : gigabytesPerSecond.toFixed(2),
  latencyOf(p50Ms),
  latencyOf(p99Ms),
];

/** The bound of a bucket: JSON has `null` for the bucket without one. */
const latencyOf = (ms: number | null | undefined): string =>
  ms === undefined ? '-' : ms === null ? '>5 s' : `<${ms} ms`;

/** Lines for what went wrong in the tier; none if nothing did. */
function troubleOf({ name, loads, stores, dropped, openStores, openBreakers }: TierReport): string {
  const lines: string[] = [];
  for (const call of openBreakers) lines.push(`the circuit breaker for ${call}s is open: the tier is not called`);
  for (const [reason, count] of Object.entries(loads.failures)) lines.push(`${count} loads failed: ${reason}`);
  for (const [reason, count] of Object.entries(stores.failures)) lines.push(`${count} stores failed: ${reason}`);
  if (dropped > 0) lines.push(`${dropped} blocks were not stored, because the tier is slower than the engine`);
  if (openStores > 0) lines.push(`${openStores} blocks are being stored`);
  return lines.map((line) => `${name}: ${line}\n`).join('');
}
