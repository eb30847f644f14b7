import { formatTable } from '../../src/base/table.ts';
import { median } from '../statistics.ts';
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
  /** Absent if a row lacks it, as in older results. */
  readonly givenUpTokens?: number;
  readonly firstTokenMs: { readonly p50: number; readonly p99: number };
  /** The longest time that a client waited for a token. */
  readonly longestWaitMs: number;
  /** The median of the cases' 99th percentiles of the time between two tokens. Absent if a row lacks it, as in older results. */
  readonly betweenTokensP99Ms?: number;
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
    const givenUp = cases.flatMap(({ givenUpTokens: tokens }) => (tokens === undefined ? [] : [tokens]));
    const betweenTokens = cases.flatMap(({ betweenTokensP99Ms: ms }) => (ms === undefined ? [] : [ms]));
    const waits = cases.flatMap(({ secondsUntilLoaded: seconds }) => (seconds === undefined ? [] : [seconds]));
    return {
      fault,
      cases: cases.length,
      requests: sum(({ requests }) => requests),
      textsEqual: sum(({ textsEqual }) => textsEqual),
      requestsLost: sum(({ requestsLost }) => requestsLost),
      computedTokens: sum(({ computedTokens }) => computedTokens),
      overMinimum: sum(({ overMinimum }) => overMinimum),
      ...(givenUp.length < cases.length ? {} : { givenUpTokens: givenUp.reduce((total, tokens) => total + tokens, 0) }),
      firstTokenMs,
      longestWaitMs: Math.max(...cases.map(({ longestWaitMs }) => longestWaitMs)),
      ...(betweenTokens.length < cases.length ? {} : { betweenTokensP99Ms: median(betweenTokens) }),
      firstTokenRatio: Math.round((100 * firstTokenMs.p99) / base) / 100,
      ...(waits.length === 0 ? {} : { secondsUntilLoaded: Math.max(...waits) }),
    };
  });
}

function percentilesOf(rows: readonly CaseRow[]): { readonly p50: number; readonly p99: number } {
  const sorted = Float64Array.from(rows.flatMap(({ firstTokenMs }) => firstTokenMs)).sort();
  return { p50: Math.round(quantile(sorted, 0.5)), p99: Math.round(quantile(sorted, 0.99)) };
}

const givenUpTitle = 'for loads given up';
const betweenTokensTitle = 'p99 between tokens ms';
const columns: readonly (readonly [title: string, cell: (row: FaultSummary) => string | number])[] = [
  ['fault', ({ fault }) => fault],
  ['texts equal', ({ textsEqual, requests }) => `${textsEqual}/${requests}`],
  ['requests lost', ({ requestsLost }) => requestsLost],
  ['tokens computed', ({ computedTokens }) => computedTokens],
  ['over the minimum', ({ overMinimum }) => overMinimum],
  [givenUpTitle, ({ givenUpTokens }) => givenUpTokens ?? '-'],
  ['p99 TTFT ms', ({ firstTokenMs }) => firstTokenMs.p99],
  ['to undisturbed', ({ firstTokenRatio }) => `${firstTokenRatio.toFixed(2)}x`],
  [betweenTokensTitle, ({ betweenTokensP99Ms: ms }) => ms?.toFixed(1) ?? '-'],
  ['longest wait ms', ({ longestWaitMs }) => longestWaitMs],
  ['s until loaded', ({ secondsUntilLoaded }) => secondsUntilLoaded ?? '-'],
];

/** Tables of older results lack the columns that their cases did not measure. */
function columnsFor(summary: readonly FaultSummary[]): typeof columns {
  const unknown = new Set<string>();
  if (summary.every(({ givenUpTokens }) => givenUpTokens === undefined)) unknown.add(givenUpTitle);
  if (summary.every(({ betweenTokensP99Ms }) => betweenTokensP99Ms === undefined)) unknown.add(betweenTokensTitle);
  return columns.filter(([title]) => !unknown.has(title));
}

function cellsOf(summary: readonly FaultSummary[]): { header: string[]; rows: (string | number)[][] } {
  const shown = columnsFor(summary);
  return { header: shown.map(([title]) => title), rows: summary.map((row) => shown.map(([, cell]) => cell(row))) };
}

export function textTable(summary: readonly FaultSummary[]): string {
  const { header, rows } = cellsOf(summary);
  return formatTable(header, rows);
}

export function markdownTable(summary: readonly FaultSummary[]): string {
  const line = (cells: readonly (string | number)[]): string => `| ${cells.join(' | ')} |`;
  const { header, rows } = cellsOf(summary);
  return [line(header), line(header.map(() => '---')), ...rows.map(line)].join('\n');
}

/** A case that failed: the command's exit code is 1. */
export const isBroken = ({ textsEqual, requests, requestsLost, overMinimum }: CaseRow): boolean =>
  textsEqual !== requests || requestsLost > 0 || overMinimum !== 0;
