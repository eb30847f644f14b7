import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { PlantedBug } from './planted-bugs.ts';

/**
 * The environment in which a built command, and every process that it starts, has the bug. `folder`: for the module that plants
 * it, which Node loads before the command.
 */
export function environmentWith(bug: PlantedBug, folder: string): Record<string, string> {
  if (!existsSync(join(folder, 'planted-bugs.js'))) compileBugs(folder);
  const built = (path: string): string => JSON.stringify(pathToFileURL(join(process.cwd(), 'dist', 'src', path)).href);
  const path = join(folder, `${bug}.mjs`);
  writeFileSync(
    path,
    `import { ExternalKv } from ${built('scheduler/external-kv.js')};
     import { KvCache } from ${built('kv/kv-cache.js')};
     import { plant } from './planted-bugs.js';
     plant(${JSON.stringify(bug)}, { KvCache, ExternalKv });`,
  );
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  return { NODE_OPTIONS: `--import=${pathToFileURL(path).href}` };
}

function compileBugs(folder: string): void {
  const source = join(import.meta.dirname, 'planted-bugs.ts');
  const flags = '--ignoreConfig --noResolve --noCheck --module esnext --target es2023 --outDir'.split(' ');
  const { status, stdout } = spawnSync('node_modules/.bin/tsc', [source, ...flags, folder], { encoding: 'utf8' });
  if (status !== 0) throw new Error(stdout);
}
