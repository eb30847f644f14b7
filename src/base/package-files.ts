import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { assert } from './assert.ts';

/** The model file in the package. */
export function demoModelPath(): string {
  return join(packageRoot(), 'models', 'kvasir-demo.gguf');
}

export function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as { version: string };
  return version;
}

/** The folder of package.json: two levels above the sources, three above the build. */
export function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) {
    assert(dirname(folder) !== folder, 'the package has a package.json');
    folder = dirname(folder);
  }
  return folder;
}
