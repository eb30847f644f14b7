import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { assert } from '../base/assert.ts';

/** The model that comes with the package. */
export function demoModelPath(): string {
  return join(packageRoot(), 'models', 'kvasir-demo.gguf');
}

export function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as { version: string };
  return version;
}

/** The folder of our package.json: two levels up from the sources, three from the build. */
function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) {
    assert(dirname(folder) !== folder, 'the package has lost its package.json');
    folder = dirname(folder);
  }
  return folder;
}
