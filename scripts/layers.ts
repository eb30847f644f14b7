/**
 * Imports go down only. This file holds the layers as data, and a program checks them (`npm run check`).
 * Peers do not import each other, except the pairs that `allowed` names. Tests may import peers and `test`.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, normalize, relative, sep } from 'node:path';

/** Folders of `src` by their name there, and folders beside `src`. */
const ranks: Readonly<Record<string, number>> = {
  base: 0,
  core: 1,
  jinja: 1,
  tokenizer: 2,
  ggml: 2,
  native: 2,
  kv: 2,
  connector: 2,
  runner: 2,
  hub: 2,
  grammar: 2,
  tools: 2,
  scheduler: 3,
  templates: 3,
  worker: 4,
  sim: 5,
  engine: 5,
  server: 6,
  'ai-sdk': 6,
  cli: 6,
  bench: 7,
  scripts: 8,
  examples: 9,
  test: 9,
};
/** Floors of `src/server`. Files at its top are the composition: `routes.ts` is the list of what the folders have. */
const floors: Readonly<Record<string, number>> = {
  http: 0,
  generation: 1,
  openapi: 2,
  'apis/openai': 3,
  'apis/anthropic': 4,
  'apis/llama-server': 4,
  'apis/ollama': 4,
  'apis/responses': 4,
  metrics: 4,
  operator: 4,
  '': 5,
  models: 6,
};
const foldersBesideSrc = ['bench', 'sim', 'scripts'];

/** Imports between peers that are allowed, and downward imports that are forbidden. */
const allowed = new Set([
  'native -> ggml',
  'runner -> native',
  'runner -> ggml',
  'tokenizer -> ggml',
  'tools -> grammar',
  'cli -> server',
]);
const forbidden = new Map<string, string>([
  ['scheduler -> runner', 'the scheduler sees the kv facade and connector types only'],
  ['scheduler -> ggml', 'the scheduler sees the kv facade and connector types only'],
  ['scheduler -> grammar', 'the scheduler sees `core/constraint.ts` only'],
  ['scheduler -> tokenizer', 'the scheduler knows tokens, not text'],
  ['engine -> ggml', 'the engine reaches the model through an executor'],
  ['engine -> sim', 'only `kvasir sim` runs the simulator'],
  ['server -> sim', 'only `kvasir sim` runs the simulator'],
]);
/** They run a connector in a whole engine, and each connector's test beside it runs them. */
const suitesWithEngine = new Set(['connector-harness.suite.ts', 'connector.suite.ts']);
/** Folders that must stay synchronous and pure. */
const pure = new Set(['kv', 'scheduler']);
/** Folders that load when their command is called: `kvasir --version` needs none of them. */
const lazy = new Set(['bench', 'sim']);

export interface Violation {
  readonly file: string;
  readonly imported: string;
  readonly rule: string;
}

export function checkLayers(root: string): Violation[] {
  const files = ['src', ...foldersBesideSrc].flatMap((folder) => sourceFiles(join(root, folder)));
  return files.flatMap((path) => {
    const file = relative(root, path);
    const text = stripComments(readFileSync(path, 'utf8'));
    return violationsOf(file, text).map((violation) => ({ file, ...violation }));
  });
}

/** `file` is relative to the repository. */
function violationsOf(file: string, text: string): Omit<Violation, 'file'>[] {
  const layer = layerOf(file);
  const folderOf = (imported: string): string => layerOf(normalize(join(dirname(file), imported)));
  if (/\.(test|fuzz|suite|bench)\.ts$/.test(file))
    return importsOf(text).flatMap(({ imported }) =>
      imported.startsWith('.') && !suitesWithEngine.has(basename(file)) && goesUp(layer, folderOf(imported))
        ? [{ imported, rule: `${layer} -> ${folderOf(imported)}: a test that needs ${folderOf(imported)} is there` }]
        : [],
    );
  const violations = importsOf(text).flatMap(({ imported, isStatic }) => {
    const rule = imported.startsWith('.')
      ? (brokenRule(layer, folderOf(imported), isStatic) ?? brokenFloor(file, imported))
      : pure.has(layer)
        ? `${layer} is pure: it imports nothing from outside`
        : undefined;
    return rule === undefined ? [] : [{ imported, rule }];
  });
  if (pure.has(layer) && /\b(async|await|Promise|Date\.now|Math\.random|performance)\b/.test(text)) {
    violations.push({ imported: '', rule: `${layer} is synchronous: no async, clock or random numbers` });
  }
  return violations;
}

/** Whether a test's import goes up. Roots and the tests' support are above all folders. */
const goesUp = (from: string, to: string): boolean =>
  from !== '' && to !== '' && to !== 'test' && (ranks[to] ?? -1) > (ranks[from] ?? -1);

/** The rule that an import breaks, if any. */
function brokenRule(from: string, to: string, isStatic: boolean): string | undefined {
  if (from === to) return undefined;
  if (to === 'test') return 'only tests import test support';
  if (from === '')
    return isStatic && lazy.has(to) ? `the roots load ${to} by import(), when its command is called` : undefined;
  if (to === '')
    return 'only the roots (main, worker-main, compose, compose-pipeline, compose-rank, llm, ai-sdk, index) import the roots';
  const edge = `${from} -> ${to}`;
  const reason = forbidden.get(edge);
  if (reason !== undefined) return reason;
  const [fromRank, toRank] = [ranks[from] ?? -1, ranks[to] ?? -1];
  if (toRank > fromRank) return `${edge}: imports go down only`;
  return toRank === fromRank && !allowed.has(edge) ? `${edge}: peers do not import each other` : undefined;
}

/** The floor of a file of `src/server`, by its folder there. */
function floorOf(file: string): string | undefined {
  const [top, server, ...rest] = file.split(sep);
  if (top !== 'src' || server !== 'server') return undefined;
  const folders = rest.slice(0, -1);
  return folders[0] === 'apis' ? folders.slice(0, 2).join('/') : (folders[0] ?? '');
}

/** The rule that an import inside of `src/server` breaks, if any. */
function brokenFloor(file: string, imported: string): string | undefined {
  const [from, to] = [floorOf(file), floorOf(normalize(join(dirname(file), imported)))];
  if (from === undefined || to === undefined || from === to) return undefined;
  const edge = `server/${from} -> server/${to}`;
  const [fromFloor, toFloor] = [floors[from] ?? -1, floors[to] ?? -1];
  if (toFloor > fromFloor) return `${edge}: imports go down only`;
  return toFloor === fromFloor ? `${edge}: peers do not import each other` : undefined;
}

/** The folder beside `src`, or the first folder below it; '' for files at the top of `src`. */
function layerOf(file: string): string {
  const [top = '', folder = '', ...rest] = file.split(sep);
  if (top !== 'src') return top;
  return rest.length > 0 ? folder : '';
}

function importsOf(text: string): { readonly imported: string; readonly isStatic: boolean }[] {
  const imports = text.matchAll(
    /(?:^|\n)\s*(?:import|export)\s[^'";]*?from\s*['"]([^'"]+)['"]|import\(\s*['"]([^'"]+)['"]\s*\)/g,
  );
  return [...imports].map(([, from, called]) => ({ imported: from ?? called ?? '', isStatic: from !== undefined }));
}

function stripComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '$1');
}

export function sourceFiles(folder: string, endings: readonly string[] = ['.ts']): string[] {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && endings.some((ending) => entry.name.endsWith(ending)))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

if (process.argv[1] !== undefined && /layers\.[jt]s$/.test(process.argv[1])) {
  const violations = checkLayers(process.cwd());
  for (const { file, imported, rule } of violations)
    console.error(`${file}: ${imported ? `imports ${imported}: ` : ''}${rule}`);
  console.log(`layers: ${violations.length} violations`);
  process.exitCode = violations.length === 0 ? 0 : 1;
}
