import { dirname, join, relative } from 'node:path';
import type { Vite } from 'vitest/node';

const root = join(import.meta.dirname, '../..');
const isCompiled = /^(?:src|sim|bench|scripts)\/(?!.*\.(?:test|fuzz|suite)\.ts$).*\.ts$/;

/**
 * A plugin of Vite: tests import the program that users run, which is the compiler's output, as Node's own modules. Vite then transforms
 * only the tests, and imported names are not read through functions.
 *
 * While Vitest watches files, tests import the sources, because it does not see that the output changes.
 */
export function compiledSources(): Vite.Plugin {
  let isWatching = false;
  return {
    name: 'compiled-sources',
    enforce: 'pre',
    configureVitest({ vitest }) {
      isWatching = vitest.config.watch;
    },
    resolveId(id, importer) {
      if (isWatching || importer === undefined || !id.startsWith('.')) return undefined;
      const path = relative(root, join(dirname(importer), id)).replaceAll('\\', '/');
      if (!isCompiled.test(path)) return undefined;
      return { id: join(root, 'dist', path.replace(/\.ts$/, '.js')), external: true };
    },
  };
}
