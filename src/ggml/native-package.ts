import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { byName } from '../base/by-name.ts';
import { nativePackageMissing, platformUnsupported } from './errors.ts';

/** The newest version of `@node-llama-cpp/*` that Kvasir loads. Tests and benches run with it. */
export const NATIVE_PACKAGE_VERSION = '3.22.1';
/** Its result of `ggml_version()`. */
export const GGML_VERSION = '0.25.1';
/**
 * All versions whose structs and symbols `ffi-table.ts` and `ffi-structs.ts` describe, with their results of `ggml_version()` and `ggml_commit()`.
 * Registries have other versions for some platforms.
 */
export const nativeVersions = [
  { package: NATIVE_PACKAGE_VERSION, ggml: GGML_VERSION, commit: '0ad4a86' },
  { package: '3.22.0', ggml: '0.25.1', commit: 'ac5f707' },
  { package: '3.21.1', ggml: '0.23.0', commit: '5b4ebc5' },
] as const;
/** The same versions as npm writes them: package.json has this range. */
export const nativeVersionRange = `${nativeVersions.at(-1)?.package} - ${NATIVE_PACKAGE_VERSION}`;

/** npm then installs the newest version of the range that its registry has. Quotes are the same in all shells. */
const installCommandOf = (packageName: string, version = nativeVersionRange): string =>
  `npm install ${version.includes(' ') ? `"${packageName}@${version}"` : `${packageName}@${version}`}`;

/** What errors about the packages say. */
export const remedyFor = (packageName: string): { readonly command: string; readonly versions: string } => ({
  command: installCommandOf(packageName),
  versions: nativeVersions.map((version) => version.package).join(', '),
});

/** The packages for each platform, best first. `npm install kvasir` installs the last. */
const packagesByPlatform: Readonly<Record<string, readonly string[]>> = byName({
  'linux-x64': ['linux-x64-cuda', 'linux-x64-cuda-ext', 'linux-x64-vulkan', 'linux-x64'],
  'linux-arm64': ['linux-arm64'],
  'darwin-arm64': ['mac-arm64-metal'],
  'darwin-x64': ['mac-x64'],
  'win32-x64': ['win-x64-cuda', 'win-x64-cuda-ext', 'win-x64-vulkan', 'win-x64'],
});

const thisPlatform = `${process.platform}-${process.arch}`;

export interface NativeLibraries {
  readonly packageName: string;
  readonly base: string;
  readonly ggml: string;
  readonly llama: string;
  /**
   * Folders with backend libraries (`libggml-cpu-*`, `libggml-cuda`, ...); the folder with the CPU variants is first.
   */
  readonly backendFolders: readonly string[];
}

/**
 * Finds the installed libraries. ggml and libllama come from the CPU package, which also loads the backends of
 * installed GPU packages. GPU packages have their own copy of the same ggml, but a process must not load two.
 */
export function findNativeLibraries(platform = thisPlatform, find: FindPackage = entryOf): NativeLibraries {
  const candidates = packagesByPlatform[platform];
  if (candidates === undefined) {
    throw platformUnsupported({ platform, supported: Object.keys(packagesByPlatform).join(', ') });
  }
  const packageName = `@node-llama-cpp/${candidates.at(-1)}`;
  const main = binsFolder(find(packageName));
  if (main === undefined) throw nativePackageMissing({ platform, packageName, ...remedyFor(packageName) });
  const gpuFolders = gpuPackages(platform, find).flatMap(({ folder }) => folder ?? []);
  return {
    packageName,
    base: libraryIn(main, 'ggml-base', packageName),
    ggml: libraryIn(main, 'ggml', packageName),
    llama: libraryIn(main, 'llama', packageName),
    backendFolders: [main, ...gpuFolders],
  };
}

/** A package with a backend for GPUs, beside the CPU package. */
export interface GpuPackage {
  readonly name: string;
  /** Of the installed package; absent: it is not installed. */
  readonly version?: string;
  /** With its backend; absent if the package is of another version, whose backend could end the process. */
  readonly folder?: string;
  readonly installCommand: string;
  /** What must be installed besides: no package has CUDA's own libraries. */
  readonly needs: string;
}

const needsOf = (name: string): string =>
  name.endsWith('-vulkan') ? "the GPU's driver" : `NVIDIA's driver and CUDA ${name.endsWith('-ext') ? 12 : 13}`;

/** Those for this platform, best first. On a Mac, Metal is in the package that `npm install kvasir` installs. */
export function gpuPackages(platform = thisPlatform, find: FindPackage = entryOf): GpuPackage[] {
  const candidates = packagesByPlatform[platform] ?? [];
  // A backend is loaded into the ggml of the CPU package.
  const needed = installedVersion(find(`@node-llama-cpp/${candidates.at(-1)}`));
  return candidates.slice(0, -1).map((suffix) => {
    const name = `@node-llama-cpp/${suffix}`;
    const version = installedVersion(find(name));
    const installCommand = installCommandOf(name, needed);
    const found = version !== undefined && version === needed ? binsFolder(find(name)) : undefined;
    return {
      name,
      installCommand,
      needs: needsOf(name),
      ...(version === undefined ? {} : { version }),
      ...(found === undefined ? {} : { folder: found }),
    };
  });
}

function installedVersion(entry: string | undefined): string | undefined {
  if (entry === undefined) return undefined;
  const { version } = JSON.parse(readFileSync(join(dirname(entry), '..', 'package.json'), 'utf8')) as {
    readonly version: string;
  };
  return version;
}

/** The main file of an installed package, as Node finds it; undefined if the package is not installed. */
type FindPackage = (packageName: string) => string | undefined;

function entryOf(packageName: string): string | undefined {
  try {
    return createRequire(import.meta.url).resolve(packageName);
  } catch {
    return undefined;
  }
}

/** The folder in which a package has its backend for an older version of CUDA. */
export const fallbackFolder = 'fallback';

/** `<package>/bins/<platform folder>`, or the folder for an older CUDA below; undefined if the package is not installed. */
function binsFolder(entry: string | undefined): string | undefined {
  if (entry === undefined) return undefined;
  const bins = join(dirname(entry), '..', 'bins');
  if (!existsSync(bins)) return undefined;
  const folder = readdirSync(bins, { withFileTypes: true }).find((item) => item.isDirectory());
  if (folder === undefined) return undefined;
  const fallback = join(bins, folder.name, fallbackFolder);
  return existsSync(fallback) ? fallback : join(bins, folder.name);
}

/** File names have llama.cpp's version on some platforms: `libggml.so`, `libggml.v0.5.0.so`, `ggml.dll`. */
function libraryIn(folder: string, stem: string, packageName: string): string {
  const pattern = new RegExp(`^(lib)?${stem}(\\.[a-z]*\\.?v[\\d.]+)?\\.(so|dylib|dll)$`);
  const file = readdirSync(folder).find((name) => pattern.test(name));
  if (file === undefined) {
    throw nativePackageMissing({ platform: folder, packageName, ...remedyFor(packageName) });
  }
  return join(folder, file);
}
