import { randomBytes, randomUUID } from 'node:crypto';
import { tmpdir } from 'node:os';
import { Command } from 'commander';
import { formatTable } from '../../src/base/table.ts';
import { bytesFlag, integerFrom, repeated } from '../../src/cli/args.ts';
import type { CliContext } from '../../src/cli/context.ts';
import type { KvIdentity } from '../../src/connector/connector.ts';
import {
  type BuiltInSpec,
  type DiskSpec,
  diskDefaults,
  parseTierSpec,
} from '../../src/connector/offloading/tier-spec.ts';
import { loadNative } from '../../src/ggml/ffi.ts';
import { openCrc32 } from '../../src/native/crc32.ts';
import { type Exit, untilInterrupted } from '../bench-flags.ts';
import { tierNotMeasured } from '../errors.ts';
import { describeMachine } from '../standard-set/machine.ts';
import { diskSubject } from './disk-subject.ts';
import { hostSubject } from './host-subject.ts';
import { measureTier, type TierRow } from './measure-tier.ts';
import { redisSubject } from './redis-subject.ts';
import { s3Subject } from './s3-subject.ts';
import type { SubjectOptions, TierSubject } from './tier-subject.ts';

interface TiersFlags {
  readonly kvTier?: readonly string[];
  readonly blocks: number;
  readonly blockBytes: number;
  readonly repetitions: number;
  readonly encrypt: boolean;
  readonly json: boolean;
}

/** A block of 16 tokens of Qwen3-0.6B in F16: 28 layers, K and V of 8 heads with 128 elements. */
const blockBytesDefault = 16 * 28 * 2 * 8 * 128 * 2;

/** `kvasir bench tiers`: how fast each tier stores and loads blocks. Needs no model. */
export function tiersCommand(context: CliContext, exit: Exit): Command {
  return new Command('tiers')
    .summary('speed of the tiers that keep KV below the pool, and of what limits them')
    .description(
      'Measure how fast tiers store and load KV blocks, with headers, checksums and verification, compared with the same bytes\n' +
        'moved by what limits the tier: memcpy for host memory, as many plain files for a disk, the client alone for a server. Needs no\n' +
        'model. Use more blocks than the caches of the CPU can keep. Files are in the cache of the system.',
    )
    .option(
      '--kv-tier <tier>',
      'a tier below host memory, as for kvasir serve: disk:/path, redis://host:6379 or s3://bucket/prefix; repeat it for more (default: disk in the temporary folder)',
      repeated,
    )
    .option('--blocks <n>', 'blocks of one measurement', integerFrom(1), 128)
    .option(
      '--block-bytes <size>',
      'size of a block (default: 16 tokens of Qwen3-0.6B in F16)',
      bytesFlag,
      blockBytesDefault,
    )
    .option('--repetitions <n>', 'number of measurements; the table has the medians', integerFrom(1), 5)
    .option('--encrypt', 'measure each tier below host memory once more, with encrypted blocks', false)
    .option('--json', 'print the table on standard error, and one JSON line {"rows":[...]} on standard output', false)
    .action(async (flags: TiersFlags) =>
      exit(await untilInterrupted(context, (signal) => measure(context, flags, signal))),
    );
}

async function measure(context: CliContext, flags: TiersFlags, signal: AbortSignal): Promise<void> {
  const { blocks, blockBytes, repetitions } = flags;
  const specs = flags.kvTier?.map((text) => secondary(text)) ?? [diskIn(tmpdir())];
  const identity = identityOf(blockBytes);
  const options = { identity, crc32: await openCrc32(loadNative()), blocks };
  const onProgress = (text: string): void => void context.stderr.write(`${text}\n`);
  const rows: TierRow[] = [];
  // The pairs of rows with and without encryption are from one run.
  const encrypted = { ...options, macKeys: [randomBytes(32)] };
  const openers: (() => TierSubject | Promise<TierSubject>)[] = [
    () => hostSubject(options),
    ...specs.flatMap((spec) => [
      () => openSubject(spec, options),
      ...(flags.encrypt ? [() => openSubject(spec, encrypted)] : []),
    ]),
  ];
  for (const open of openers) {
    const subject = await open();
    try {
      rows.push(...(await measureTier(subject, { blocks, blockBytes, repetitions, signal, onProgress })));
    } finally {
      await subject.close();
    }
  }
  const title = `${describeMachine()}, Node.js ${process.versions.node}, ${blocks} blocks of ${blockBytes} bytes, medians of ${repetitions}`;
  (flags.json ? context.stderr : context.stdout).write(`\n${title}\n\n${tiersTable(rows)}\n${notes}`);
  if (flags.json) context.stdout.write(`${JSON.stringify({ rows })}\n`);
}

function secondary(text: string): BuiltInSpec {
  const spec = parseTierSpec(text);
  if (spec.kind === 'host') throw tierNotMeasured({ tier: text });
  return spec;
}

const identityOf = (blockBytes: number): KvIdentity => ({
  // Blocks that an interrupted run left in a server are not found.
  fingerprint: `bench ${randomUUID()}`,
  modelName: 'bench',
  dtype: 'f16',
  rank: 0,
  worldSize: 1,
  blockBytes,
  groups: [{ blockSize: 16, layers: [0] }],
});

const budgets: Readonly<Record<string, string>> = { host: '>= 0.8' };
const budgetOfOthers = '>= 0.7';

function tiersTable(rows: readonly TierRow[]): string {
  const header = ['', 'GB/s', 'limit', 'ratio', 'budget', 'p50 ms', 'p99 ms', 'CPU s/GB', 'limit CPU s/GB'];
  return formatTable(
    header,
    rows.map(({ tier, what, limit, gigabytesPerSecond, latencyMs, cpuSecondsPerGigabyte }) => [
      `${tier} ${what}`,
      gigabytesPerSecond.kvasir!,
      `${limit} ${gigabytesPerSecond[limit]}`,
      gigabytesPerSecond.ratio!,
      tier.endsWith('encrypted') || (what === 'store' && tier !== 'host') ? '-' : (budgets[tier] ?? budgetOfOthers),
      latencyMs.p50,
      latencyMs.p99,
      cpuSecondsPerGigabyte.kvasir!,
      cpuSecondsPerGigabyte[limit]!,
    ]),
  );
}

const notes = `GB: 10^9 bytes. p50 and p99: of one call of the tier. CPU: of this process, without the servers of tiers.
`;

/** Opens the tier of a specification, as `kvasir serve` would, and its limit. */
function openSubject(spec: BuiltInSpec, options: SubjectOptions): Promise<TierSubject> {
  switch (spec.kind) {
    case 'disk':
      return diskSubject(spec, options);
    case 'redis':
      return redisSubject(spec, options);
    case 's3':
      return s3Subject(spec, options);
  }
}

const diskIn = (path: string): DiskSpec => ({ kind: 'disk', path, ...diskDefaults });
