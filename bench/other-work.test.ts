import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpus } from 'node:os';
import { Readable } from 'node:stream';
import { Command } from 'commander';
import { describe, expect, it, onTestFinished } from 'vitest';
import { parseStat } from '../src/base/processes.ts';
import type { CliContext } from '../src/cli/context.ts';
import { needs } from '../test/support/needs.ts';
import { type CpuUse, otherCpus, readCpuUse, warnOfOtherWork } from './other-work.ts';

/** Runs a bench with two measurements of ten seconds. `others`: how many CPUs other work uses before, during the start, and during each. */
async function run(others: readonly number[], ...flags: string[]): Promise<string> {
  let err = '';
  const given: CliContext = {
    version: '0',
    createEngine: () => Promise.reject(new Error('no engine')),
    stdout: { write: (text) => (err += text) },
    stderr: { write: (text) => (err += text) },
    stdin: Readable.from([]),
    signals: process,
    exitNow: () => undefined,
  };
  const count = cpus().length;
  let now: CpuUse = { total: 0, busy: 0, ours: 0 };
  const left = [...others];
  const read = (): CpuUse => {
    const before = now;
    const used = 1000 * (left.shift() ?? 0);
    now = { total: now.total + 1000 * count, busy: now.busy + 300 + used, ours: now.ours + 300 };
    return before;
  };
  const bench = new Command('bench');
  const context = warnOfOtherWork(bench, given, read);
  bench.addCommand(
    new Command('speed').option('--peer-url <url>').action(() => {
      for (const name of ['one', 'two']) context.stderr.write(`${name}\n`);
      context.stdout.write('table\n');
    }),
  );
  await bench.parseAsync(['speed', ...flags], { from: 'user' });
  return err;
}

describe('a bench on a busy machine', needs(process.platform === 'linux', 'only Linux has /proc'), () => {
  it('prints nothing if other work is less than a quarter of a CPU', async () => {
    expect(await run([0.1, 0.2, 0, 0.2])).toBe('one\ntwo\ntable\n');
  });

  it('warns before, and marks the measurements that other work has disturbed', async () => {
    const lines = (await run([1.5, 0, 0.1, 1.2])).split('\n');
    expect(lines[0]).toMatch(/^warning: the machine is busy: other work uses 1\.5 of \d+ CPUs \(load .*doubtful\.$/);
    expect(lines.slice(1, 3)).toEqual(['one', 'two']);
    expect(lines[3]).toMatch(/^ {2}busy: other work used 1\.2 of \d+ CPUs between these lines$/);
    expect(lines[4]).toBe('table');
    expect(lines[5]).toMatch(/^warning: other work used the machine in 1 of 3 parts of this run/);
  });

  it('does not take the server of --peer-url for other work', async () => {
    expect(await run([0, 1.5, 1.5, 1.5], '--peer-url', 'http://127.0.0.1:8080')).toBe('one\ntwo\ntable\n');
  });

  it.each([
    ['this process alone', { total: 200, busy: 100, ours: 100 }, 0],
    ['clocks that differ by a tick', { total: 200, busy: 99, ours: 100 }, 0],
    ['half of the machine', { total: 200, busy: 150, ours: 50 }, 0.5 * cpus().length],
  ])('counts the work of %s', (_, after, expected) => {
    expect(otherCpus({ total: 0, busy: 0, ours: 0 }, after)).toBeCloseTo(expected);
  });

  it('counts child processes as its own work, while they run and after their end', async () => {
    const before = readCpuUse().ours;
    const burn = "while (process.cpuUsage().user < 3e5); console.log('done'); process.stdin.on('data', process.exit)";
    const child = spawn(process.execPath, ['--eval', burn], { stdio: ['pipe', 'pipe', 'ignore'] });
    onTestFinished(() => void child.kill());
    await once(child.stdout, 'data');
    expect(readCpuUse().ours - before).toBeGreaterThanOrEqual(25);
    child.stdin.write('end');
    await once(child, 'exit');
    expect(readCpuUse().ours - before).toBeGreaterThanOrEqual(25);
  });

  it('reads the CPU time of a process whose name has spaces and parentheses', () => {
    const text = '7 (a (b) c) S 3 7 7 0 -1 4194304 99 0 0 0 11 12 13 14 20 0 1 0';
    expect(parseStat(7, text)).toEqual({ id: 7, parent: 3, state: 'S', ticks: 50 });
  });
});
