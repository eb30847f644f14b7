import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { assert } from '../../src/base/assert.ts';
import { type CpuLevelName, cpuLevels } from '../../src/native/cpu-level.ts';
import { compilerArgumentsOf, sourceDigestOf } from '../../src/native/native-source.ts';
import type { PrebuiltFile, PrebuiltManifest } from '../../src/native/prebuilt.ts';
import type { ShippedKernel } from '../../src/runner/shipped-kernels.ts';
import type { Target } from './targets.ts';
import { undefinedSymbolsOf } from './undefined-symbols.ts';
import { runZig, type ZigCommand, zigVersion } from './zig.ts';

export interface BuildOptions {
  readonly zig: ZigCommand;
  /** The libraries and the manifest of a target are in a folder of it; an older one is replaced. */
  readonly folder: string;
  readonly cacheFolder: string;
}

export interface Built {
  readonly libraries: number;
  readonly bytes: number;
}

interface Job {
  readonly kernel: ShippedKernel;
  readonly level: CpuLevelName;
}

/** Builds kernels for a target, at the levels of its architecture. Rejects with the compiler's messages. */
export async function buildKernels(
  target: Target,
  kernels: readonly ShippedKernel[],
  options: BuildOptions,
): Promise<Built> {
  const folder = join(options.folder, target.name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const possible = kernels.filter(({ needsLibc }) => needsLibc !== true || target.glibcTarget !== undefined);
  const jobs = possible.flatMap((kernel) =>
    kernel.levels.filter((level) => cpuLevels[level].arch === target.arch).map((level): Job => ({ kernel, level })),
  );
  const partsFolder = mkdtempSync(join(tmpdir(), 'kvasir-prebuild-'));
  const parts = await makeParts(target, partsFolder, options);
  const libraries: Record<string, Partial<Record<CpuLevelName, PrebuiltFile>>> = {};
  let count = 0;
  let bytes = 0;
  await inParallel(jobs, async ({ kernel, level }) => {
    const digest = await sourceDigestOf(kernel.source);
    const file = `${basename(kernel.source.file, '.c')}-${digest.slice(0, 16)}-${level}.${target.extension}`;
    const library = await buildLibrary(target, { kernel, level }, { ...options, parts });
    if (library === undefined) return;
    writeFileSync(join(folder, file), library);
    libraries[digest] = { ...libraries[digest], [level]: { file, sha256: sha256(library) } };
    count++;
    bytes += library.length;
  }).finally(() => rmSync(partsFolder, { recursive: true, force: true }));
  const manifest: PrebuiltManifest = { compiler: `zig ${zigVersion}`, libraries: sorted(libraries) };
  writeFileSync(join(folder, 'manifest.json'), `${JSON.stringify(manifest, undefined, 1)}\n`);
  return { libraries: count, bytes };
}

/**
 * The linker's own arguments, if the library needs no C library: Zig's `cc` would compile one for the target first. Undefined: `cc`
 * links.
 */
function linkerArgumentsOf(
  { extension }: Target,
  { needsLibc }: ShippedKernel,
  files: { readonly object: string; readonly output: string; readonly parts: readonly string[] },
): string[] | undefined {
  const { object, output, parts } = files;
  if (extension === 'so' && needsLibc !== true)
    return ['ld.lld', '-shared', '--strip-all', '--gc-sections', '-o', output, object, ...parts];
  if (extension === 'dll') return ['lld-link', '-lldmingw', '-dll', ...dllFlags, `-out:${output}`, object, ...parts];
  return undefined;
}

/** Without a time stamp, so that equal builds give equal files. */
const dllFlags = ['-entry:DllMainCRTStartup', '-debug:none', '-opt:ref', '-timestamp:0'];
/** Windows's own C library has them (`ucrtbase.dll`, Windows 10 and newer). */
const windowsFunctions = ['memcpy', 'memmove', 'memset', 'strlen'];

/** Every process on Linux has them, with glibc and with musl. */
const linuxFunctions = ['bcmp', 'memcpy', 'memmove', 'memset', 'strlen', 'syscall'];

/** The linkers for Windows and macOS refuse undefined symbols. That for Linux leaves them to the process. */
function checkSymbols({ name }: ShippedKernel, library: Buffer): void {
  const unknown = undefinedSymbolsOf(library).filter((symbol) => !linuxFunctions.includes(symbol));
  assert(unknown.length === 0, `the library for ${name} needs only functions of every process, not ${unknown}`);
}

/** What each library is linked with, in place of a compiler's library: object files, and the names of functions of Windows. */
async function makeParts(target: Target, folder: string, { zig, cacheFolder }: BuildOptions): Promise<string[]> {
  const compile = async (source: string, cpu: string): Promise<string> => {
    const object = join(folder, `${source}.o`);
    const flags = ['-target', target.zigTarget, `-mcpu=${cpu}`, '-O2', '-std=gnu11', '-fPIC'];
    await runZig(zig, ['cc', ...flags, '-c', join('scripts', 'prebuild', source), '-o', object], cacheFolder);
    return object;
  };
  if (target.name === 'linux-arm64') return [await compile('arm-atomics.c', 'generic')];
  if (target.extension !== 'dll') return [];
  const [definitions, library] = [join(folder, 'windows.def'), join(folder, 'windows.lib')];
  writeFileSync(definitions, ['LIBRARY ucrtbase.dll', 'EXPORTS', ...windowsFunctions, ''].join('\n'));
  await runZig(zig, ['dlltool', '-m', 'i386:x86-64', '-d', definitions, '-l', library], cacheFolder);
  return [await compile('dll-entry.c', 'x86_64'), library];
}

/** Undefined if the source has no form for the level (`#error "this CPU lacks ..."`). */
async function buildLibrary(
  target: Target,
  { kernel, level }: Job,
  { zig, cacheFolder, parts }: BuildOptions & { readonly parts: readonly string[] },
): Promise<Buffer | undefined> {
  const work = mkdtempSync(join(tmpdir(), 'kvasir-prebuild-'));
  try {
    const output = join(work, `kernel.${target.extension}`);
    const zigTarget = (kernel.needsLibc === true ? target.glibcTarget : undefined) ?? target.zigTarget;
    const forTarget = ['-target', zigTarget, `-mcpu=${target.zigCpu?.[level] ?? cpuLevels[level].zigCpu}`];
    // Without it, clang prefers 256 bits for `x86_64_v4`.
    if (cpuLevels[level].features.includes('avx512f')) forTarget.push('-mprefer-vector-width=512');
    const all = compilerArgumentsOf(kernel.source);
    const compile = all.filter((argument) => argument !== '-shared');
    const object = join(work, 'kernel.o');
    const link = linkerArgumentsOf(target, kernel, { object, output, parts });
    if (link !== undefined) {
      await runZig(zig, ['cc', ...forTarget, ...compile, '-c', '-o', object], cacheFolder);
      await runZig(zig, link, cacheFolder);
      if (target.extension === 'so') checkSymbols(kernel, readFileSync(output));
    } else {
      await runZig(zig, ['cc', ...forTarget, ...compile, '-shared', '-s', '-o', output], cacheFolder);
    }
    return readFileSync(output);
  } catch (error) {
    if (/#error.*this CPU lacks|error: "?this CPU lacks/.test((error as { stderr?: string }).stderr ?? ''))
      return undefined;
    throw error;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

async function inParallel<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const waiting = [...items];
  const worker = async (): Promise<void> => {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
}

/** By key, so that equal builds give equal files. */
const sorted = <T>(record: Readonly<Record<string, T>>): Record<string, T> =>
  Object.fromEntries(Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1)));

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
