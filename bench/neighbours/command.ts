import { basename } from 'node:path';
import { Command } from 'commander';
import { demoModelPath } from '../../src/base/package-files.ts';
import { formatTable } from '../../src/base/table.ts';
import { integerFrom } from '../../src/cli/args.ts';
import type { CliContext } from '../../src/cli/context.ts';
import { ServerProcess } from '../../src/cli/proof/server-process.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { readModelConfig } from '../../src/ggml/model-config.ts';
import { cell, type Exit, untilInterrupted } from '../bench-flags.ts';
import { RandomTokens } from '../random-tokens.ts';
import { ServerPeer } from '../subject/server-peer.ts';
import { allowedCores, BusyProcesses } from './busy-processes.ts';
import { type Lengths, type ServerSample, sampleServer } from './measure-server.ts';
import { type Barrier, barriers, fairShare, type NeighboursRow, neighbours, rowsOf } from './neighbours.ts';

interface NeighboursFlags {
  readonly model?: string;
  readonly promptLen: number;
  readonly genLen: number;
  readonly repetitions: number;
  readonly json: boolean;
}

/** `kvasir bench neighbours`: a server with a thread on each core, beside busy processes on half of the cores. */
export function neighboursCommand(context: CliContext, exit: Exit): Command {
  return new Command('neighbours')
    .summary('speed of a server beside busy processes, and the latency of /health')
    .description(
      'Measure a server with a thread on each core, alone and beside busy processes on half of the cores. Servers with the\n' +
        'barriers of Kvasir and of ggml take turns. The share is the part of the speed that the cores still allow. /health is\n' +
        'asked while a prompt is computed. Needs Linux and taskset.',
    )
    .option('--model <file>', 'path of a GGUF file (default: the bundled demo model)')
    .option('--prompt-len <tokens>', 'tokens of a prompt', integerFrom(1), 1024)
    .option('--gen-len <tokens>', 'tokens of a stream', integerFrom(1), 64)
    .option('--repetitions <n>', 'number of measurements; the table has the medians', integerFrom(1), 3)
    .option('--json', 'print the table on standard error, and one JSON line {"rows":[...]} on standard output', false)
    .action(async (flags: NeighboursFlags) =>
      exit(await untilInterrupted(context, (signal) => measure(context, flags, signal))),
    );
}

async function measure(context: CliContext, flags: NeighboursFlags, signal: AbortSignal): Promise<void> {
  const model = flags.model ?? demoModelPath();
  const { vocabSize } = readModelConfig(await readGguf(model));
  const cores = allowedCores();
  const shared = cores.slice(0, Math.ceil(cores.length / 2));
  const random = new RandomTokens(Date.now(), vocabSize);
  const lengths: Lengths = { promptLength: flags.promptLen, generateLength: flags.genLen };
  const samples = { kvasir: newSamples(), ggml: newSamples() };
  for (let repetition = 1; repetition <= flags.repetitions; repetition++) {
    const order = repetition % 2 === 1 ? barriers : barriers.toReversed();
    for (const barrier of order) {
      context.stderr.write(`repetition ${repetition} of ${flags.repetitions}: ${barrier}\n`);
      await withServer(model, cores.length, barrier, signal, async (server) => {
        // A prompt before the measurements, so that all memory is in use.
        await sampleServer(server, random, { promptLength: 64, generateLength: 4 }, signal);
        for (const neighbour of neighbours) {
          const busy = neighbour === 'busy' ? await BusyProcesses.start(shared) : undefined;
          try {
            samples[barrier][neighbour].push(await sampleServer(server, random, lengths, signal));
          } finally {
            await busy?.stop();
          }
        }
      });
    }
  }
  const fair = fairShare(cores.length, shared.length);
  const rows = barriers.flatMap((barrier) => rowsOf(barrier, samples[barrier], fair));
  const title = `${basename(model)}, ${cores.length} threads on ${cores.length} cores, busy processes on ${shared.length}, medians of ${flags.repetitions}`;
  (flags.json ? context.stderr : context.stdout).write(`\n${title}\n\n${table(rows)}\n`);
  if (flags.json) context.stdout.write(`${JSON.stringify({ rows })}\n`);
}

const newSamples = (): Record<'none' | 'busy', ServerSample[]> => ({ none: [], busy: [] });

// biome-ignore lint/complexity/useMaxParams: what one server needs
async function withServer(
  model: string,
  threads: number,
  barrier: Barrier,
  signal: AbortSignal,
  use: (server: Parameters<typeof sampleServer>[0]) => Promise<void>,
): Promise<void> {
  const server = await ServerProcess.start([model, '--threads', String(threads)], signal, {
    environment: { KVASIR_BARRIER: barrier },
  });
  try {
    const { origin, processId } = server;
    await use({ origin, processId, peer: await ServerPeer.open(origin, undefined, signal) });
  } finally {
    await server.stop();
  }
}

function table(rows: readonly NeighboursRow[]): string {
  const header = [
    'barrier',
    'beside',
    'prompt tok/s',
    'share',
    'decode tok/s',
    'share',
    'CPU ms/token',
    '/health p50 ms',
    'p99',
    'max',
  ];
  const lines = rows.map((row) => [
    row.barrier,
    row.neighbour,
    row.promptTokensPerSecond,
    cell(row.promptShare),
    row.decodeTokensPerSecond,
    cell(row.decodeShare),
    row.decodeCpuMs,
    row.healthMs.p50,
    row.healthMs.p99,
    row.healthMs.max,
  ]);
  return formatTable(header, lines);
}
