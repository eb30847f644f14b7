import { Command } from 'commander';
import { formatTable } from '../../src/base/table.ts';
import { addEngineFlags, integerFrom } from '../../src/cli/args.ts';
import type { CliContext } from '../../src/cli/context.ts';
import {
  addBenchFlags,
  addPeerFlags,
  type BenchFlags,
  benchOptions,
  cell,
  deviceOf,
  type Exit,
  type PeerFlags,
  report,
  threadsOf,
  untilInterrupted,
  withEngine,
} from '../bench-flags.ts';
import { countsFlag, wholeNumbersFlag } from '../flags.ts';
import { rounded } from '../statistics.ts';
import { EngineSubject, type MeasuredEngine, type OpenMeasuredEngine } from '../subject/engine-subject.ts';
import { REFERENCE_BATCH } from '../subject/libllama-conversations.ts';
import { LibllamaSubject } from '../subject/libllama-subject.ts';
import { openReference } from '../subject/llama-reference.ts';
import { openPeer, type Peer } from '../subject/open-peer.ts';
import { openDecodeBytes } from './decode-limit.ts';
import { type Comparison, type LatencyRow, type MemoryLimit, measureLatency } from './latency.ts';
import { MemoryReaders } from './memory-bandwidth.ts';

interface LatencyFlags extends BenchFlags, PeerFlags {
  readonly depth: readonly number[];
  readonly batch: readonly number[];
  readonly promptLen: number;
  readonly genLen: number;
}

export function latencyCommand(openEngine: OpenMeasuredEngine, context: CliContext, exit: Exit): Command {
  const command = new Command('latency')
    .summary('prefill and decode after contexts of some lengths, and the overhead of the engine')
    .description(
      'Measure prefill of one request and decode of one or more requests at once, after\ncontexts of some lengths. Also measure the overhead of a decode step.',
    )
    .option('--depth <tokens,...>', 'tokens of the context in the KV cache', wholeNumbersFlag, [0, 2048])
    .option('--batch <n,...>', 'requests that decode at once, each after its own context', countsFlag, [1])
    .option('--prompt-len <tokens>', 'new tokens of a prompt', integerFrom(1), 512)
    .option('--gen-len <tokens>', 'tokens to generate', integerFrom(1), 64);
  addPeerFlags(addBenchFlags(command, 5)).addHelpText('after', COLUMNS_HELP);
  return addEngineFlags(command).action(async (flags: LatencyFlags) =>
    exit(await untilInterrupted(context, (signal) => measure(openEngine, context, flags, signal))),
  );
}

const COLUMNS_HELP = `
Of a decode step:
  overhead ms  time in which ggml does not compute: planning, preparing the batch, sampling, applying
  % of step    overhead as a share of the whole step
  beside ms    CPU time of the engine's thread while ggml computes: detokenizing and delivering text (Linux)
  limit        on a CPU, tok/s at which memory can deliver all weights once a step, and the context of each request
  of limit     tok/s divided by the limit, which is measured before and after each decode`;

function measure(
  openEngine: OpenMeasuredEngine,
  context: CliContext,
  flags: LatencyFlags,
  signal: AbortSignal,
): Promise<void> {
  const options = benchOptions(flags, context);
  const maxNumSeqs = Math.max(flags.maxNumSeqs, ...flags.batch);
  return withEngine(openEngine, { ...options, maxNumSeqs }, signal, async (measured) => {
    const threads = threadsOf(flags);
    const bytesAt = await openDecodeBytes(measured.engine.model.path, flags.kvCacheDtype);
    // The limit is that of the host's memory.
    const readers = deviceOf(flags) === 'gpu' ? undefined : await MemoryReaders.open(threads, bytesAt(0));
    const memory: MemoryLimit | undefined = readers && { bandwidth: () => readers.bandwidth(), bytesAt };
    const rows: LatencyRow[] = [];
    try {
      for (const batch of flags.batch)
        rows.push(...(await measureBatch(measured, batch, { context, flags, signal, memory })));
    } finally {
      await readers?.close();
    }
    report(context, flags, measured, { table: latencyTable(rows, flags), rows });
  });
}

interface BatchOptions {
  readonly context: CliContext;
  readonly flags: LatencyFlags;
  readonly signal: AbortSignal;
  readonly memory: MemoryLimit | undefined;
}

async function measureBatch(
  measured: MeasuredEngine,
  batch: number,
  { context, flags, signal, memory }: BatchOptions,
): Promise<LatencyRow[]> {
  const { engine } = measured;
  const peer = await openPeer(flags, { engine, batch, signal }, () =>
    openLibllama(flags, batch, engine.model.path, signal),
  );
  try {
    const ours = new EngineSubject(measured, batch, signal);
    return await measureLatency(peer === undefined ? [ours] : [ours, peer.subject], {
      depths: flags.depth.toSorted((a, b) => a - b),
      batch,
      promptLength: flags.promptLen,
      generateLength: flags.genLen,
      repetitions: flags.repetitions,
      ...(memory === undefined ? {} : { memory }),
      onProgress: (text) => context.stderr.write(`${text}\n`),
    });
  } finally {
    peer?.close();
  }
}

function openLibllama(flags: LatencyFlags, batch: number, path: string, signal: AbortSignal): Peer {
  const promptLength = batch === 1 ? flags.promptLen : 0;
  const reference = openReference(path, {
    contextLength: batch * (Math.max(...flags.depth) + promptLength + flags.genLen + 1),
    batch: REFERENCE_BATCH,
    threads: threadsOf(flags),
    device: deviceOf(flags),
    sequences: batch,
    unified: batch === 1,
    keepsAllTokens: false,
  });
  return { subject: new LibllamaSubject(reference, batch, signal), close: () => reference.close() };
}

function latencyTable(rows: readonly LatencyRow[], flags: LatencyFlags): string {
  const peer = Object.keys(rows[0]?.decode ?? {})[1] ?? 'peer';
  const columns = [
    'depth',
    'batch',
    'kvasir',
    peer,
    'ratio',
    'limit',
    'of limit',
    'overhead ms',
    '% of step',
    'beside ms',
  ];
  const header = ['tok/s', ...columns];
  const line = (what: string, { depth, batch }: LatencyRow, values: Comparison): string[] => [
    what,
    String(depth),
    String(batch),
    cell(values.kvasir),
    cell(values[peer]),
    cell(values.ratio),
  ];
  const lines = rows.flatMap((row) => {
    const { prefill, decode, decodeLimit, decodeOfLimit, overheadMs, overheadShare, besideMs } = row;
    const percent = overheadShare === undefined ? undefined : rounded(100 * overheadShare);
    const cells = [decodeLimit, decodeOfLimit, overheadMs, percent, besideMs].map(cell);
    return [
      ...(prefill === undefined ? [] : [[...line(`prefill ${flags.promptLen}`, row, prefill), '', '', '', '', '']]),
      [...line(`decode ${flags.genLen}`, row, decode), ...cells],
    ];
  });
  return formatTable(header, lines);
}
