/** Tables in the documents name our tests by file and title. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { promisify } from 'node:util';

export interface TableRow {
  readonly cells: readonly string[];
  /** The tests that the last cell names. */
  readonly references: readonly TestReference[];
}

export interface TestReference {
  readonly file: string;
  readonly title: string;
}

/** The rows of all tables in a document, without those whose first cell is `heading`. Files without a path are in `folder`. */
export function readTableRows(path: string, heading: string, folder: string): TableRow[] {
  return readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('| ') && !line.startsWith(`| ${heading}`) && !line.startsWith('| ---'))
    .map((line) => {
      const cells = line.replaceAll('\\|', '/').split(' | ');
      return { cells, references: readReferences(cells.at(-1)!, folder) };
    });
}

/** `file` "title", "title"; a file applies to all titles up to the next file. */
function readReferences(cell: string, folder: string): TestReference[] {
  const references: TestReference[] = [];
  let file = '';
  for (const [, path, title] of cell.matchAll(/`([\w./-]+\.test\.ts)`|"([^"]+)"/g)) {
    if (path !== undefined) file = /^(src|test|sim)\//.test(path) ? path : `${folder}/${path}`;
    else references.push({ file, title: title! });
  }
  return references;
}

/** By file, the full titles of its tests, as `suite > test`. */
export type Titles = ReadonlyMap<string, readonly string[]>;

/**
 * The titles in all files that the rows name. Vitest lists them, so text in comments and strings does not count. Its start costs more than a
 * second of CPU time.
 */
export async function titlesOfRows(rows: readonly TableRow[]): Promise<Titles> {
  const files = [...new Set(rows.flatMap(({ references }) => references.map(({ file }) => file)))];
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

/** Whether a full title begins with these words. */
export const isNamed = (titles: readonly string[] | undefined, title: string): boolean =>
  titles?.some((full) => full.startsWith(title) && !/^\w/.test(full.slice(title.length))) ?? false;

/** The references to tests that do not exist. */
export const missingTests = (rows: readonly TableRow[], titles: Titles): TestReference[] =>
  rows.flatMap(({ references }) => references).filter(({ file, title }) => !isNamed(titles.get(file), title));
