/** Documents link to existing files and headings, and the glossary has every public type. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, it } from 'vitest';

const markdownIn = (folder: string): string[] =>
  readdirSync(folder)
    .filter((name) => name.endsWith('.md'))
    .map((name) => join(folder, name));
const documents = ['.', 'docs', 'docs/adr', 'models', 'tools/demo-model', 'bench', 'examples', 'deploy']
  .filter((folder) => existsSync(folder))
  .flatMap(markdownIn);

const textOf = (path: string): string => readFileSync(path, 'utf8').replace(/```[\s\S]*?```/g, '');

/** The anchor that GitHub gives a heading. */
const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
const anchorsOf = (path: string): string[] =>
  [...textOf(path).matchAll(/^#+ (.+)$/gm)].map(([, heading]) => anchorOf(heading!));

it('links between documents lead to existing files and headings', () => {
  const broken: string[] = [];
  let checked = 0;
  for (const document of documents) {
    for (const [, link] of textOf(document).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(link!)) continue;
      checked++;
      const [path = '', anchor] = link!.split('#');
      const target = path === '' ? document : normalize(join(dirname(document), path));
      const isThere = existsSync(target) && (anchor === undefined || anchorsOf(target).includes(anchor));
      if (!isThere) broken.push(`${document}: ${link}`);
    }
  }
  expect(broken).toEqual([]);
  expect(checked).toBeGreaterThan(30);
});

it('the glossary has every type of the entry points and src/core', () => {
  const entryPoints = ['src/index.ts', 'src/connector-api.ts'].map((path) => readFileSync(path, 'utf8')).join('\n');
  const index = entryPoints.replace(/\/\*[\s\S]*?\*\//g, '');
  const exported = [...index.matchAll(/export (?:type )?\{([^}]+)\}/g)].flatMap(
    ([, names]) => names!.match(/\b[A-Z]\w+/g) ?? [],
  );
  const core = readdirSync('src/core')
    .filter((name) => /^[\w-]+\.ts$/.test(name))
    .flatMap((name) => [
      ...readFileSync(join('src/core', name), 'utf8').matchAll(/^export (?:type|interface|class) (\w+)/gm),
    ])
    .map(([, name]) => name!);
  const types = new Set([...exported, ...core]);
  expect(types.size).toBeGreaterThan(80);
  const glossary = readFileSync('docs/glossary.md', 'utf8');
  expect([...types].filter((name) => !glossary.includes(`\`${name}\``))).toEqual([]);
});

it('the glossary names only types that exist', () => {
  const types = readFileSync('docs/glossary.md', 'utf8').split('\n## Types\n')[1]!;
  const named = [...types.matchAll(/^\| (`[^|]+) \|/gm)].flatMap(([, cell]) => cell!.match(/\w+/g) ?? []);
  const sources = readdirSync('src', { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => readFileSync(join('src', path), 'utf8'))
    .join('\n');
  const declared = new Set(
    [...sources.matchAll(/^export (?:abstract )?(?:type|interface|class) (\w+)/gm)].map(([, name]) => name),
  );
  expect(named.length).toBeGreaterThan(80);
  expect(named.filter((name) => !declared.has(name))).toEqual([]);
});

it('the TypeScript in README.md, docs/library.md and docstrings is in examples, which the compiler checks', () => {
  const lines = new Set(
    readdirSync('examples')
      .filter((name) => name.endsWith('.ts'))
      .flatMap((name) => readFileSync(join('examples', name), 'utf8').split('\n'))
      .map((line) => line.trim()),
  );
  const inDocuments = ['README.md', 'docs/library.md'].flatMap((path) =>
    [...readFileSync(path, 'utf8').matchAll(/```ts\n([\s\S]*?)```/g)].flatMap(([, code]) => code!.split('\n')),
  );
  const inDocstrings = readdirSync('src', { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .flatMap((path) => [...readFileSync(join('src', path), 'utf8').matchAll(/^ \* ```ts\n([\s\S]*?)^ \* ```$/gm)])
    .flatMap(([, code]) => code!.split('\n').map((line) => line.replace(/^ \*/, '')));
  expect(inDocuments.length).toBeGreaterThan(60);
  expect(inDocstrings.length).toBeGreaterThan(40);
  expect([...inDocuments, ...inDocstrings].filter((line) => !lines.has(line.trim()))).toEqual([]);
});
