/** What Kvasir loads on a Mac, read from the packages for Macs: no Mac was available. `.ci/install-mac-packages` installs them. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { homedir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Signature, table } from '../src/ggml/ffi-table.ts';
import { findNativeLibraries, gpuPackages, nativeVersionRange, nativeVersions } from '../src/ggml/native-package.ts';
import { readMachO } from './support/mach-o.ts';
import { needs } from './support/needs.ts';

const koffi = JSON.parse(readFileSync('node_modules/koffi/package.json', 'utf8')) as { readonly version: string };
const cache = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
const folder = join(cache, 'kvasir', `mac-packages-${nativeVersionRange.replaceAll(' ', '')}-${koffi.version}`);
const installed = createRequire(join(folder, 'any.js'));
const find = (name: string): string => installed.resolve(name);

const isInstalled = existsSync(join(folder, 'complete'));
describe.each(['darwin-arm64', 'darwin-x64'])(
  'on %s',
  needs(isInstalled, 'no packages for Macs (.ci/install-mac-packages)'),
  (platform) => {
    const arch = platform === 'darwin-arm64' ? 'arm64' : 'x64';

    it('every function of the table is exported by its library, and every library that is loaded is there', () => {
      const libraries = findNativeLibraries(platform, find);
      for (const [name, [library]] of Object.entries(table) as [string, Signature][])
        expect([name, readCached(libraries[library]).exports.has(name)]).toEqual([name, true]);
      const main = libraries.backendFolders[0]!;
      for (const name of readdirSync(main).filter((file) => /\.(dylib|so)$/.test(file))) {
        const { loads, runPaths, ...found } = readCached(join(main, name));
        expect([name, found.arch, found.oldestSystem]).toEqual([name, arch, '14.0']);
        for (const load of loads.filter((path) => !/^\/(usr\/lib|System\/Library)\//.test(path))) {
          expect(load).toMatch(/^@rpath\/[^/]+$/);
          expect(runPaths).toContain('@loader_path');
          // The library is loaded once: by the loader's path, and by the libraries that need it under its own name.
          expect(readCached(join(main, basename(load))).id).toBe(load);
        }
      }
    });

    it('the libraries are of a version that is accepted, with backends for CPUs, and for Metal on ARM', () => {
      const { base, backendFolders } = findNativeLibraries(platform, find);
      const text = readFileSync(base, 'latin1');
      expect(nativeVersions.some(({ ggml, commit }) => text.includes(ggml) && text.includes(commit))).toBe(true);
      const names = readdirSync(backendFolders[0]!);
      expect(names.filter((name) => /^libggml-cpu-.*\.so$/.test(name)).length).toBeGreaterThan(2);
      expect(names.includes('libggml-metal.so')).toBe(arch === 'arm64');
      for (const name of names.filter((file) => /^libggml-(cpu|metal|blas).*\.so$/.test(file)))
        expect(readCached(join(backendFolders[0]!, name)).exports.has('ggml_backend_init')).toBe(true);
      // Metal is in the package of the platform, so no other is named.
      expect(gpuPackages(platform, find)).toEqual([]);
    });

    it("koffi's addon is for this architecture", () => {
      const entry = dirname(installed.resolve(`@koromix/koffi-${platform}/package.json`));
      const addons = readdirSync(entry, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.node'));
      expect(addons.map((name) => readMachO(join(entry, name)).arch)).toEqual([arch]);
    });
  },
);

const known = new Map<string, ReturnType<typeof readMachO>>();
function readCached(path: string): ReturnType<typeof readMachO> {
  const found = known.get(path) ?? readMachO(path);
  known.set(path, found);
  return found;
}
