/**
 * Draws a results file: bars of the ratio to libllama.
 *
 *   npm run bench:plot -- bench/results/2026-11-20.json docs/performance.svg
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { plotSvg } from './plot-svg.ts';
import type { ResultsFile } from './results-file.ts';

const [from, to] = process.argv.slice(2);
if (from === undefined || to === undefined) {
  console.error('usage: plot <results.json> <picture.svg>');
  process.exitCode = 2;
} else {
  writeFileSync(to, plotSvg(JSON.parse(readFileSync(from, 'utf8')) as ResultsFile));
  console.log(`wrote ${to}`);
}
