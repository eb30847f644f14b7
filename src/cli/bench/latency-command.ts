import { Command } from 'commander';
import { openReference } from '../../ggml/llama-reference.ts';
import { addEngineFlags, integerFrom } from '../args.ts';
import type { CliContext } from '../context.ts';
import {
  addBenchFlags,
  addPeerFlags,
  type BenchFlags,
  benchOptions,
  cell,
  type Exit,
  type PeerFlags,
  report,
  threadsOf,
  untilInterrupted,
  withEngine,
} from './bench-flags.ts';
import { openDecodeBytes } from './decode-limit.ts';
import { EngineSubject, type OpenMeasuredEngine } from './engine-subject.ts';
import { wholeNumbersFlag } from './flags.ts';
import { type Comparison, type LatencyRow, measureLatency } from './latency.ts';
import { REFERENCE_BATCH } from './libllama-runner.ts';
import { readBandwidth } from './memory-bandwidth.ts';
import { PeerSubject } from './peer-subject.ts';
import { ServerPeer } from './server-peer.ts';
import { ServerSubject } from './server-subjects.ts';
import { rounded, type Subject } from './subject.ts';
import { formatTable } from './table.ts';

interface LatencyFlags extends BenchFlags, PeerFlags {
  readonly depth: readonly number[];
  readonly promptLen: number;
  readonly genLen: number;
}

export function latencyCommand(openEngine: OpenMeasuredEngine, context: CliContext, exit: Exit): Command {
  const command = new Command('latency')
    .summary('one request at a time: prefill and decode, at some depths of context')
    .description('Prefill and decode of one request at a time, in tokens per second, behind contexts of some depths.')
    .option('--depth <tokens,...>', 'tokens that lie in the KV cache before', wholeNumbersFlag, [0, 2048])
    .option('--prompt-len <tokens>', 'new tokens of a prompt', integerFrom(1), 512)
    .option('--gen-len <tokens>', 'tokens to generate', integerFrom(1), 64);
  addPeerFlags(addBenchFlags(command, 5));
  return addEngineFlags(command).action(async (flags: LatencyFlags) =>
    exit(await untilInterrupted(context, (signal) => measure(openEngine, context, flags, signal))),
  );
}

function measure(
  openEngine: OpenMeasuredEngine,
  context: CliContext,
  flags: LatencyFlags,
  signal: AbortSignal,
): Promise<void> {
  return withEngine(openEngine, benchOptions(flags, context), signal, async (measured) => {
    const peer = await openPeer(flags, measured.engine.model, signal);
    try {
      const ours = new EngineSubject(measured, flags.blockSize, signal);
      const threads = threadsOf(flags);
      const bytesAt = await openDecodeBytes(measured.engine.model.path, flags.kvCacheDtype);
      const before = await readBandwidth(threads, bytesAt(0));
      const measuredRows = await measureLatency(peer === undefined ? [ours] : [ours, peer.subject], {
        depths: flags.depth.toSorted((a, b) => a - b),
        promptLength: flags.promptLen,
        generateLength: flags.genLen,
        repetitions: flags.repetitions,
        onProgress: (text) => context.stderr.write(`${text}\n`),
      });
      // The better of the two: what disturbs a limit only ever makes it smaller.
      const bandwidth = Math.max(before, await readBandwidth(threads, bytesAt(0)));
      const rows = measuredRows.map((row) => ({ ...row, decodeLimit: rounded(bandwidth / bytesAt(row.depth)) }));
      report(context, flags, measured, latencyTable(rows, flags, peer?.subject.name ?? 'peer'), rows);
    } finally {
      peer?.close();
    }
  });
}

export interface LimitedRow extends LatencyRow {
  /** Tokens per second that decoding cannot exceed where memory delivers no faster than it did to `memcmp`. */
  readonly decodeLimit: number;
}

interface OpenedPeer {
  readonly subject: Subject;
  close(): void;
}

async function openPeer(
  flags: LatencyFlags,
  model: { readonly path: string; readonly vocabSize: number },
  signal: AbortSignal,
): Promise<OpenedPeer | undefined> {
  if (flags.peerUrl !== undefined) {
    const subject = new ServerSubject(await ServerPeer.open(flags.peerUrl, signal), model.vocabSize);
    return { subject, close: () => undefined };
  }
  if (flags.peer === 'none') return undefined;
  const contextLength = Math.max(...flags.depth) + flags.promptLen + flags.genLen + 1;
  const reference = openReference(model.path, { contextLength, batch: REFERENCE_BATCH, threads: threadsOf(flags) });
  return { subject: new PeerSubject(reference), close: () => reference.close() };
}

function latencyTable(rows: readonly LimitedRow[], flags: LatencyFlags, peer: string): string {
  const header = ['tok/s', 'depth', 'kvasir', peer, 'ratio', 'limit', 'overhead ms/step'];
  const line = (what: string, depth: number, values: Comparison): string[] => [
    what,
    String(depth),
    cell(values.kvasir),
    cell(values[peer]),
    cell(values.ratio),
  ];
  const lines = rows.flatMap(({ depth, prefill, decode, decodeLimit, overheadMs }) => [
    [...line(`prefill ${flags.promptLen}`, depth, prefill), '', ''],
    [...line(`decode ${flags.genLen}`, depth, decode), cell(decodeLimit), cell(overheadMs)],
  ]);
  return formatTable(header, lines);
}
