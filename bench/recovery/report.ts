import { formatTable } from '../../src/base/table.ts';
import { quantile } from '../step-times.ts';
import type { CaseRow } from './case-run.ts';
import { undisturbed } from './faults.ts';

/** The sums of one fault over all its variants. */
export interface FaultSummary {
  readonly fault: string;
  readonly cases: number;
  readonly requests: number;
  readonly textsEqual: number;
  readonly requestsLost: number;
  readonly computedTokens: number;
  readonly overMinimum: number;
  readonly firstTokenMs: { readonly p50: number; readonly p99: number };
  /** The longest time that a client waited for a token. */
  readonly longestWaitMs: number;
  /** The ratio of the p99 to the p99 without a fault. */
  readonly firstTokenRatio: number;
  /** The longest time from the end of the fault to the next load; absent if there was no block to load. */
  readonly secondsUntilLoaded?: number;
}

export function summarize(rows: readonly CaseRow[]): FaultSummary[] {
  const names = [...new Set(rows.map(({ fault }) => fault))];
  const base = percentilesOf(rows.filter(({ fault }) => fault === undisturbed.name)).p99;
  return names.map((fault) => {
    const cases = rows.filter((row) => row.fault === fault);
    const sum = (of: (row: CaseRow) => number): number => cases.reduce((total, row) => total + of(row), 0);
    const firstTokenMs = percentilesOf(cases);
    const waits = cases.flatMap(({ secondsUntilLoaded: seconds }) => (seconds === undefined ? [] : [seconds]));
    return {
      fault,
      cases: cases.length,
      requests: sum(({ requests }) => requests),
      textsEqual: sum(({ textsEqual }) => textsEqual),
      requestsLost: sum(({ requestsLost }) => requestsLost),
      computedTokens: sum(({ computedTokens }) => computedTokens),
      overMinimum: sum(({ overMinimum }) => overMinimum),
      firstTokenMs,
      longestWaitMs: Math.max(...cases.map(({ longestWaitMs }) => longestWaitMs)),
      firstTokenRatio: Math.round((100 * firstTokenMs.p99) / base) / 100,
      ...(waits.length === 0 ? {} : { secondsUntilLoaded: Math.max(...waits) }),
    };
  });
}

function percentilesOf(rows: readonly CaseRow[]): { readonly p50: number; readonly p99: number } {
  const sorted = Float64Array.from(rows.flatMap(({ firstTokenMs }) => firstTokenMs)).sort();
  return { p50: Math.round(quantile(sorted, 0.5)), p99: Math.round(quantile(sorted, 0.99)) };
}

const header = [
  'fault',
  'texts equal',
  'requests lost',
  'tokens computed',
  'over the minimum',
  'p99 TTFT ms',
  'to undisturbed',
  'longest wait ms',
  's until loaded',
] as const;

const cellsOf = (row: FaultSummary): (string | number)[] => [
  row.fault,
  `${row.textsEqual}/${row.requests}`,
  row.requestsLost,
  row.computedTokens,
  row.overMinimum,
  row.firstTokenMs.p99,
  `${row.firstTokenRatio.toFixed(2)}x`,
  row.longestWaitMs,
  row.secondsUntilLoaded ?? '-',
];

export const textTable = (summary: readonly FaultSummary[]): string => formatTable([...header], summary.map(cellsOf));

export function markdownTable(summary: readonly FaultSummary[]): string {
  const line = (cells: readonly (string | number)[]): string => `| ${cells.join(' | ')} |`;
  const rule = line(header.map(() => '---'));
  return [line(header), rule, ...summary.map((row) => line(cellsOf(row)))].join('\n');
}

/** A case that failed: the command's exit code is 1. */
export const isBroken = ({ textsEqual, requests, requestsLost, overMinimum }: CaseRow): boolean =>
  textsEqual !== requests || requestsLost > 0 || overMinimum !== 0;
