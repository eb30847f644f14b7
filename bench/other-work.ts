import { availableParallelism, cpus, loadavg } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { readCpuTimes } from '../src/base/idle-cpus.ts';
import { processes } from '../src/base/processes.ts';
import type { CliContext, TextSink } from '../src/cli/context.ts';

/** CPU time since the start of the machine, in ticks. */
export interface CpuUse {
  /** Of all CPUs, also while they were idle. */
  readonly total: number;
  readonly busy: number;
  /** Of this process and those that it has started. */
  readonly ours: number;
}

/** Ticks are 10 ms, so a shorter time says little. */
const windowMs = 250;
/** Other work below this has less effect than the noise of the figures. */
const otherCpusMin = 0.25;

/**
 * Warns if other work uses the machine while a bench runs: before it, and between two lines of progress whose measurement was disturbed.
 * Only on Linux. A server of `--peer-url` works for the bench and is no child of it, so then only the first warning is possible.
 *
 * @returns The context for the subcommands of `bench`
 */
export function warnOfOtherWork(bench: Command, context: CliContext, read: () => CpuUse = readCpuUse): CliContext {
  if (process.platform !== 'linux') return context;
  let last: CpuUse | undefined;
  let [parts, disturbed] = [0, 0];
  const check = (): void => {
    if (last === undefined) return;
    const now = read();
    // The ticks of a shorter time count for the next line.
    if (now.total - last.total < (windowMs / 10) * cpus().length) return;
    const others = otherCpus(last, now);
    last = now;
    parts += 1;
    if (others < otherCpusMin) return;
    disturbed += 1;
    context.stderr.write(`  busy: other work used ${share(others)} between these lines\n`);
  };
  // Commands use their context when they run.
  const checked = (name: 'stdout' | 'stderr'): TextSink => ({
    get isTTY() {
      return context[name].isTTY === true;
    },
    write: (text) => {
      if (text.endsWith('\n')) check();
      return context[name].write(text);
    },
  });
  bench.hook('preAction', async (_, command) => {
    const before = read();
    await sleep(windowMs);
    const now = read();
    const others = otherCpus(before, now);
    if (others >= otherCpusMin)
      context.stderr.write(
        `warning: the machine is busy: other work uses ${share(others)} (load ${loadavg()[0]?.toFixed(1)}). Times, speeds and their ratios are doubtful.\n`,
      );
    last = command.opts<{ peerUrl?: string }>().peerUrl === undefined ? now : undefined;
  });
  bench.hook('postAction', () => {
    if (disturbed > 0)
      context.stderr.write(
        `warning: other work used the machine in ${disturbed} of ${parts} parts of this run, each with a line "busy" above. Times, speeds and ratios of these parts are doubtful, and medians of them. Counts and comparisons of texts are not.\n`,
      );
  });
  return { ...context, stdout: checked('stdout'), stderr: checked('stderr') };
}

const share = (others: number): string => `${others.toFixed(1)} of ${availableParallelism()} CPUs`;

/** How many CPUs other programs used on average, and other virtual machines that took time from this one. */
export function otherCpus(before: CpuUse, after: CpuUse): number {
  const total = after.total - before.total;
  const others = after.busy - before.busy - (after.ours - before.ours);
  return total > 0 ? (Math.max(0, others) / total) * cpus().length : 0;
}

export function readCpuUse(): CpuUse {
  const { total, idle } = readCpuTimes();
  const all = processes();
  const ours = new Set([process.pid]);
  // A child may have a lower number than its parent.
  for (let size = 0; size < ours.size; ) {
    size = ours.size;
    for (const { id, parent } of all) if (ours.has(parent)) ours.add(id);
  }
  const ticks = all.reduce((sum, { id, ticks }) => sum + (ours.has(id) ? ticks : 0), 0);
  return { total, busy: total - idle, ours: ticks };
}
