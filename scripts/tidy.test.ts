import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { temporaryFolder } from '../test/support/tiny-model.ts';
import { checkTidiness } from './tidy.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
let serial = 0;

/** The rules that a repository with this file breaks. */
function rulesBrokenBy(file: string, text: string): string[] {
  const root = `repository-${serial++}`;
  for (const path of [`${root}/src/empty.ts`, `${root}/${file}`]) {
    mkdirSync(dirname(folder.file(path)), { recursive: true });
    writeFileSync(folder.file(path), path.endsWith(file) ? text : '');
  }
  return checkTidiness(folder.file(root)).map(({ rule }) => rule);
}

test.each([
  ['src/hub/a.ts', 'await mkdir(dirname(path), { recursive: true });'],
  ['bench/a.ts', 'mkdirSync(folder, { mode: 0o700, recursive: true });'],
  ['src/a.ts', 'await mkdir(\n  dirname(path),\n  {\n    recursive: true },\n);'],
])('%s may not have `%s`, because it never ends for some paths', (file, text) => {
  expect(rulesBrokenBy(file, text)).toEqual([expect.stringContaining('makeFolders')]);
});

test.each([
  ['src/a.ts', 'await mkdir(path);\nawait rm(path, { recursive: true });'],
  ['src/a.ts', 'await makeFolders(path);'],
  ['src/a.test.ts', 'mkdirSync(path, { recursive: true });'],
])('%s may have `%s`', (file, text) => {
  expect(rulesBrokenBy(file, text)).toEqual([]);
});

// In two parts, so that this file keeps the rule.
test.each(['{ skip', '(context) => context.skip'])('a test that skips itself with `%s` is found', (start) => {
  const end = start.startsWith('{') ? ': true }' : '()';
  expect(rulesBrokenBy('src/a.test.ts', `it('a', ${start}${end}, () => {});`)).toEqual([
    expect.stringContaining('only test/support/needs.ts skips tests'),
  ]);
});

test.each([
  ['src/a.ts', 'const sizes = Object.fromEntries(found);', true],
  ['src/a.ts', 'const sizes: Record<string, number> = {};', true],
  ['src/a.ts', 'const all = { ...Object.fromEntries(found), sizes: byEntries(found) };', false],
  ['src/a.test.ts', 'const sizes = Object.fromEntries(found);', false],
])('%s with `%s`: a name from outside can reach a prototype: %s', (file, text, isFound) => {
  expect(rulesBrokenBy(file, text).some((rule) => rule.includes('`byEntries`'))).toBe(isFound);
});
