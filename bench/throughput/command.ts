import { Command } from 'commander';
import { formatTable } from '../../src/base/table.ts';
import { addEngineFlags, integerFrom, oneOf } from '../../src/cli/args.ts';
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
import { countsFlag } from '../flags.ts';
import { RandomTokens } from '../random-tokens.ts';
import { EngineSubject, type OpenMeasuredEngine } from '../subject/engine-subject.ts';
import { openPeer } from '../subject/open-peer.ts';
import { type WorkloadLengths, type WorkloadName, workloadNames, workloadShape } from '../subject/workload.ts';
import { openBestLibllama } from './best-libllama.ts';
import { measureThroughput, type ThroughputRow } from './throughput.ts';

interface ThroughputFlags extends BenchFlags, PeerFlags {
  readonly requests: readonly number[];
  readonly workload: WorkloadName;
  readonly prefixLen?: number;
  readonly promptLen?: number;
  readonly genLen?: number;
  readonly turns?: number;
}

export function throughputCommand(openEngine: OpenMeasuredEngine, context: CliContext, exit: Exit): Command {
  const command = new Command('throughput')
    .summary('many requests at once: shared prefixes, lengths as in ShareGPT, conversations')
    .description('Measure many requests that arrive at once: tokens per second, and the waiting times of the clients.')
    .option('--requests <n,...>', 'requests that arrive at once; a row for each number', countsFlag, [16])
    .addOption(
      oneOf(
        '--workload <name>',
        'shared-prefix: prompts with a shared prefix; independent: prompts without; sharegpt: lengths as in that data' +
          ' set; multi-turn: conversations, in which each prompt has all earlier turns',
        workloadNames,
        'shared-prefix',
      ),
    )
    .option('--prefix-len <tokens>', 'length of the shared prefix (default: by workload)', integerFrom(0))
    .option('--prompt-len <tokens>', "new tokens of each turn's prompt (default: by workload)", integerFrom(1))
    .option('--gen-len <tokens>', 'tokens to generate in each turn (default: by workload)', integerFrom(1))
    .option('--turns <n>', 'turns of each conversation (default: by workload)', integerFrom(1));
  addPeerFlags(addBenchFlags(command, 3));
  return addEngineFlags(command).action(async (flags: ThroughputFlags) =>
    exit(await untilInterrupted(context, (signal) => measure(openEngine, context, flags, signal))),
  );
}

function measure(
  openEngine: OpenMeasuredEngine,
  context: CliContext,
  flags: ThroughputFlags,
  signal: AbortSignal,
): Promise<void> {
  return withEngine(openEngine, benchOptions(flags, context), signal, async (measured) => {
    const { model } = measured.engine;
    const random = new RandomTokens(Date.now(), model.vocabSize);
    const rows: ThroughputRow[] = [];
    const onProgress = (text: string): void => void context.stderr.write(`${text}\n`);
    for (const requests of flags.requests) {
      const shape = workloadShape(flags.workload, requests, lengthsOf(flags));
      const ours = new EngineSubject(measured, requests, signal);
      const peer = await openPeer(flags, { engine: measured.engine, batch: requests, signal }, () =>
        openBestLibllama(shape, {
          ...{ path: model.path, threads: threadsOf(flags), device: deviceOf(flags), random, signal, onProgress },
        }),
      );
      try {
        const { workload, repetitions } = flags;
        const subjects = peer === undefined ? [ours] : [ours, peer.subject];
        rows.push(await measureThroughput(subjects, shape, random, { workload, repetitions, onProgress }));
      } finally {
        peer?.close();
      }
    }
    report(context, flags, measured, { table: throughputTable(rows), rows });
  });
}

function lengthsOf({ prefixLen, promptLen, genLen, turns }: ThroughputFlags): WorkloadLengths {
  return {
    ...(prefixLen === undefined ? {} : { prefixLength: prefixLen }),
    ...(promptLen === undefined ? {} : { promptLength: promptLen }),
    ...(genLen === undefined ? {} : { generateLength: genLen }),
    ...(turns === undefined ? {} : { turns }),
  };
}

/** Five lines for each row: rates, the total time, and the waiting times of the clients. */
function throughputTable(rows: readonly ThroughputRow[]): string {
  const peer = Object.keys(rows[0]?.firstTokenMs ?? {})[1] ?? 'peer';
  const lines = rows.flatMap((row) => {
    const name = `${row.workload}, ${row.requests} requests`;
    const ms = (of: 'firstTokenMs' | 'betweenTokensMs', subject: string): string => {
      const found = row[of][subject];
      return found === undefined ? '-' : `${found.p50} / ${found.p99}`;
    };
    const compared = (what: string, values: ThroughputRow['total']): string[] => [
      `${name}: ${what}`,
      cell(values.kvasir),
      cell(values[peer]),
      cell(values.ratio),
    ];
    return [
      compared('generated tok/s', row.throughput),
      compared('prompt + generated tok/s', row.total),
      compared('last token s', row.lastTokenSeconds),
      [`${name}: first token ms, p50 / p99`, ms('firstTokenMs', 'kvasir'), ms('firstTokenMs', peer), ''],
      [`${name}: between tokens ms, p50 / p99`, ms('betweenTokensMs', 'kvasir'), ms('betweenTokensMs', peer), ''],
    ];
  });
  return formatTable(['', 'kvasir', peer, 'ratio'], lines);
}
