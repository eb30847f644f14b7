import { expect, it } from 'vitest';
import type { CaseRow } from './case-run.ts';
import { isBroken, markdownTable, summarize, textTable } from './report.ts';

const row = (fault: string, fields: Partial<CaseRow> = {}): CaseRow => ({
  fault,
  mode: 'async',
  sampling: 'greedy',
  ranks: 1,
  requests: 2,
  textsEqual: 2,
  requestsLost: 0,
  computedTokens: 100,
  minimumTokens: 100,
  overMinimum: 0,
  firstTokenMs: [10, 20],
  longestWaitMs: 20,
  ...fields,
});

/** The cells of a Markdown table, by fault and by column. */
function cellsOf(table: string): Record<string, Record<string, string>> {
  const [header, , ...lines] = table.split('\n').map((line) => line.slice(2, -2).split(' | '));
  return Object.fromEntries(
    lines.map((cells) => [cells[0], Object.fromEntries(cells.map((cell, i) => [header![i], cell]))]),
  );
}

it('the table shows the tokens of loads that were given up beside the tokens over the minimum', () => {
  const rows = [
    row('none', { givenUpTokens: 0 }),
    row('hung syscall', { givenUpTokens: 30 }),
    row('hung syscall', { givenUpTokens: 12, ranks: 2 }),
  ];
  const summary = summarize(rows);
  expect(cellsOf(markdownTable(summary))).toMatchObject({
    none: { 'over the minimum': '0', 'for loads given up': '0' },
    'hung syscall': { 'tokens computed': '200', 'over the minimum': '0', 'for loads given up': '42' },
  });
  expect(textTable(summary)).toContain('for loads given up');
  expect(rows.some(isBroken)).toBe(false);
});

it('a table of results without these tokens does not have the column', () => {
  const summary = summarize([row('none'), row('hung syscall')]);
  expect(markdownTable(summary)).not.toContain('given up');
  expect(textTable(summary)).not.toContain('given up');
});

it('a fault whose cases do not all have these tokens has no sum of them', () => {
  const summary = summarize([row('none', { givenUpTokens: 0 }), row('slow', { givenUpTokens: 5 }), row('slow')]);
  expect(cellsOf(markdownTable(summary))).toMatchObject({ slow: { 'for loads given up': '-' } });
});

it('the time between tokens is the median of the cases, and results without it have no column', () => {
  const times = [4, 9, 5].map((betweenTokensP99Ms) => row('slow', { betweenTokensP99Ms }));
  const summary = summarize([row('none', { betweenTokensP99Ms: 3 }), ...times]);
  expect(cellsOf(markdownTable(summary))).toMatchObject({
    none: { 'p99 between tokens ms': '3.0' },
    slow: { 'p99 between tokens ms': '5.0' },
  });
  expect(textTable(summarize([row('none')]))).not.toContain('between tokens');
});
