/**
 * The table in docs/vllm-tests.md names our tests by file and title. This test checks that each title belongs to a test that
 * `npm test` runs. Vitest lists the titles, so text in comments and strings does not count. It does not check what a test asserts.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it } from 'vitest';

interface Row {
  /** The name of vLLM's test. */
  readonly name: string;
  readonly cells: readonly string[];
  readonly references: readonly { readonly file: string; readonly title: string }[];
}

const rows: readonly Row[] = readFileSync('docs/vllm-tests.md', 'utf8')
  .split('\n')
  .filter((line) => line.startsWith('| ') && !line.startsWith("| vLLM's test"))
  .map((line) => {
    const cells = line.replaceAll('\\|', '/').split(' | ');
    return { name: cells[0]!, cells, references: readReferences(cells.at(-1)!) };
  });

/** `file` "title", "title"; a file applies to all titles up to the next file. */
function readReferences(cell: string): Row['references'] {
  const references: { file: string; title: string }[] = [];
  let file = '';
  for (const [, path, title] of cell.matchAll(/`([\w./-]+\.test\.ts)`|"([^"]+)"/g)) {
    if (path !== undefined) file = path.includes('/') ? path : `src/scheduler/${path}`;
    else references.push({ file, title: title! });
  }
  return references;
}

/** The full titles of all tests in these files, as `suite > test`. */
async function titlesOf(files: readonly string[]): Promise<Map<string, string[]>> {
  const vitest = join('node_modules', 'vitest', 'vitest.mjs');
  const { stdout } = await promisify(execFile)(process.execPath, [
    vitest,
    'list',
    ...files,
    '--static-parse',
    '--json',
  ]);
  const titles = new Map<string, string[]>();
  for (const test of JSON.parse(stdout.slice(stdout.indexOf('['))) as { name: string; file: string }[]) {
    const file = relative(process.cwd(), test.file);
    titles.set(file, [...(titles.get(file) ?? []), test.name]);
  }
  return titles;
}

const isNamed = (titles: readonly string[] | undefined, title: string): boolean =>
  titles?.some((full) => full.startsWith(title) && !/^\w/.test(full.slice(title.length))) ?? false;

describe('the table of vLLM’s tests', () => {
  let titles: Map<string, string[]>;
  beforeAll(async () => {
    titles = await titlesOf([...new Set(rows.flatMap(({ references }) => references.map(({ file }) => file)))]);
  });

  it('has rows of four cells, each with one of our tests', () => {
    expect(rows.length).toBeGreaterThan(30);
    for (const { name, cells, references } of rows) {
      expect(cells, name).toHaveLength(4);
      expect(references, name).not.toEqual([]);
    }
  });

  it('names only tests that exist', () => {
    const missing = rows.flatMap(({ references }) => references.filter((r) => !isNamed(titles.get(r.file), r.title)));
    expect(missing).toEqual([]);
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
    expect(isNamed(titles.get('src/scheduler/vllm-hybrid.test.ts'), title)).toBe(false);
  });
});
