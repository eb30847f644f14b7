import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { benchCommand } from '../src/cli/bench/command.ts';
import type { CliContext } from '../src/cli/context.ts';
import { runCli } from '../src/cli/run-cli.ts';
import { plotSvg } from './plot-svg.ts';
import { comparedFigures, type ResultsFile } from './results-file.ts';
import { standardSet } from './standard-set.ts';

const read = (path: string): ResultsFile => JSON.parse(readFileSync(path, 'utf8')) as ResultsFile;
const readme = readFileSync('README.md', 'utf8');
const quoted = /`(bench\/results\/[\w-]+\.json)`/.exec(readme)![1]!;

it('README quotes a results file as it is, and shows its plot', () => {
  const figures = comparedFigures(read(quoted));
  const rows = [...readme.matchAll(/^\| ([^|]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$/gm)];
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
  expect(readme).toContain('](docs/performance.svg)');
  expect(readFileSync('docs/performance.svg', 'utf8')).toBe(plotSvg(read(quoted)));
});

it('every results file says where and what with', () => {
  for (const name of readdirSync('bench/results')) {
    const file = read(`bench/results/${name}`);
    expect(file.machine).not.toBe('');
    expect(file.commit).toMatch(/^[0-9a-f]{7,}$/);
    expect(Object.keys(file.versions)).toEqual(expect.arrayContaining(['node', 'ggml', 'package', 'cc']));
    for (const { command, rows } of file.runs) {
      expect(command).toMatch(/^kvasir bench \w+/);
      expect(rows.length).toBeGreaterThan(0);
    }
  }
});

it('a plot has a bar for each figure that stands beside libllama, and a line at 1', () => {
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
  const bars = [...svg.matchAll(/<rect x="(\d+)" y="\d+" width="([\d.]+)"/g)];
  const [from, longest] = [Number(bars[0]![1]), Number(bars[0]![2])];
  expect(bars.map(([, , width]) => Number(width) / longest)).toEqual([1, 0.25]);
  expect(svg).toContain(`<line x1="${from + longest / 2}"`);
  expect(svg).toContain('A&lt;B, prompt of 8 behind 64 tokens');
  expect(svg).toContain('Q, 8 requests as in ShareGPT');
});

it('the standard set is what the command understands', async () => {
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
    // The scheduler's bench needs no engine.
    const quick = args[0] === 'scheduler' ? ['--help'] : ['--threads', '1'];
    await runCli(['bench', ...args, ...quick, '--json'], context, [benchCommand(openEngine)]);
    expect(err, args.join(' ')).toMatch(args[0] === 'scheduler' ? /^$/ : /no engine here/);
  }
});
