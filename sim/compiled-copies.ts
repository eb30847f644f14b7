import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../src/base/package-files.ts';

const root = packageRoot();
const folders = ['src/base', 'src/core', 'src/kv', 'src/connector', 'src/scheduler', 'src/worker', 'sim'];
/** What the simulators do not import of these: some connectors, and ranks in processes. */
const unused =
  /\bsrc\/(?:connector\/(?:(?:fault|shared-storage)$|offloading\/(?:offloading-connector|open-tier|own-tier)\.ts$|tier\/(?:disk|redis|s3)$)|worker\/(?:worker-|rank-process|node-flags|error-codec))/;

/** One source file of the simulator with one text replaced. */
export interface Change {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

/** The changed source text. Throws unless `find` occurs exactly once. */
export function changed({ file, find, replace }: Change): string {
  const pieces = readFileSync(join(root, file), 'utf8').split(find);
  if (pieces.length !== 2)
    throw new Error(`${file} has this text ${pieces.length - 1} times, but must have it once: ${find}`);
  return pieces.join(replace);
}

/**
 * Copies of the simulator, each with at most one change. One run of the TypeScript compiler translates the sources and all changed
 * files. Node imports the copies itself, because vitest does not transform files in `node_modules`.
 */
export class CompiledCopies {
  readonly #workshop = mkdtempSync(join(tmpdir(), 'kvasir-mutants-'));
  readonly #changes: readonly Change[];
  readonly #copied = new Set<string>();

  constructor(changes: readonly Change[]) {
    this.#changes = changes;
    for (const folder of folders)
      cpSync(join(root, folder), join(this.#workshop, 'ts/whole', folder), {
        recursive: true,
        filter: (path) => !unused.test(path) && !/\.(test|fuzz|bench|suite)\.ts$/.test(path),
      });
    for (const [index, change] of changes.entries()) {
      const path = join(this.#workshop, 'ts', `change-${index}`, change.file);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, changed(change));
    }
    this.#compile();
  }

  /** The folder of a copy with `changes[index]`, or without a change. */
  folderOf(index?: number): string {
    const name = index === undefined ? 'unchanged' : `change-${index}`;
    const copy = join(this.#workshop, 'node_modules', name);
    if (this.#copied.has(name)) return copy;
    this.#copied.add(name);
    cpSync(join(this.#workshop, 'js/whole'), copy, { recursive: true });
    writeFileSync(join(copy, 'package.json'), '{ "type": "module" }');
    if (index === undefined) return copy;
    const file = this.#changes[index]!.file.replace(/\.ts$/, '.js');
    cpSync(join(this.#workshop, 'js', name, file), join(copy, file));
    return copy;
  }

  /** The simulator of the copy without a change. */
  simulator(): Promise<typeof import('./run.ts')> {
    return import(pathToFileURL(join(this.folderOf(), 'sim/run.js')).href) as Promise<typeof import('./run.ts')>;
  }

  remove(): void {
    rmSync(this.#workshop, { recursive: true });
  }

  /** Without type checks: `npm run check` has them, and a change may leave unused names. */
  #compile(): void {
    const config = {
      compilerOptions: {
        target: 'ES2023',
        module: 'nodenext',
        types: [],
        rootDir: 'ts',
        outDir: 'js',
        noCheck: true,
        noResolve: true,
        isolatedModules: true,
        verbatimModuleSyntax: true,
        rewriteRelativeImportExtensions: true,
      },
      include: ['ts'],
    };
    writeFileSync(join(this.#workshop, 'tsconfig.json'), JSON.stringify(config));
    writeFileSync(join(this.#workshop, 'package.json'), '{ "type": "module" }');
    const compiler = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin/tsc');
    execFileSync(process.execPath, [compiler, '-p', this.#workshop], { stdio: 'pipe' });
  }
}
