/** docs/errors.md has exactly the errors of the catalogue, with their messages. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { sourceFiles } from '../scripts/layers.ts';
import type { ErrorDefinition, ErrorFactory } from '../src/base/errors.ts';

interface Entry {
  readonly code: string;
  readonly section: string;
  readonly template: string;
  readonly httpStatus: number;
  readonly retryable: boolean;
  readonly cause: string;
  readonly remedy: string;
}

const guide = readFileSync('docs/errors.md', 'utf8');
const entries: readonly Entry[] = guide.split('\n## ').slice(1).flatMap(readSection);

function readSection(text: string): Entry[] {
  const [title = '', ...parts] = text.split('\n### ');
  const section = title.split('\n')[0]!;
  return parts.map((part) => {
    const match =
      /^(\w+)\n\n> (.+)\n\nStatus (\d+)(, retry)?\. ([\s\S]+?) \*\*Remedy:\*\* ([\s\S]+)$/.exec(part.trim()) ??
      expect.fail(`cannot read the entry "${part.split('\n')[0]}"`);
    const [, code, template, status, retry, cause, remedy] = match;
    return {
      code: code!,
      section,
      template: template!,
      httpStatus: Number(status),
      retryable: retry !== undefined,
      cause: cause!,
      remedy: remedy!,
    };
  });
}

/** All definitions, from an import of each source file that has one. */
async function readCatalogue(): Promise<ErrorDefinition[]> {
  const definitions: ErrorDefinition[] = [];
  for (const file of [...sourceFiles('src'), ...sourceFiles('bench')]) {
    if (/\.(test|fuzz|suite|bench)\.ts$/.test(file) || file.endsWith('base/errors.ts')) continue;
    const count = readFileSync(file, 'utf8').split(/\bdefineError\(/).length - 1;
    if (count === 0) continue;
    const exported = Object.values((await import(`../${file}`)) as Record<string, Partial<ErrorFactory>>);
    const found = exported.flatMap((value) => (value?.definition === undefined ? [] : [value.definition]));
    expect(found, `${file} exports each error that it defines`).toHaveLength(count);
    definitions.push(...found);
  }
  return definitions;
}

test('each code has one definition', async () => {
  const codes = (await readCatalogue()).map(({ code }) => code);
  expect(codes.length).toBeGreaterThan(80);
  expect(codes.filter((code, at) => codes.indexOf(code) !== at)).toEqual([]);
});

test('the guide has the code, the message and the status of each error', async () => {
  const byCode = (a: { code: string }, b: { code: string }): number => (a.code < b.code ? -1 : 1);
  const described = entries.map(({ code, template, httpStatus, retryable }) => ({
    code,
    template,
    httpStatus,
    retryable,
  }));
  expect(described.sort(byCode)).toEqual((await readCatalogue()).sort(byCode));
});

test('the guide has a cause and a remedy for each error', () => {
  for (const { code, cause, remedy } of entries) {
    expect(cause, code).toMatch(/^.{15,}\.$/);
    expect(remedy, code).toMatch(/^.{15,}\.$/);
  }
});

test('the errors of a section are in alphabetical order', () => {
  const places = entries.map(({ section, code }) => ({ section, code }));
  const sections = [...new Set(places.map(({ section }) => section))];
  const sorted = sections.flatMap((section) =>
    places.filter((place) => place.section === section).sort((a, b) => (a.code < b.code ? -1 : 1)),
  );
  expect(places).toEqual(sorted);
});
