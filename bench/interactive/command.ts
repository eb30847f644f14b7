import { Command } from 'commander';
import { formatTable } from '../../src/base/table.ts';
import { addEngineFlags, integerFrom } from '../../src/cli/args.ts';
import type { CliContext } from '../../src/cli/context.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import {
  addBenchFlags,
  addPeerFlags,
  type BenchFlags,
  benchOptions,
  deviceOf,
  type Exit,
  type PeerFlags,
  report,
  threadsOf,
  untilInterrupted,
  withEngine,
} from '../bench-flags.ts';
import { RandomTokens } from '../random-tokens.ts';
import { rounded } from '../statistics.ts';
import type { OpenMeasuredEngine } from '../subject/engine-subject.ts';
import { REFERENCE_BATCH } from '../subject/libllama-conversations.ts';
import { openReference } from '../subject/llama-reference.ts';
import { plainToken } from '../subject/plain-token.ts';
import { ServerPeer } from '../subject/server-peer.ts';
import { type InteractiveOptions, type InteractiveRow, measureInteractive } from './interactive.ts';
import { LibllamaStreamer } from './libllama-streamer.ts';
import { engineStreamer, type Streamer, serverStreamer } from './streamer.ts';

interface InteractiveFlags extends BenchFlags, PeerFlags {
  readonly prompts: number;
  readonly promptLen: number;
  readonly shortLen: number;
  readonly streamPromptLen: number;
  readonly genLen: number;
}

export function interactiveCommand(openEngine: OpenMeasuredEngine, context: CliContext, exit: Exit): Command {
  const command = new Command('interactive')
    .summary('the time between tokens of a stream, and the first token of short prompts, while long prompts arrive')
    .description(
      'Measure the time between tokens of a stream, alone and while long prompts arrive, and the time to the first token of a short' +
        ' prompt behind a long one. Kvasir runs with --target-inter-token-latency and without a limit in turn.',
    )
    .option('--prompts <n>', 'long prompts that arrive one after the other', integerFrom(1), 2)
    .option('--prompt-len <tokens>', 'tokens of each long prompt', integerFrom(1), 4096)
    .option('--short-len <tokens>', 'tokens of the short prompt', integerFrom(1), 64)
    .option('--stream-prompt-len <tokens>', "tokens of the stream's prompt", integerFrom(1), 64)
    .option(
      '--gen-len <tokens>',
      'tokens of the stream before the first prompt arrives and after the last one',
      integerFrom(2),
      64,
    );
  return addEngineFlags(addPeerFlags(addBenchFlags(command, 3), 'several')).action(async (flags: InteractiveFlags) =>
    exit(await untilInterrupted(context, (signal) => measure(openEngine, context, flags, signal))),
  );
}

function measure(
  openEngine: OpenMeasuredEngine,
  context: CliContext,
  flags: InteractiveFlags,
  signal: AbortSignal,
): Promise<void> {
  const options = benchOptions(flags, context);
  const unlimited = { ...options, targetInterTokenLatency: 0 };
  return withEngine(openEngine, options, signal, (limited) =>
    withEngine(openEngine, unlimited, signal, async ({ engine }) => {
      const random = new RandomTokens(Date.now(), engine.model.vocabSize);
      const lengths = lengthsOf(flags, engine, context);
      const peers = await openStreamPeers(flags, { engine, random, lengths, signal });
      try {
        const ours = [
          engineStreamer(`kvasir, ${flags.targetInterTokenLatency}`, limited.engine, signal),
          engineStreamer('kvasir, no limit', engine, signal),
        ];
        const rows = await measureInteractive([...ours, ...peers.streamers], random, lengths, signal);
        report(context, flags, limited, { table: interactiveTable(rows), rows });
      } finally {
        peers.close();
      }
    }),
  );
}

function lengthsOf(flags: InteractiveFlags, { model }: AsyncEngine, context: CliContext): InteractiveOptions {
  const { prompts, promptLen: promptLength, genLen: aloneLength, streamPromptLen: streamPromptLength } = flags;
  return {
    streamPromptLength,
    aloneLength,
    prompts,
    promptLength,
    shortLength: flags.shortLen,
    // A step beside a prompt has at least 4 of its tokens.
    streamTokensMax: Math.min(model.maxModelLen - streamPromptLength, 2 * aloneLength + prompts * promptLength),
    repetitions: flags.repetitions,
    onProgress: (text) => context.stderr.write(`${text}\n`),
  };
}

interface StreamPeerOptions {
  readonly engine: AsyncEngine;
  readonly random: RandomTokens;
  readonly lengths: InteractiveOptions;
  readonly signal: AbortSignal;
}

interface StreamPeers {
  readonly streamers: readonly Streamer[];
  close(): void;
}

/** The server, libllama, both or none. */
async function openStreamPeers(
  flags: InteractiveFlags,
  { engine, random, lengths, signal }: StreamPeerOptions,
): Promise<StreamPeers> {
  const streamers: Streamer[] = [];
  if (flags.peerUrl !== undefined)
    streamers.push(serverStreamer(await ServerPeer.open(flags.peerUrl, plainToken(engine), signal)));
  if (flags.peer === 'none') return { streamers, close: () => undefined };
  const { streamPromptLength, streamTokensMax, promptLength, shortLength } = lengths;
  const reference = openReference(engine.model.path, {
    contextLength: streamPromptLength + streamTokensMax + promptLength + shortLength + SEQUENCES,
    batch: REFERENCE_BATCH,
    threads: threadsOf(flags),
    device: deviceOf(flags),
    sequences: SEQUENCES,
    keepsAllTokens: false,
  });
  streamers.push(new LibllamaStreamer(reference, SEQUENCES, random));
  return { streamers, close: () => reference.close() };
}

/** Requests that are open at once: the stream and a long prompt, or a long prompt and a short one. */
const SEQUENCES = 2;

function interactiveTable(rows: readonly InteractiveRow[]): string {
  const unlimited = rows[1]!.promptTokensPerSecond;
  return formatTable(
    [
      'ms',
      'alone p50',
      'p99',
      'beside p50',
      'p99',
      'max',
      'p99 / alone p50',
      'prompt tok/s',
      'of no limit',
      'short alone',
      'short behind',
    ],
    rows.map(({ name, aloneMs, aloneP99Ms, besideMs, ratio, promptTokensPerSecond, shortMs }) => [
      name,
      aloneMs,
      aloneP99Ms,
      besideMs.p50,
      besideMs.p99,
      besideMs.max,
      ratio,
      promptTokensPerSecond,
      rounded(promptTokensPerSecond / unlimited),
      shortMs.alone,
      shortMs.behind,
    ]),
  );
}
