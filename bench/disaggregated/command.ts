import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { Command } from 'commander';
import { demoModelPath } from '../../src/base/package-files.ts';
import { formatTable } from '../../src/base/table.ts';
import { integerFrom } from '../../src/cli/args.ts';
import type { CliContext } from '../../src/cli/context.ts';
import { ServerProcess } from '../../src/cli/proof/server-process.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { readModelConfig } from '../../src/ggml/model-config.ts';
import { type Exit, untilInterrupted } from '../bench-flags.ts';
import { type InteractiveOptions, type InteractiveRow, measureInteractive } from '../interactive/interactive.ts';
import { type Streamer, serverStreamer } from '../interactive/streamer.ts';
import { RandomTokens } from '../random-tokens.ts';
import { ServerPeer } from '../subject/server-peer.ts';

interface DisaggregatedFlags {
  readonly model?: string;
  readonly kvTier?: string;
  readonly kvCacheMemory?: string;
  readonly threads: number;
  readonly prompts: number;
  readonly promptLen: number;
  readonly streamPromptLen: number;
  readonly genLen: number;
  readonly repetitions: number;
  readonly json: boolean;
}

/** The short prompt behind a long one, which `measureInteractive` measures too. */
const shortLength = 32;

/** `kvasir bench disaggregated`: a stream beside prompts, on one server and on a prefill and a decode server. */
export function disaggregatedCommand(context: CliContext, exit: Exit): Command {
  return new Command('disaggregated')
    .summary('the time between tokens of a stream while prompts arrive: one server, or a prefill and a decode server')
    .description(
      'Measure the time between two tokens of a stream, alone and while long prompts arrive. One server with the threads of both, with\n' +
        '--target-inter-token-latency and without a limit, and two servers with --threads each take turns: one computes the prompts, the\n' +
        'other one loads their KV from the tier and decodes.',
    )
    .option('--model <file>', 'path of a GGUF file (default: the bundled demo model)')
    .option(
      '--kv-tier <tier>',
      'where the servers meet: disk:/path, redis://host:6379 or s3://bucket/prefix (default: a temporary folder)',
    )
    .option('--kv-cache-memory <size>', 'memory of the KV pool of each server, as for kvasir serve')
    .option('--threads <n>', 'compute threads of each of the two servers', integerFrom(1), 1)
    .option('--prompts <n>', 'long prompts that arrive one after the other', integerFrom(1), 2)
    .option('--prompt-len <tokens>', 'tokens of each long prompt', integerFrom(1), 2048)
    .option('--stream-prompt-len <tokens>', "tokens of the stream's prompt", integerFrom(1), 64)
    .option('--gen-len <tokens>', 'tokens of the stream before the first prompt arrives', integerFrom(2), 64)
    .option('--repetitions <n>', 'number of measurements; the table has the medians', integerFrom(1), 3)
    .option('--json', 'print the table on standard error, and one JSON line {"rows":[...]} on standard output', false)
    .action(async (flags: DisaggregatedFlags) =>
      exit(await untilInterrupted(context, (signal) => measure(context, flags, signal))),
    );
}

async function measure(context: CliContext, flags: DisaggregatedFlags, signal: AbortSignal): Promise<void> {
  const model = flags.model ?? demoModelPath();
  const { vocabSize, contextLength } = readModelConfig(await readGguf(model));
  const folder = await mkdtemp(join(tmpdir(), 'kvasir-bench-'));
  const servers: ServerProcess[] = [];
  const start = async (threads: number, ...args: string[]): Promise<ServerPeer> => {
    const memory = flags.kvCacheMemory === undefined ? [] : ['--kv-cache-memory', flags.kvCacheMemory];
    const server = await ServerProcess.start([model, '--threads', `${threads}`, ...memory, ...args], signal);
    servers.push(server);
    return await ServerPeer.open(server.origin, undefined, signal);
  };
  const tiers = ['--kv-tier', 'host:256MiB', '--kv-tier', flags.kvTier ?? `disk:${folder}`];
  const both = 2 * flags.threads;
  try {
    const streamers: Streamer[] = [
      { ...serverStreamer(await start(both)), name: `one server, ${both} threads` },
      {
        ...serverStreamer(await start(both, '--target-inter-token-latency', '0')),
        name: `one server, ${both} threads, no limit`,
      },
      disaggregatedStreamer(
        `prefill and decode server, ${flags.threads} thread${flags.threads === 1 ? '' : 's'} each`,
        await start(flags.threads, ...tiers),
        await start(flags.threads, ...tiers),
      ),
    ];
    const random = new RandomTokens(Date.now(), vocabSize);
    const rows = await measureInteractive(streamers, random, lengthsOf(flags, contextLength, context), signal);
    const title = `${basename(model)}, medians of ${flags.repetitions}`;
    (flags.json ? context.stderr : context.stdout).write(`\n${title}\n\n${tableOf(rows)}\n`);
    if (flags.json) context.stdout.write(`${JSON.stringify({ rows })}\n`);
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
    await rm(folder, { recursive: true, force: true });
  }
}

function lengthsOf(flags: DisaggregatedFlags, contextLength: number, context: CliContext): InteractiveOptions {
  const { prompts, promptLen: promptLength, genLen: aloneLength, streamPromptLen: streamPromptLength } = flags;
  return {
    ...{ prompts, promptLength, aloneLength, streamPromptLength, shortLength, repetitions: flags.repetitions },
    // A token of the stream takes longer than a token of a prompt.
    streamTokensMax: Math.min(contextLength - streamPromptLength, aloneLength + prompts * promptLength),
    onProgress: (text) => context.stderr.write(`${text}\n`),
  };
}

function tableOf(rows: readonly InteractiveRow[]): string {
  return formatTable(
    ['ms between tokens', 'alone', 'beside prompts p50', 'p99', 'max', 'prompt tok/s', 'short prompt alone', 'behind'],
    rows.map(({ name, aloneMs, besideMs, promptTokensPerSecond, shortMs }) => [
      ...[name, aloneMs, besideMs.p50, besideMs.p99, besideMs.max],
      ...[promptTokensPerSecond, shortMs.alone, shortMs.behind],
    ]),
  );
}

/** As a router sends a request: the prompt to one server, and then the request with its answer to the other. */
function disaggregatedStreamer(name: string, prefill: ServerPeer, decode: ServerPeer): Streamer {
  return {
    name,
    async *stream(prompt, maxTokens) {
      let transfer: unknown;
      const remote = { do_remote_decode: true, do_remote_prefill: false };
      for await (const { kvTransferParams } of prefill.complete(prompt, 1, remote)) transfer ??= kvTransferParams;
      for await (const { tokens } of decode.complete(prompt, maxTokens, transfer))
        if (tokens.length > 0) yield tokens.length;
    },
  };
}
