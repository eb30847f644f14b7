/**
 * Writes the table of `kvasir bench recovery` into `docs/performance.md`, between two markers.
 *
 *   node dist/bench/standard-set/recovery-table.js bench/results/<date>-recovery.json
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { assert } from '../../src/base/assert.ts';
import type { CaseRow } from '../recovery/case-run.ts';
import { markdownTable, summarize } from '../recovery/report.ts';
import type { ResultsFile } from './results-file.ts';

const document = join('docs', 'performance.md');
const [begin, end] = ['<!-- fault benchmark: begin -->', '<!-- fault benchmark: end -->'];

/** The table of the file's run of all faults. */
export function recoveryTable({ runs }: ResultsFile): string {
  const run = runs.find(({ command }) => /^kvasir bench recovery (?!.*--schedules)/.test(command));
  assert(run !== undefined, 'the file has no run of `kvasir bench recovery`');
  return markdownTable(summarize(run.rows as readonly unknown[] as readonly CaseRow[]));
}

/** Replaces the table between the markers in the text. */
export function withTable(text: string, table: string): string {
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  assert(from >= 0 && to > from, 'the text has the markers of the table');
  return `${text.slice(0, from + begin.length)}\n\n${table}\n\n${text.slice(to)}`;
}

if (process.argv[1] !== undefined && /recovery-table\.[jt]s$/.test(process.argv[1])) {
  const results = JSON.parse(readFileSync(process.argv[2] ?? '', 'utf8')) as ResultsFile;
  writeFileSync(document, withTable(readFileSync(document, 'utf8'), recoveryTable(results)));
}
