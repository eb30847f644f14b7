import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import type { CliContext } from '../../src/cli/context.ts';
import { runCli } from '../../src/cli/run-cli.ts';
import { benchCommand } from '../command.ts';
import { describeCpu } from './machine.ts';
import { plotSvg } from './plot-svg.ts';
import { recoveryTable, withTable } from './recovery-table.ts';
import { comparedFigures, newestResults, type ResultsFile, withRun } from './results-file.ts';
import { chosenBenches, commandOf, standardSet } from './standard-set.ts';

const read = (path: string): ResultsFile => JSON.parse(readFileSync(path, 'utf8')) as ResultsFile;
const document = readFileSync('docs/performance.md', 'utf8');
const quoted = /`(bench\/results\/[\d-]+\.json)`/.exec(document)![1]!;

it('docs/performance.md has the figures of a results file, and its plot', () => {
  const figures = comparedFigures(read(quoted));
  const rows = [...document.matchAll(/^\| ([^|]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$/gm)];
  expect(rows.length).toBeGreaterThan(3);
  for (const [row, label, ours, theirs, ratio] of rows) {
    const figure = figures.find((one) => one.label === label);
    expect(figure, row).toBeDefined();
    const shown = (value: number, as: string): string => value.toFixed(as.split('.')[1]?.length ?? 0);
    expect([shown(figure!.ours, ours!), shown(figure!.theirs, theirs!), shown(figure!.ratio, ratio!)], row).toEqual([
      ours,
      theirs,
      ratio,
    ]);
  }
  expect(document).toContain('](performance.svg)');
  expect(readFileSync('docs/performance.svg', 'utf8')).toBe(plotSvg(read(quoted)));
});

it.each(['recovery', 'peers'])('docs/performance.md has the table of the fault benchmark: %s', (name) => {
  const results = new RegExp(`\`(bench/results/[\\w-]+-${name}\\.json)\``).exec(document)![1]!;
  expect(withTable(document, recoveryTable(read(results)))).toBe(document);
});

it('every results file has a machine, a commit, versions and rows', () => {
  for (const name of readdirSync('bench/results')) {
    const file = read(`bench/results/${name}`);
    expect(file.machine).not.toBe('');
    expect(file.commit).toMatch(/^[0-9a-f]{7,}$/);
    expect(Object.keys(file.versions)).toEqual(expect.arrayContaining(['node', 'ggml', 'package', 'cc']));
    for (const { command, rows } of file.runs) {
      // Random schedules of faults are a test.
      expect(command).toMatch(/^(kvasir bench \w+|([A-Z_]+=\S+ )+npx vitest run test\/recovery-schedules\.test\.ts)/);
      expect(rows.length).toBeGreaterThan(0);
    }
  }
});

it('a plot has a bar for each figure with a figure of libllama, and a line at 1', () => {
  const results: ResultsFile = {
    ...read(quoted),
    runs: [
      {
        command: 'kvasir bench latency --model A<B.gguf --prompt-len 8',
        rows: [{ depth: 64, prefill: { kvasir: 4, libllama: 2, ratio: 2 }, decode: { kvasir: 3 } }],
      },
      {
        command: 'kvasir bench throughput --model Q.gguf',
        rows: [{ workload: 'sharegpt', requests: 8, throughput: { kvasir: 1, libllama: 2, ratio: 0.5 } }],
      },
      {
        command: 'kvasir bench latency --model Q.gguf --numerics fast',
        rows: [{ depth: 0, decode: { kvasir: 9, libllama: 3, ratio: 3 } }],
      },
    ],
  };
  const svg = plotSvg(results);
  const bars = [...svg.matchAll(/<rect class="(w\d)" x="(\d+)" y="[\d.]+" width="([\d.]+)" height="11"\/>/g)];
  // The first two are in the legend.
  const [first, second] = bars.slice(2);
  expect(bars).toHaveLength(4);
  const [from, longest] = [Number(first![2]), Number(first![3])];
  expect(Number(second![3]) / longest).toBe(0.25);
  expect(svg).toContain(`<line class="one" x1="${from + longest / 2}"`);
  // Each type of weights has a colour, and each measured quantity a label.
  expect([first![1], second![1]]).toEqual(['w0', 'w1']);
  expect(svg).toMatch(/>A&lt;B<.*>Q<.*>prompt of 8 after a context of 64 tokens<.*>8 requests as in ShareGPT</s);
});

it('a plot has one label for a quantity that was measured on several types of weights', () => {
  const row = { depth: 0, batch: 8, decode: { kvasir: 4, libllama: 2, ratio: 2 } };
  const runs = ['A', 'B'].map((name) => ({ command: `kvasir bench latency --model ${name}.gguf`, rows: [row] }));
  expect(plotSvg({ ...read(quoted), runs }).match(/decode of 8 at once/g)).toHaveLength(1);
});

it('a run replaces an earlier run of the same command, and names its commit if it differs', () => {
  const piece = (command: string, depth: number) => ({ command, rows: [{ depth }] });
  const empty: ResultsFile = { ...read(quoted), commit: 'abcdef0', runs: [] };
  const both = withRun(withRun(empty, 'abcdef0', piece('a', 1)), 'abcdef0', piece('b', 2));
  expect(both.runs).toEqual([piece('a', 1), piece('b', 2)]);
  expect(withRun(both, '1234567', piece('a', 3)).runs).toEqual([
    { ...piece('a', 3), commit: '1234567' },
    piece('b', 2),
  ]);
});

it('the newest file is found by date and number', () => {
  const names = ['2026-11-20-2.json', '2026-11-09.json', '2026-11-20-10.json', '2026-11-20.json', 'notes.json'];
  expect(newestResults(names)).toBe('2026-11-20-10.json');
  expect(newestResults([])).toBeUndefined();
});

it('a CPU is described by its name, its family and the instruction sets that select kernels', () => {
  const details = 'cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2 avx512f avx512_vnni\n';
  expect(describeCpu('AMD EPYC', details)).toBe('AMD EPYC (family 26 model 2; AVX2, AVX-512, VNNI)');
  expect(describeCpu('arm', 'Features\t: fp asimddp i8mm\n')).toBe('arm (dot products, I8MM)');
  expect(describeCpu('Apple M4', '')).toBe('Apple M4');
});

it('a part of the set is chosen by numbers or by a regular expression', () => {
  const commands = (only: string) => chosenBenches(standardSet, only, '2').map((bench) => commandOf(bench, '2'));
  expect(commands('')).toHaveLength(standardSet.length);
  expect(new Set(commands('')).size).toBe(standardSet.length);
  expect(commands('2,4-5')).toEqual([1, 3, 4].map((i) => commandOf(standardSet[i]!, '2')));
  const deep = commands('latency.*8192.*Q4_K_M');
  expect(deep).toEqual([expect.stringMatching(/^kvasir bench latency .*--threads 2 --model Q4_K_M\.gguf --json$/)]);
  expect(commands('no such bench')).toEqual([]);
});

it('the standard set measures both types of weights', () => {
  for (const model of ['Q8_0', 'Q4_K_M']) {
    for (const pattern of [
      '--depth 0,2048,8192 .*libllama',
      '--batch 8 ',
      'independent --requests 1,8',
      'shared-prefix',
    ]) {
      expect(chosenBenches(standardSet, `${pattern}.*${model}`, '2'), `${pattern} ${model}`).toHaveLength(1);
    }
  }
});

it('the command accepts the arguments of the standard set', async () => {
  let err = '';
  const context = {
    version: '0',
    stdout: { write: () => undefined },
    stderr: { write: (text: string) => (err += text) },
    signals: process,
  } as unknown as CliContext;
  const openEngine = () => Promise.reject(new Error('no engine here'));
  for (const { args } of standardSet) {
    err = '';
    // These benches open no engine in this process.
    const opensNone = ['tiers', 'scheduler', 'recovery'].includes(args[0] ?? '');
    const quick = opensNone ? ['--help'] : ['--threads', '1'];
    await runCli(['bench', ...args, ...quick, '--json'], context, [benchCommand(openEngine)]);
    expect(err, args.join(' ')).toMatch(opensNone ? /^$/ : /no engine here/);
  }
});
