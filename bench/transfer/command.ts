import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { demoModelPath } from '../../src/base/package-files.ts';
import { formatTable } from '../../src/base/table.ts';
import { addEngineFlags, integerFrom } from '../../src/cli/args.ts';
import type { CliContext } from '../../src/cli/context.ts';
import type { KvIdentity } from '../../src/connector/connector.ts';
import { loadNative } from '../../src/ggml/ffi.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { readModelConfig } from '../../src/ggml/model-config.ts';
import { openCrc32 } from '../../src/native/crc32.ts';
import { blockBytes, kvTypes } from '../../src/runner/kv-memory.ts';
import {
  addBenchFlags,
  type BenchFlags,
  benchOptions,
  cell,
  type Exit,
  reportOf,
  threadsOf,
  untilInterrupted,
} from '../bench-flags.ts';
import { rounded } from '../statistics.ts';
import type { OpenMeasuredEngine } from '../subject/engine-subject.ts';
import {
  type ConnectorCostRow,
  type FirstTokenRow,
  measureConnectorCost,
  measureFirstToken,
} from './transfer-engine.ts';
import { measureTiers, type TierRow } from './transfer-tiers.ts';

interface TransferFlags extends BenchFlags {
  readonly blocks: number;
  readonly prefixLen: number;
  readonly requests: number;
  readonly promptLen: number;
  readonly genLen: number;
  readonly storagePath?: string;
}
export type TransferRow = TierRow | FirstTokenRow | ConnectorCostRow;

export function transferCommand(openEngine: OpenMeasuredEngine, context: CliContext, exit: Exit): Command {
  const command = new Command('transfer')
    .summary('speed of storing and loading KV blocks, and the cost of a connector')
    .description(
      "Measure storing and loading KV blocks of the model's size, in memory and on disk, compared with memcpy and plain " +
        'files; the time to the first token after a prefix on disk, compared with computing the prefix; and the cost of a\n' +
        'connector whose blocks are not reused.',
    )
    .option('--blocks <n>', 'blocks of one transfer', integerFrom(1), 32)
    .option('--prefix-len <tokens>', 'the prefix that is loaded from disk', integerFrom(1), 2048)
    .option('--requests <n>', 'requests at once whose blocks are not reused', integerFrom(1, 256), 8)
    .option('--prompt-len <tokens>', 'tokens of their prompts', integerFrom(1), 512)
    .option('--gen-len <tokens>', 'tokens to generate', integerFrom(1), 64)
    .option(
      '--storage-path <dir>',
      'folder for stored blocks, which the bench removes at the end (default: the temporary folder)',
    );
  addBenchFlags(command, 3);
  return addEngineFlags(command).action(async (flags: TransferFlags) =>
    exit(await untilInterrupted(context, (signal) => measure(openEngine, context, flags, signal))),
  );
}

async function measure(
  openEngine: OpenMeasuredEngine,
  context: CliContext,
  flags: TransferFlags,
  signal: AbortSignal,
): Promise<void> {
  const identity = await identityOf(flags);
  const root = await mkdtemp(join(flags.storagePath ?? tmpdir(), 'kvasir-bench-'));
  try {
    const { repetitions, blocks, blockSize } = flags;
    const onProgress = (text: string): void => void context.stderr.write(`${text}\n`);
    // Separate folders, because engines warn of blocks with another identity.
    const folders = { tiers: join(root, 'tiers'), engines: join(root, 'engines') };
    for (const folder of Object.values(folders)) await mkdir(folder);
    const crc32 = await openCrc32(loadNative());
    const tiers = await measureTiers({ identity, crc32, blocks, root: folders.tiers, repetitions, onProgress });
    const engine = { ...benchOptions(flags, context), blockSize };
    const options = {
      openEngine,
      engine,
      blockBytes: identity.blockBytes,
      root: folders.engines,
      repetitions,
      signal,
      onProgress,
    };
    const firstToken = await measureFirstToken(options, flags.prefixLen);
    const { requests, promptLen: promptLength, genLen: generateLength } = flags;
    const cost = await measureConnectorCost(options, { requests, promptLength, generateLength });
    const rows: TransferRow[] = [...tiers, firstToken, cost];
    reportOf(context, flags, `${identity.modelName}, ${threadsOf(flags)} threads`, {
      table: transferTable(rows),
      rows,
    });
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}

/** An identity with blocks of the model's size, for the measurement of the tiers. */
async function identityOf({ model = demoModelPath(), blockSize, kvCacheDtype }: TransferFlags): Promise<KvIdentity> {
  const { layerCount, headCountKv, headDim, name } = readModelConfig(await readGguf(model));
  return {
    fingerprint: 'bench',
    modelName: name ?? 'model',
    dtype: kvCacheDtype,
    rank: 0,
    worldSize: 1,
    blockBytes: blockBytes({ type: kvTypes[kvCacheDtype], layerCount, blockSize, headCountKv, headDim }),
    groups: [{ blockSize, layers: Array.from({ length: layerCount }, (_, layer) => layer) }],
  };
}

function transferTable(rows: readonly TransferRow[]): string {
  const lines = rows.flatMap((row): (string | number)[][] => {
    if (row.kind === 'tier') {
      const { kvasir, ratio, [row.limit]: limit } = row.gigabytesPerSecond;
      return [[`${row.tier} ${row.what}, GB/s`, cell(kvasir), `${row.limit} ${cell(limit)}`, cell(ratio), '-']];
    }
    if (row.kind === 'connectorCost') {
      const { connector, none, ratio } = row.throughput;
      const write = `fs.write ${row.writeMs} ms`;
      return [
        [
          `${row.requests} requests with a connector, tok/s`,
          cell(connector),
          `without ${cell(none)}`,
          cell(ratio),
          '>= 0.97',
        ],
        [`of these, writing ${row.blocks} blocks a run`, '-', write, row.writeOnlyRatio, 'the limit'],
      ];
    }
    const { prefixLength, diskMs, recomputeMs, poolMs, readMs } = row;
    return [
      [`first token after ${prefixLength} from disk, ms`, diskMs, `recomputed ${recomputeMs}`, row.speedup, '>= 10'],
      ['of these, loading, ms', rounded(diskMs - poolMs), `fs.read ${readMs}`, row.loadOverRead, '<= 1.5'],
    ];
  });
  return formatTable(['', 'kvasir', 'compared with', 'ratio', 'budget'], lines);
}
