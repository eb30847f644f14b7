/** The table in docs/tier-faults.md names our tests by file and title: each title belongs to a test that `npm test` runs. */
import { expect, it } from 'vitest';
import { missingTests, readTableRows, titlesOfRows } from './support/named-tests.ts';

const rows = readTableRows('docs/tier-faults.md', 'fault', 'src/connector');

it('the table of faults has rows of four cells, each with one of our tests', () => {
  expect(rows.length).toBeGreaterThan(15);
  for (const { cells, references } of rows) {
    expect(cells, cells[0]).toHaveLength(4);
    expect(references, cells[0]).not.toEqual([]);
  }
});

it('the table of faults names only tests that exist', async () => {
  expect(missingTests(rows, await titlesOfRows(rows))).toEqual([]);
});
