import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { basename, isAbsolute, join } from 'node:path';
import { packageRoot } from '../base/package-files.ts';
import { loadNative } from '../ggml/ffi.ts';
import { listedFeatures } from './cpu-features.ts';
import { type CpuLevelName, cpuLevelOf, cpuLevels } from './cpu-level.ts';
import { type NativeSource, sourceDigestOf } from './native-source.ts';

/**
 * Libraries that `npm run kernels` has built, below `prebuilt` in the package:
 *
 *   prebuilt/linux-x64/manifest.json                          `PrebuiltManifest`
 *   prebuilt/linux-x64/paged-attention-<digest>-avx2.so
 *
 * A library is found by the digest of its source, definitions and flags. So a library of another version of the source
 * is never used.
 */
export interface PrebuiltManifest {
  readonly compiler: string;
  /** By the source's digest, then by level. */
  readonly libraries: Readonly<Record<string, Readonly<Partial<Record<CpuLevelName, PrebuiltFile>>>>>;
}

export interface PrebuiltFile {
  readonly file: string;
  readonly sha256: string;
}

/** Tells the features of a CPU where the system does not list them. Its library is for any CPU of the architecture. */
export const cpuIdSource: NativeSource = { file: 'native/cpu-id.c', headers: [], definitions: {} };

export interface PrebuiltLibrary {
  readonly path: string;
  readonly key: string;
  readonly library: Uint8Array;
  readonly sourceDigest: string;
  readonly level: CpuLevelName;
}

/** The library, or the reason why it cannot be loaded. `isCorrupt`: the package has the library, but its content has changed. */
export type PrebuiltSearch =
  | { readonly found: PrebuiltLibrary }
  | { readonly found?: never; readonly reason: string; readonly isCorrupt?: boolean };

export async function findPrebuilt(source: NativeSource): Promise<PrebuiltSearch> {
  const folder = prebuiltFolder();
  if (folder === undefined) return { reason: 'KVASIR_PREBUILT is off' };
  const manifest = await manifestIn(folder);
  if (manifest === undefined) return { reason: `the package has no prebuilt kernels for ${platformName()}` };
  const level = await ownLevel(folder, manifest);
  if (level === undefined) return { reason: 'no prebuilt kernel is for this CPU' };
  const sourceDigest = await sourceDigestOf(source);
  const files = manifest.libraries[sourceDigest];
  if (files === undefined) return { reason: 'the package has no prebuilt kernel for this shape' };
  const taken = [level, ...cpuLevels[level].below].find((name) => files[name] !== undefined);
  const file = taken && files[taken];
  if (taken === undefined || file === undefined) return { reason: `no prebuilt kernel is for the CPU level ${level}` };
  const library = await readLibrary(folder, file);
  if (library === undefined) return { reason: `${join(folder, file.file)} is missing or corrupt`, isCorrupt: true };
  const key = `${basename(source.file, '.c')}-${taken}-${sourceDigest.slice(0, 16)}`;
  return { found: { path: join(folder, file.file), key, library, sourceDigest, level: taken } };
}

/** Linux's C libraries share a folder: kernels need few symbols, and every C library has them. */
export const platformName = (platform: string = process.platform, arch: string = process.arch): string =>
  `${platform}-${arch}`;

/** `KVASIR_PREBUILT`: `off`, or another folder than the package's. */
function prebuiltFolder(): string | undefined {
  const demanded = process.env.KVASIR_PREBUILT?.trim();
  if (demanded === 'off') return undefined;
  const folder = demanded && isAbsolute(demanded) ? demanded : join(packageRoot(), 'prebuilt');
  return join(folder, platformName());
}

/** Undefined if the folder has no manifest that can be read. */
async function manifestIn(folder: string): Promise<PrebuiltManifest | undefined> {
  try {
    return JSON.parse(await readFile(join(folder, 'manifest.json'), 'utf8')) as PrebuiltManifest;
  } catch {
    return undefined;
  }
}

async function readLibrary(folder: string, { file, sha256 }: PrebuiltFile): Promise<Buffer | undefined> {
  const library = await readFile(join(folder, file)).catch(() => undefined);
  const isIntact = library !== undefined && createHash('sha256').update(library).digest('hex') === sha256;
  return isIntact ? library : undefined;
}

async function ownLevel(folder: string, manifest: PrebuiltManifest): Promise<CpuLevelName | undefined> {
  const listed = await listedFeatures();
  if (listed !== undefined) return cpuLevelOf(process.arch, listed);
  const told = await featuresByLibrary(folder, manifest);
  // Macs: all ARM CPUs of Apple's computers have dot products.
  return cpuLevelOf(process.arch, process.arch === 'x64' ? told : new Set(['asimd', 'asimddp', ...told]));
}

/** None if the package's library cannot be loaded. */
async function featuresByLibrary(folder: string, manifest: PrebuiltManifest): Promise<Set<string>> {
  const file = manifest.libraries[await sourceDigestOf(cpuIdSource)]?.[process.arch === 'x64' ? 'x86-64' : 'neon'];
  if (file === undefined || (await readLibrary(folder, file)) === undefined) return new Set();
  try {
    const names = loadNative().functionIn(join(folder, file.file), 'kvasir_cpu_features', 'str')() as string;
    return new Set(names.trim().split(' '));
  } catch {
    return new Set();
  }
}
