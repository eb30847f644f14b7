/**
 * Writes a table of `kvasir bench recovery` into `docs/performance.md`, between two markers: that of the faults, or that of
 * other programs (`--peer`).
 *
 *   node dist/bench/standard-set/recovery-table.js bench/results/<date>-recovery.json
 *   node dist/bench/standard-set/recovery-table.js bench/results/<date>-peers.json
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { assert } from '../../src/base/assert.ts';
import type { CaseRow } from '../recovery/case-run.ts';
import type { PeerRow } from '../recovery/peers/outcomes.ts';
import { peerMarkdown } from '../recovery/peers/peer-table.ts';
import { markdownTable, summarize } from '../recovery/report.ts';
import type { ResultsFile } from './results-file.ts';

const document = join('docs', 'performance.md');

/** A table of a results file, and its name in the markers. */
export interface Table {
  readonly name: 'fault benchmark' | 'other programs';
  readonly markdown: string;
}

/** The table of the file's runs with other programs, else of its run of all faults. */
export function recoveryTable({ runs }: ResultsFile): Table {
  const withPeers = runs.filter(({ command }) => command.includes(' --peer '));
  if (withPeers.length > 0) {
    const rows = withPeers.flatMap((run) => run.rows as readonly unknown[] as readonly PeerRow[]);
    return { name: 'other programs', markdown: peerMarkdown(rows) };
  }
  const run = runs.find(({ command }) => /^kvasir bench recovery (?!.*--schedules)/.test(command));
  assert(run !== undefined, 'the file has no run of `kvasir bench recovery`');
  const rows = run.rows as readonly unknown[] as readonly CaseRow[];
  return { name: 'fault benchmark', markdown: markdownTable(summarize(rows)) };
}

/** Replaces the table between its markers in the text. */
export function withTable(text: string, { name, markdown }: Table): string {
  const [begin, end] = [`<!-- ${name}: begin -->`, `<!-- ${name}: end -->`];
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  assert(from >= 0 && to > from, 'the text has the markers of the table');
  return `${text.slice(0, from + begin.length)}\n\n${markdown}\n\n${text.slice(to)}`;
}

if (process.argv[1] !== undefined && /recovery-table\.[jt]s$/.test(process.argv[1])) {
  const results = JSON.parse(readFileSync(process.argv[2] ?? '', 'utf8')) as ResultsFile;
  writeFileSync(document, withTable(readFileSync(document, 'utf8'), recoveryTable(results)));
}
