/**
 * Imports go down only. This file is the map of the house; a program checks it (`npm run check`).
 * Peers do not import each other, but for the pairs that `allowed` names.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative, sep } from 'node:path';

const ranks: Readonly<Record<string, number>> = {
  base: 0,
  core: 1,
  tokenizer: 2,
  ggml: 2,
  native: 2,
  kv: 2,
  connector: 2,
  runner: 2,
  scheduler: 3,
  worker: 4,
  engine: 5,
  server: 6,
  cli: 6,
};

/** Peers that may look at each other, and what excludes a downward import. */
const allowed = new Set(['native -> ggml', 'runner -> native', 'runner -> ggml', 'tokenizer -> ggml', 'cli -> server']);
const forbidden = new Map<string, string>([
  ['scheduler -> runner', 'the scheduler sees the kv facade and connector types only'],
  ['scheduler -> ggml', 'the scheduler sees the kv facade and connector types only'],
  ['scheduler -> tokenizer', 'the scheduler knows tokens, not text'],
  ['engine -> ggml', 'the engine reaches the model through an executor'],
]);
/** Rooms that must stay synchronous and pure. */
const pure = new Set(['kv', 'scheduler']);

export interface Violation {
  readonly file: string;
  readonly imported: string;
  readonly rule: string;
}

export function checkLayers(root: string): Violation[] {
  const src = join(root, 'src');
  const violations: Violation[] = [];
  for (const file of sourceFiles(src)) {
    const room = roomOf(src, file);
    const isTest = /\.(test|fuzz|suite|bench)\.ts$/.test(file);
    const text = readFileSync(file, 'utf8');
    for (const imported of importsOf(text)) {
      const report = (rule: string) => violations.push({ file: relative(root, file), imported, rule });
      if (!imported.startsWith('.')) {
        if (pure.has(room) && !isTest) report(`${room} is pure: it imports nothing from outside`);
        continue;
      }
      const target = roomOf(src, normalize(join(dirname(file), imported)));
      if (isTest || room === '' || room === target) continue;
      if (target === '')
        report(
          'only the roots (main, worker-main, compose, compose-pipeline, compose-rank, llm, index) import the roots',
        );
      const edge = `${room} -> ${target}`;
      const reason = forbidden.get(edge);
      if (reason !== undefined) report(reason);
      else if ((ranks[target] ?? -1) > (ranks[room] ?? -1)) report(`${edge}: imports go down only`);
      else if (ranks[target] === ranks[room] && !allowed.has(edge)) report(`${edge}: peers do not import each other`);
    }
    if (
      pure.has(room) &&
      !isTest &&
      /\b(async|await|Promise|Date\.now|Math\.random|performance)\b/.test(stripComments(text))
    ) {
      violations.push({
        file: relative(root, file),
        imported: '',
        rule: `${room} is synchronous: no async, clock or chance`,
      });
    }
  }
  return violations;
}

/** The first folder below src, or '' for files at its top. */
function roomOf(src: string, file: string): string {
  const parts = relative(src, file).split(sep);
  return parts.length > 1 ? (parts[0] ?? '') : '';
}

function importsOf(text: string): string[] {
  const found: string[] = [];
  for (const match of stripComments(text).matchAll(
    /(?:^|\n)\s*(?:import|export)\s[^'";]*?from\s*['"]([^'"]+)['"]|import\(\s*['"]([^'"]+)['"]\s*\)/g,
  )) {
    const imported = match[1] ?? match[2];
    if (imported !== undefined) found.push(imported);
  }
  return found;
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
