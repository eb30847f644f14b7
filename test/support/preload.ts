import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { compileModule } from './compile-module.ts';
import type { PlantedBug } from './planted-bugs.ts';

/**
 * The environment in which a built command, and every process that it starts, has the bug. `folder`: the place for the module that
 * plants the bug, which Node loads before the command.
 */
export function environmentWith(bug: PlantedBug, folder: string): Record<string, string> {
  compileModule('planted-bugs.ts', folder);
  const built = (path: string): string => JSON.stringify(pathToFileURL(join(process.cwd(), 'dist', 'src', path)).href);
  const path = join(folder, `${bug}.mjs`);
  writeFileSync(
    path,
    `import { ExternalKv } from ${built('scheduler/external-kv.js')};
     import { KvCache } from ${built('kv/kv-cache.js')};
     import { plant } from './planted-bugs.js';
     plant(${JSON.stringify(bug)}, { KvCache, ExternalKv });`,
  );
  return { NODE_OPTIONS: `--import=${pathToFileURL(path).href}` };
}
