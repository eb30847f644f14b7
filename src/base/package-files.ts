import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { assert } from './assert.ts';

/** The model file in the package. */
export function demoModelPath(): string {
  return join(packageRoot(), 'models', 'kvasir-demo.gguf');
}

export function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as { version: string };
  return version;
}

/**
 * The built file that a thread or a process runs, by the path of its source (`src/main`). It is one of the bundle (`scripts/bundle.ts`).
 * A command of the compiler's output stays there, so that a test can change single modules of it.
 */
export function entryPoint(source: string): URL {
  const root = packageRoot();
  const isCompilersOutput = process.argv[1]?.startsWith(join(root, 'dist/src')) === true;
  return pathToFileURL(join(root, isCompilersOutput ? 'dist' : 'dist/bundle', `${source}.js`));
}

/** A file that the build does not change, by its path below `src`. */
export const sourceFile = (path: string): string => join(packageRoot(), 'src', path);

/** The folder of package.json. */
export function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) {
    assert(dirname(folder) !== folder, 'the package has a package.json');
    folder = dirname(folder);
  }
  return folder;
}
