/**
 * Figures of the size of the project: lines of source without tests, and exported names. `npm run check` prints them, so that a change
 * shows what it adds. It fails if an exported name has no docstring.
 */
import { readFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { API, type Symbol as ExportedName, type Project, SymbolFlags } from 'typescript/unstable/sync';
import { formatTable } from '../src/base/table.ts';
import { sourceFiles } from './layers.ts';

export interface Figures {
  /** By folder: `src/<folder>`, `src` for the files at its top, `bench` and `sim`. */
  readonly lines: ReadonlyMap<string, number>;
  readonly entryPoints: readonly EntryPoint[];
}

/** What a program can import by one name, such as `kvasir/server`. */
export interface EntryPoint {
  readonly name: string;
  readonly exported: readonly string[];
  /** Those of `exported` without a docstring. */
  readonly undocumented: readonly string[];
}

export function figuresOf(root: string): Figures {
  return { lines: linesByFolder(root), entryPoints: entryPointsOf(root) };
}

function linesByFolder(root: string): Map<string, number> {
  const lines = new Map<string, number>();
  for (const top of ['src', 'bench', 'sim'])
    for (const file of sourceFiles(join(root, top))) {
      if (/\.(test|fuzz|suite|bench)\.ts$/.test(file)) continue;
      const [, folder, ...rest] = relative(root, file).split(sep);
      const name = top === 'src' && rest.length > 0 ? `src/${folder}` : top;
      lines.set(name, (lines.get(name) ?? 0) + readFileSync(file, 'utf8').split('\n').length - 1);
    }
  return lines;
}

interface PackageJson {
  readonly name: string;
  readonly exports: Readonly<Record<string, string | { readonly types: string }>>;
}

function entryPointsOf(root: string): EntryPoint[] {
  const { name, exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as PackageJson;
  const api = new API();
  try {
    const [project] = api.updateSnapshot({ openProjects: [join(root, 'tsconfig.build.json')] }).getProjects();
    return Object.entries(exports).flatMap(([path, target]) => {
      // Examples are no API.
      if (typeof target === 'string' || path.includes('*')) return [];
      const { types } = target;
      const source = join(root, types.replace(/^\.\/dist\//, '').replace(/\.d\.ts$/, '.ts'));
      const symbols = exportsOf(project!, source);
      const isUndocumented = (symbol: ExportedName): boolean => documentationOf(project!, symbol) === '';
      return {
        name: path.replace(/^\./, name),
        exported: symbols.map((symbol) => symbol.name),
        undocumented: symbols.filter(isUndocumented).map((symbol) => symbol.name),
      };
    });
  } finally {
    api.close();
  }
}

function exportsOf({ program, checker }: Project, path: string): readonly ExportedName[] {
  const file = program.getSourceFile(path);
  const module = file && checker.getSymbolAtLocation(file);
  if (module === undefined) throw new Error(`${path} exports nothing, or tsconfig.build.json does not include it`);
  return checker.getExportsOfModule(module);
}

function documentationOf({ checker }: Project, symbol: ExportedName): string {
  const isAlias = (symbol.flags & SymbolFlags.Alias) !== 0;
  return (isAlias ? checker.getAliasedSymbol(symbol) : symbol).getDocumentationComment(checker);
}

if (process.argv[1] !== undefined && /figures\.[jt]s$/.test(process.argv[1])) {
  const { lines, entryPoints } = figuresOf(process.cwd());
  const total = [...lines.values()].reduce((sum, count) => sum + count, 0);
  console.log(formatTable(['lines without tests', ''], [...lines, ['total', total]]));
  const rows = entryPoints.map(({ name, exported, undocumented }) => [name, exported.length, undocumented.length]);
  console.log(formatTable(['entry point', 'exported names', 'without docstring'], rows));
  const undocumented = new Set(entryPoints.flatMap((entryPoint) => entryPoint.undocumented));
  console.log(`exported names without docstring: ${undocumented.size}`);
  if (undocumented.size > 0) {
    console.error(`Write a docstring for each new name. Without one are: ${[...undocumented].join(', ')}`);
    process.exitCode = 1;
  }
}
