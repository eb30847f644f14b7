import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';

/** Compiles one module of this folder, without its imports, so that Node can load it in another thread or process. Returns its path. */
export function compileModule(source: string, folder: string): string {
  const path = join(folder, basename(source).replace(/\.ts$/, '.js'));
  if (existsSync(path)) return path;
  const flags = '--ignoreConfig --noResolve --noCheck --module esnext --target es2023 --outDir'.split(' ');
  const { status, stdout } = spawnSync('node_modules/.bin/tsc', [join(import.meta.dirname, source), ...flags, folder], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(stdout);
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  return path;
}
