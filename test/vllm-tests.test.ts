/**
 * The table in docs/vllm-tests.md names our tests by file and title. This test checks that each title belongs to a test that
 * `npm test` runs. It does not check what a test asserts.
 */
import { beforeAll, describe, expect, it } from 'vitest';
import { isNamed, missingTests, readTableRows, type Titles, titlesOfRows } from './support/named-tests.ts';

const rows = readTableRows('docs/vllm-tests.md', "vLLM's test", 'sim/scheduler').map((row) => ({
  ...row,
  /** The name of vLLM's test. */
  name: row.cells[0]!,
}));

describe('the table of vLLM’s tests', () => {
  let titles: Titles;
  beforeAll(async () => {
    titles = await titlesOfRows(rows);
  });

  it('has rows of four cells, each with one of our tests', () => {
    expect(rows.length).toBeGreaterThan(30);
    for (const { name, cells, references } of rows) {
      expect(cells, name).toHaveLength(4);
      expect(references, name).not.toEqual([]);
    }
  });

  it('names only tests that exist', () => {
    expect(missingTests(rows, titles)).toEqual([]);
  });

  it('has the name of the vLLM test in the title of our test', () => {
    for (const { name, references } of rows) {
      const [word] = name.match(/\b[a-z]+(_[a-z]+)+\b/) ?? [];
      if (word !== undefined)
        expect(
          references.some(({ title }) => title.includes(word)),
          name,
        ).toBe(true);
    }
  });

  it('rejects titles that are cut within a word, and tests of another file', () => {
    const [{ file, title } = { file: '', title: '' }] = rows[0]!.references;
    expect(isNamed(titles.get(file), title)).toBe(true);
    expect(isNamed(titles.get(file), title.slice(0, -1))).toBe(false);
    expect(isNamed(titles.get('sim/scheduler/vllm-hybrid.test.ts'), title)).toBe(false);
  });
});
