import { existsSync } from 'node:fs';
import module from 'node:module';
import { join } from 'node:path';
import { defaultCacheFolder } from './cache-folder.ts';

/** Of Node 22.10 and later. */
interface CompileCache {
  enableCompileCache?(folder: string): unknown;
  flushCompileCache?(): void;
}

const cache = module as CompileCache;

/**
 * The modules that this process imports from now on are compiled once on a machine, and read from the user's cache folder later. Node 20
 * compiles them at each start.
 */
export function keepCompiledModules(): void {
  const folder = defaultCacheFolder();
  // Node may try for ever to make a folder where none can be. The folder exists after the first start, which caches kernels there.
  if (cache.flushCompileCache === undefined || folder === undefined || !existsSync(folder)) return;
  cache.enableCompileCache?.(join(folder, 'modules'));
}

/** Before a process ends with `exitAtOnce`: Node writes the cache at its own exit. */
export function writeCompiledModules(): void {
  cache.flushCompileCache?.();
}
