/**
 * Draws a results file as bars of the ratio to libllama.
 *
 *   npm run bench:plot                                              the newest file, for docs/performance.md
 *   npm run bench:plot -- bench/results/2026-11-20.json plot.svg
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { plotSvg } from './plot-svg.ts';
import { newestResults, type ResultsFile } from './results-file.ts';

const folder = join('bench', 'results');
const newest = newestResults(readdirSync(folder));
const [from = newest === undefined ? undefined : join(folder, newest), to = join('docs', 'performance.svg')] =
  process.argv.slice(2);
if (from === undefined) {
  console.error(`nothing to draw: ${folder} is empty`);
  process.exitCode = 1;
} else {
  writeFileSync(to, plotSvg(JSON.parse(readFileSync(from, 'utf8')) as ResultsFile));
  console.log(`drew ${from} as ${to}`);
}
