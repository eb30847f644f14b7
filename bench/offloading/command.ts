import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { demoModelPath } from '../../src/base/package-files.ts';
import { addEngineFlags, integerFrom } from '../../src/cli/args.ts';
import type { CliContext } from '../../src/cli/context.ts';
import { loadRedisLibrary } from '../../src/connector/tier/redis/redis-client.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { readModelConfig } from '../../src/ggml/model-config.ts';
import { wholeModel } from '../../src/runner/contract.ts';
import { groupSpecs, kvLayout } from '../../src/runner/kv-groups.ts';
import { blockBytes, kvTypes } from '../../src/runner/kv-memory.ts';
import {
  addBenchFlags,
  type BenchFlags,
  benchOptions,
  type Exit,
  reportOf,
  threadsOf,
  untilInterrupted,
} from '../bench-flags.ts';
import type { OpenMeasuredEngine } from '../subject/engine-subject.ts';
import { measureConversations } from './conversations.ts';
import { measureDeadTier } from './dead-tier.ts';
import { measureTierFirstToken } from './first-token.ts';
import type { OffloadingBenchOptions } from './offloading-options.ts';
import { measureRace } from './race.ts';
import { measureRetention } from './retention.ts';
import { type OffloadingRow, offloadingTable } from './table.ts';
import { measureCost } from './throughput.ts';

const parts = ['first-token', 'race', 'cost', 'dead-tier', 'conversations', 'retention'] as const;
type Part = (typeof parts)[number];

interface OffloadingFlags extends BenchFlags {
  readonly kvTier?: readonly string[];
  readonly parts?: readonly Part[];
  readonly prefixLen: number;
  readonly requests: number;
  readonly promptLen: number;
  readonly genLen: number;
  readonly control?: boolean;
  readonly conversations: number;
  readonly turns: number;
  readonly turnPromptLen: number;
  readonly turnGenLen: number;
}

/** `kvasir bench offloading`: what the tiers below the pool give, and what they cost. */
export function offloadingCommand(openEngine: OpenMeasuredEngine, context: CliContext, exit: Exit): Command {
  const command = new Command('offloading')
    .summary('what KV tiers below the pool give and cost')
    .description(
      'Measure an engine whose KV goes to tiers below the pool, and the same engine without tiers: the time to the first token ' +
        'after a prefix that a tier has, compared with computing it; the throughput of requests that reuse nothing, in pairs of ' +
        'short runs with and without tiers, with an interval for the ratio and the CPU time of a token; throughput ' +
        'and first token while a Redis server below host memory does not answer; and conversations whose KV is three times the ' +
        'pool, also with a pool for all KV, which is the most that tiers can give; and, for models with windows or states, what ' +
        'prefix_cache_retention_interval stores and loses. --kv-tier names the tiers (default: host memory, and a disk in the temporary folder).',
    )
    .option('--parts <list>', `what to measure, with commas between (default: ${parts.join(',')})`, partsFrom)
    .option('--prefix-len <tokens>', 'the prefix that is loaded', integerFrom(1), 2048)
    .option('--requests <n>', 'requests at once that reuse nothing', integerFrom(1, 256), 8)
    .option('--prompt-len <tokens>', 'tokens of their prompts', integerFrom(1), 128)
    .option('--gen-len <tokens>', 'tokens that they generate', integerFrom(1), 16)
    .option('--control', 'cost: also compare two engines without tiers, which shows what differs without a cause')
    .option('--conversations <n>', 'conversations in turn', integerFrom(4, 256), 4)
    .option('--turns <n>', 'turns of a conversation', integerFrom(1), 20)
    .option('--turn-prompt-len <tokens>', 'new tokens of a turn', integerFrom(1), 128)
    .option('--turn-gen-len <tokens>', 'generated tokens of a turn', integerFrom(1), 32);
  addBenchFlags(command, 3);
  return addEngineFlags(command).action(async (flags: OffloadingFlags) =>
    exit(await untilInterrupted(context, (signal) => measure(openEngine, context, flags, signal))),
  );
}

async function measure(
  openEngine: OpenMeasuredEngine,
  context: CliContext,
  flags: OffloadingFlags,
  signal: AbortSignal,
): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'kvasir-bench-'));
  try {
    const { repetitions, blockSize, kvCacheDtype, model = demoModelPath() } = flags;
    const config = readModelConfig(await readGguf(model));
    const layout = kvLayout(config, wholeModel(config.layerCount), { blockSize, kvType: kvTypes[kvCacheDtype] });
    const { kvTransferConfig: _, ...engine } = benchOptions(flags, context);
    const tiers = flags.kvTier ?? ['host:2GiB', `disk:${folder}:8GiB`];
    const options: OffloadingBenchOptions = {
      openEngine,
      engine: { ...engine, blockSize },
      blockBytes: blockBytes(layout),
      tiers,
      repetitions,
      signal,
      onProgress: (text) => void context.stderr.write(`${text}\n`),
    };
    const { parts: chosen = parts } = flags;
    // Before the measurements, which take minutes.
    if (chosen.includes('dead-tier')) await loadRedisLibrary();
    const rows: OffloadingRow[] = [];
    if (chosen.includes('first-token'))
      for (const tier of tiers) rows.push(await measureTierFirstToken(options, tier, flags.prefixLen));
    if (chosen.includes('race')) rows.push(await measureRace(options, flags.prefixLen));
    const { requests, promptLen: promptLength, genLen: generateLength } = flags;
    const hasControl = flags.control === true;
    if (chosen.includes('cost'))
      rows.push(await measureCost(options, { requests, promptLength, generateLength }, { hasControl }));
    if (chosen.includes('dead-tier'))
      rows.push(...(await measureDeadTier(options, { requests, promptLength, generateLength })));
    const { conversations, turns, turnPromptLen, turnGenLen } = flags;
    const lengths = { conversations, turns, promptLength: turnPromptLen, generateLength: turnGenLen };
    if (chosen.includes('conversations')) rows.push(await measureConversations(options, lengths));
    const groups = groupSpecs(config, wholeModel(config.layerCount), { blockSize, kvType: kvTypes[kvCacheDtype] });
    // Without windows and states, all blocks are stored.
    const isHybrid = groups.some(({ kind }) => kind !== 'full');
    if (chosen.includes('retention') && isHybrid) rows.push(...(await measureRetention(options, groups)));
    reportOf(context, flags, `${engine.model}, ${threadsOf(flags)} threads`, { table: offloadingTable(rows), rows });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function partsFrom(text: string): readonly Part[] {
  const chosen = text.split(',').map((name) => parts.find((part) => part === name));
  if (chosen.includes(undefined)) throw new InvalidArgumentError(`It must be of ${parts.join(', ')}.`);
  return chosen.filter((part) => part !== undefined);
}
