/**
 * The last step of `npm run build`: bundles what users run into `dist/bundle`. Node needs CPU time to find, read and
 * link each of 600 modules. ADR 3 has the figures, and says why rolldown.
 *
 * An entry point has the path of its source: `src/main.ts` is `dist/bundle/src/main.js`. What several entry points import is in chunks
 * beside them, so a user's connector that imports `kvasir/connector` has the classes of the running command. Packages stay outside.
 */
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { rolldown } from 'rolldown';
import { sourceFiles } from './layers.ts';

interface PackageJson {
  readonly bin: Readonly<Record<string, string>>;
  readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
}

const folder = 'dist/bundle';

/** What the package exports, and each file that `entryPoint` names. Paths of sources, without the ending. */
function entryPoints(): string[] {
  const { bin, exports } = JSON.parse(readFileSync('package.json', 'utf8')) as PackageJson;
  const targets = [
    ...Object.values(bin),
    ...Object.values(exports).map((to) => (typeof to === 'string' ? to : to.default)),
  ];
  const exported = targets.flatMap((path) => /^(?:\.\/)?dist\/bundle\/(.*)\.js$/.exec(path)?.[1] ?? []);
  const started = ['src', 'bench']
    .flatMap((top) => sourceFiles(top))
    .flatMap((file) => [...readFileSync(file, 'utf8').matchAll(/\bentryPoint\('([^']+)'\)/g)].map(([, path]) => path!));
  return [...new Set([...exported, ...started])];
}

const build = await rolldown({
  input: Object.fromEntries(entryPoints().map((path) => [path, `${path}.ts`])),
  platform: 'node',
  // Helpers of the translation are no package of ours.
  external: (id) => !/^[./]|^@oxc-project\/runtime/.test(id),
  transform: { target: 'node20.19' },
});
const { output } = await build.write({
  dir: folder,
  format: 'esm',
  sourcemap: true,
  chunkFileNames: 'chunks/[name]-[hash].js',
});
await build.close();
// After it, so that there is a whole bundle at any time.
const written = new Set(output.map(({ fileName }) => join(folder, fileName)));
for (const file of sourceFiles(folder, ['.js', '.map'])) if (!written.has(file)) rmSync(file);
