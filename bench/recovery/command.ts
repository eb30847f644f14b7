import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { Command, Option } from 'commander';
import { demoModelPath } from '../../src/base/package-files.ts';
import { bytesFlag, integerFrom, numberFlag } from '../../src/cli/args.ts';
import type { CliContext, ExitCode } from '../../src/cli/context.ts';
import { Interruption } from '../../src/cli/interrupt.ts';
import { readModelGroups } from '../../src/cli/proof/model-groups.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { readModelConfig } from '../../src/ggml/model-config.ts';
import { interrupted } from '../errors.ts';
import type { LoadMode } from './case-run.ts';
import { runMatrix } from './matrix.ts';
import { runPeerBench } from './peers/peer-command.ts';
import { type PeerName, peerNames } from './peers/peers.ts';
import { isBroken, markdownTable, summarize, textTable } from './report.ts';
import { runSchedules } from './schedules.ts';
import { type SamplingName, samplingNames } from './workload.ts';

interface RecoveryFlags {
  readonly model?: string;
  readonly threads?: number;
  readonly blockSize: number;
  readonly kvCacheMemory?: number;
  readonly requests: number;
  readonly prefixes: number;
  readonly prefixLen: number;
  readonly promptLen: number;
  readonly genLen: number;
  readonly part: number;
  readonly slowMs: number;
  readonly downSeconds: number;
  readonly seed: number;
  readonly only?: string;
  readonly mode?: LoadMode;
  readonly sampling?: SamplingName;
  readonly ranks?: string;
  readonly schedules?: number;
  readonly encrypt: boolean;
  readonly peer?: PeerName;
  readonly peerPython: string;
  readonly markdown: boolean;
  readonly json: boolean;
}

/** `kvasir bench recovery`: the same requests on servers whose stores and processes fail in many ways. */
export function recoveryCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  return new Command('recovery')
    .summary('one workload while stores and processes fail, one fault after the other')
    .description(
      'Start servers with host memory and a disk tier, damage their files and processes while clients wait, and compare\n' +
        'texts, computed tokens and the time to the first token. The exit code is 1 if a text differs from that of a server without a store.\n' +
        'It is also 1 if a request is lost, or if more tokens are computed than necessary.',
    )
    .option('--model <file>', 'path of a GGUF file (default: the bundled demo model)')
    .option('--threads <n>', 'threads that compute (default: all cores)', integerFrom(1))
    .option('--block-size <tokens>', 'tokens of one KV block', integerFrom(1), 16)
    .option('--kv-cache-memory <bytes>', 'size of the KV pool, like 2GiB', bytesFlag)
    .option(
      '--requests <n>',
      'requests, which arrive at once (with sliding windows or states, one after the other)',
      integerFrom(1, 256),
      12,
    )
    .option('--prefixes <n>', 'number of different shared prefixes', integerFrom(1, 256), 3)
    .option('--prefix-len <tokens>', 'tokens of each shared prefix', integerFrom(0), 512)
    .option('--prompt-len <tokens>', 'tokens of each prompt after the prefix', integerFrom(1), 40)
    .option('--gen-len <tokens>', 'tokens to generate', integerFrom(2), 32)
    .option('--part <p>', 'part of the stored blocks that a fault damages', numberFlag, 0.1)
    .option('--slow-ms <ms>', 'delay of a slow load', integerFrom(1), 200)
    .option('--down-seconds <seconds>', 'time for which a store is down', integerFrom(1), 60)
    .option('--seed <n>', 'seed of the workload and of the faults', integerFrom(0), 1)
    .option('--only <regex>', 'only faults whose name matches')
    .addOption(new Option('--mode <mode>', 'only loads of this kind (default: both)').choices(['sync', 'async']))
    .addOption(new Option('--sampling <kind>', 'only this sampling (default: both)').choices([...samplingNames]))
    .addOption(new Option('--ranks <n>', 'only this number of ranks (default: 1 and 2)').choices(['1', '2']))
    .option('--schedules <n>', 'run this number of random schedules of faults instead of the table', integerFrom(1))
    .option('--encrypt', 'stores have encrypted blocks', false)
    .addOption(
      new Option(
        '--peer <peer>',
        'the same damaged files on another program too, which you install (docs/performance.md)',
      )
        .choices([...peerNames])
        .conflicts(['schedules', 'mode', 'sampling', 'ranks', 'encrypt']),
    )
    .addOption(
      new Option('--peer-python <path>', 'Python of the virtual environment with the peer')
        .env('KVASIR_PEER_PYTHON')
        .default('python3'),
    )
    .option('--markdown', 'print the table in Markdown', false)
    .option('--json', 'print the table on standard error, and one JSON line {"rows":[...]} on standard output', false)
    .action(async (flags: RecoveryFlags) => exit(await run(context, flags)));
}

async function run(context: CliContext, flags: RecoveryFlags): Promise<ExitCode> {
  using interruption = new Interruption(context);
  const folder = await mkdtemp(join(tmpdir(), 'kvasir-bench-recovery-'));
  try {
    return await measure(context, flags, folder, interruption.signal);
  } catch (error) {
    if (interruption.signal.aborted) return interruption.exitCode;
    throw error;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function measure(
  context: CliContext,
  flags: RecoveryFlags,
  folder: string,
  signal: AbortSignal,
): Promise<ExitCode> {
  const model = flags.model ?? demoModelPath();
  const { vocabSize } = readModelConfig(await readGguf(model));
  const groups = await readModelGroups(model, flags.blockSize);
  const workload = {
    seed: flags.seed,
    requests: flags.requests,
    prefixes: flags.prefixes,
    prefixLength: flags.prefixLen,
    promptLength: flags.promptLen,
    generateLength: flags.genLen,
    vocabSize,
  };
  const { peer } = flags;
  if (peer !== undefined) {
    const bench = { model, groups, workload, serverArgs: serverArgsOf(flags), folder };
    return runPeerBench(context, { ...flags, peer }, bench, signal);
  }
  const options = {
    workload,
    faults: { part: Math.min(1, Math.max(0, flags.part)), slowMs: flags.slowMs, downSeconds: flags.downSeconds },
    groups,
    serverArgs: [model, ...serverArgsOf(flags)],
    storeArgs: flags.encrypt ? await encryptionArgs(folder) : [],
    folder,
    modes: flags.mode === undefined ? (['sync', 'async'] as const) : [flags.mode],
    ranks: flags.ranks === undefined ? ([1, 2] as const) : [flags.ranks === '1' ? (1 as const) : (2 as const)],
    onProgress: (text: string) => {
      if (signal.aborted) throw interrupted();
      context.stderr.write(`${text}\n`);
    },
  };
  if (flags.schedules !== undefined) {
    const outcome = await runSchedules({ ...options, schedules: flags.schedules, seed: flags.seed }, signal);
    context.stdout.write(`${JSON.stringify({ rows: [outcome] })}\n`);
    return outcome.textsEqual === outcome.requests && outcome.requestsLost === 0 ? 0 : 1;
  }
  const rows = await runMatrix(
    {
      ...options,
      samplings: flags.sampling === undefined ? samplingNames : [flags.sampling],
      ...(flags.only === undefined ? {} : { only: new RegExp(flags.only) }),
    },
    signal,
  );
  const summary = summarize(rows);
  const table = flags.markdown ? `${markdownTable(summary)}\n` : textTable(summary);
  (flags.json ? context.stderr : context.stdout).write(
    `\n${titleOf(model, flags, groups.length > 1)}\n\n${table}\n${notes}`,
  );
  if (flags.json) context.stdout.write(`${JSON.stringify({ rows })}\n`);
  return rows.some(isBroken) ? 1 : 0;
}

function serverArgsOf({ threads, blockSize, kvCacheMemory, requests }: RecoveryFlags): string[] {
  return [
    '--block-size',
    String(blockSize),
    '--max-num-seqs',
    String(Math.max(requests, 16)),
    ...(threads === undefined ? [] : ['--threads', String(threads)]),
    ...(kvCacheMemory === undefined ? [] : ['--kv-cache-memory', String(kvCacheMemory)]),
  ];
}

async function encryptionArgs(folder: string): Promise<readonly string[]> {
  const file = join(folder, 'kv.key');
  await writeFile(file, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600 });
  return ['--kv-transfer-key-file', file, '--kv-transfer-encrypt'];
}

function titleOf(model: string, flags: RecoveryFlags, isSequential: boolean): string {
  const { requests, prefixes, prefixLen, promptLen, genLen, seed, part } = flags;
  return (
    `${basename(model)}, ${flags.threads ?? availableParallelism()} threads, seed ${seed}: ${requests} requests ${isSequential ? 'one after the other' : 'at once'} ` +
    `with ${prefixes} prefixes, ${prefixLen} + ${promptLen} -> ${genLen} tokens; faults damage ${part * 100} % of the stored blocks`
  );
}

const notes =
  'Texts equal: text, token ids and logprobs equal those of a server without a store. The minimum is counted outside the\n' +
  'engine, from prompts and missing blocks. With a hung system call, blocks whose load the engine gave up are missing too,\n' +
  'at a deadline or because a circuit breaker was open. For loads given up: the computed tokens of such blocks that were\n' +
  'not damaged. If a worker is killed or stopped, the minimum is a bound from the tokens that clients have received.\n' +
  'Longest wait: of any client for any token. Until loaded: from the end of the fault to the next load, including\n' +
  'cool-downs of circuit breakers.\n' +
  'Slow loads are injected. All other faults are real: files, FIFOs, a full file system, signals. A killed server is\n' +
  'restarted and clients send their requests again; their time to the first token includes the restart.\n';
