/** Documents link to existing files and headings, name what exists, and the glossary has every public type. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';
import { flagsByCommand } from './support/commands.ts';
import { needs } from './support/needs.ts';

const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0;

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

describe('the names in documents exist', () => {
  const read = (path: string): string => readFileSync(path, 'utf8');
  const guides = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', ...markdownIn('docs')];
  const sourcesOf = (...folders: string[]): string =>
    folders
      .flatMap((folder) => readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((path) => join(folder, path)))
      .filter((path) => /(?<!\.test)\.(ts|js)$/.test(path))
      .map(read)
      .join('\n');
  /** `document: name` for each name that a pattern finds in a document and that does not exist. */
  const unknownIn = (pattern: RegExp, exists: (name: string) => boolean): string[] =>
    guides.flatMap((guide) =>
      [...new Set(Array.from(read(guide).matchAll(pattern), ([, name]) => name!))]
        .filter((name) => !exists(name))
        .map((name) => `${guide}: ${name}`),
    );

  it('metrics', () => {
    const known = new Set([...read('docs/metrics.md').matchAll(/^\| `(\S+)` \|/gm)].map(([, name]) => name!));
    expect(known.size).toBeGreaterThan(60);
    // `test/metrics.test.ts` compares docs/metrics.md with a live server. A name that ends with `_` stands for several.
    const declared = sourcesOf('src/server');
    const exists = (name: string): boolean =>
      known.has(name) ||
      declared.includes(`'${name}'`) ||
      known.has(name.replace(/_(bucket|sum|count)$/, '')) ||
      (name.endsWith('_') && [...known].some((metric) => metric.startsWith(name)));
    expect(unknownIn(/\b((?:vllm|kvasir):[a-z][a-z0-9]*_[a-z0-9_]+)/g, exists)).toEqual([]);
  });

  const commands = flagsByCommand();

  it('commands and their flags', () => {
    const wrong: string[] = [];
    let checked = 0;
    for (const guide of guides)
      for (const [, line = ''] of read(guide)
        .replaceAll('\\\n', ' ')
        .matchAll(/(?<![\w./-]|SETUSER )kvasir ([a-z]+(?!:)\b[^\n`|#]*)/g)) {
        // Prose such as "kvasir needs" is no command; a command in prose is between backticks, which end the match.
        const words = line.split(/\s+/);
        const name = commands.has(words.slice(0, 2).join(' ')) ? words.slice(0, 2).join(' ') : words[0]!;
        const flags = line.match(/(?<=^|\s)--[a-z][a-z-]*/g) ?? [];
        const known = commands.get(name);
        checked++;
        if (known === undefined) wrong.push(`${guide}: kvasir ${line}`);
        else wrong.push(...flags.filter((flag) => !known.has(flag)).map((flag) => `${guide}: kvasir ${name} ${flag}`));
      }
    expect(wrong).toEqual([]);
    expect(checked).toBeGreaterThan(80);
  });

  it('flags that are named alone, and those of scripts', () => {
    const ofCommands = new Set([...commands.values()].flatMap((flags) => [...flags]));
    const sources = sourcesOf('scripts', 'examples');
    const ofOtherPrograms =
      'allow-all appendonly build-arg cap-drop cpu-prof from-file from-literal init maxmemory maxmemory-policy merge previous ' +
      'read-only remove-metadata rm save security-opt global system group version kv-connector tools no-show-model-warnings';
    const others = new Set(ofOtherPrograms.split(' ').map((name) => `--${name}`));
    const exists = (flag: string): boolean =>
      ofCommands.has(flag) ||
      others.has(flag) ||
      sources.includes(`'${flag}'`) ||
      new RegExp(`\\b${flag.slice(2)}'?: \\{ type:`).test(sources);
    expect(unknownIn(/(?<![\w-])(--[a-z][a-z0-9-]*[a-z0-9])/g, exists)).toEqual([]);
  });

  it('scripts of npm, files and environment variables', () => {
    const { scripts } = JSON.parse(read('package.json')) as { readonly scripts: Readonly<Record<string, string>> };
    expect(unknownIn(/npm run ([a-z][\w:-]*)(?=[\s`)])/g, (name) => name in scripts || name === 'in')).toEqual([]);
    // A built file has a source.
    const built = (path: string): boolean => existsSync(path.replace(/\.js$/, '.ts')) || existsSync(path);
    expect(unknownIn(/dist\/((?:src|bench|examples|scripts|sim)\/[\w./-]+\.js)/g, built)).toEqual([]);
    const inCode =
      /`((?:src|bench|sim|scripts|test|tools|deploy|examples|models)\/[\w./-]+\.(?:ts|js|c|h|json|yaml|gguf|md))`/g;
    expect(unknownIn(inCode, (path) => existsSync(path) || existsSync(join('src', path)))).toEqual([]);
    const used =
      sourcesOf('src', 'bench', 'sim', 'scripts', 'test', 'tools') +
      read('test/prebuilt-bits.test.ts') +
      read('.ci/run');
    const isRead = (name: string): boolean => used.includes(name);
    expect(unknownIn(/(?<!code )\b(KVASIR_[A-Z_]+[A-Z])\b/g, isRead)).toEqual([]);
  });

  it('routes', () => {
    const declared = sourcesOf('src/server', 'examples');
    const routes = new Set([...declared.matchAll(/'(\/[\w/:.*-]+)'/g)].map(([, path]) => path!.replace(/:\w+/g, ':')));
    // `/cache` is a volume of a container, and `/v1/traces` an endpoint of other servers.
    const others = ['/cache', '/v1/traces', '/v1'];
    const exists = (path: string): boolean =>
      others.includes(path) || routes.has(path.replace(/\{\w+\}|<\w+>/g, ':').replace(/\/$/, ''));
    const pattern =
      /(?:`|(?:GET|POST|DELETE) |localhost:\d+|127\.0\.0\.1:\d+)(\/(?:v1|api|cache|health|tiers|metrics|load|ping|version|kv_events?|kv_event_sources|props|infill|tokenize|detokenize|reset_prefix_cache|openapi)[\w/{}<>.-]*)/g;
    expect(unknownIn(pattern, exists)).toEqual([]);
  });

  it('the unit of systemd is right, and docs/serving.md shows it', needs(hasSystemd, 'no systemd-analyze'), () => {
    const unit = read('deploy/systemd/kvasir.service');
    expect(read('docs/serving.md')).toContain(`\`\`\`ini\n${unit}\`\`\``);
    const folder = mkdtempSync(join(tmpdir(), 'kvasir-unit-'));
    const path = join(folder, 'kvasir.service');
    // The command is not installed here.
    writeFileSync(path, unit.replace(/^ExecStart=\S+/m, 'ExecStart=/bin/true'));
    const { status, stderr } = spawnSync('systemd-analyze', ['verify', path], { encoding: 'utf8' });
    rmSync(folder, { recursive: true });
    const about = stderr.split('\n').filter((line) => line.includes('kvasir.service'));
    expect({ status, about }).toEqual({ status: 0, about: [] });
  });
});
