import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { availableParallelism, cpus } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { defaultCacheFolder } from '../base/cache-folder.ts';
import { CompileFailure } from './compile-failure.ts';
import { demandedCpuFlags } from './cpu-features.ts';
import type { CpuLevelName } from './cpu-level.ts';
import {
  findLibrary,
  keepLibrary,
  keepUntilExit,
  newWorkFolder,
  removeWorkFolder,
  sealedPath,
} from './kernel-cache.ts';
import { compilerArgumentsOf, type NativeSource, sourceDigestOf } from './native-source.ts';
import { findPrebuilt } from './prebuilt.ts';

export { CompileFailure } from './compile-failure.ts';
export type { NativeSource } from './native-source.ts';

export interface CompileOptions {
  /** A command, which may have arguments; default: the environment's `CC`, else `cc`. */
  readonly compiler?: string | undefined;
  /** Default: the user's cache folder. */
  readonly cacheFolder?: string | undefined;
  /** The compiler's flags for the CPU; default: `demandedCpuFlags`, else the flags for this CPU. */
  readonly cpuFlags?: string | undefined;
  /** Called with a sentence if this machine could have a kernel or a cache but works without; the sentence says why. */
  readonly event?: ((message: string) => void) | undefined;
}

export interface Compiled {
  /** The file from which `openNative` loads the library. */
  readonly path: string;
  readonly key: string;
  /** The content of the library. */
  readonly library: Uint8Array;
  /** Whether the library was in the cache or in the package. */
  readonly wasCached: boolean;
  /** Of a library of the package: for which CPUs it is. */
  readonly level?: CpuLevelName;
  /** Of the source, its definitions and the flags. They decide the bits that the library computes on a given CPU. */
  readonly sourceDigest: string;
}

/**
 * For a caller that can work without the library: sends an event if an operator can change that. Throws errors
 * that are no `CompileFailure`. `what` and `instead` are parts of the event's text.
 */
export function doWithout(error: unknown, what: string, instead: string, { event }: CompileOptions): undefined {
  if (!(error instanceof CompileFailure)) throw error;
  if (error.needsCompiler) event?.(withoutCompiler(error.message));
  else if (error.isAvoidable) event?.(`${what} cannot be used: ${error.message}. ${instead}`);
  return undefined;
}

/** The same sentences for each kernel, so that an engine reports them once. */
const withoutCompiler = (reason: string): string =>
  `Kernels of Kvasir are missing: the package has none for this machine and model, and ${reason}. ggml computes instead, ` +
  'at as little as half the speed, and the text may differ from engines that have them. `kvasir doctor` says what to change.';

const run = promisify(execFile);

/** Compilers have different flags for "this CPU" on ARM. On x86 they accept `-mcpu=native`, but as any x86 CPU. */
const ownCpuFlags = process.arch === 'x64' ? ['-march=native'] : ['-march=native', '-mcpu=native'];

/**
 * Finds the library of a source in the package or in the cache, or compiles it, and calls `take` to load it. A cached
 * library that cannot be loaded is compiled again.
 * Throws `CompileFailure`.
 */
export async function openNative<T>(
  source: NativeSource,
  options: CompileOptions,
  take: (compiled: Compiled) => T,
): Promise<T> {
  const prebuilt = await findShipped(source, options);
  if (prebuilt !== undefined) {
    try {
      return takeSealed(prebuilt, take);
    } catch (error) {
      options.event?.(`${unloadable(prebuilt, error).message}. It is compiled on this machine instead.`);
    }
  }
  const found = await compileNative(source, options);
  try {
    return takeSealed(found, take);
  } catch (error) {
    if (!found.wasCached) throw unloadable(found, error);
  }
  await rm(found.path, { force: true }).catch(() => undefined);
  const again = await compileNative(source, options);
  try {
    return takeSealed(again, take);
  } catch (error) {
    throw unloadable(again, error);
  }
}

/** A library of the package, unless the user or the caller names a compiler or its flags for the CPU. */
async function findShipped(source: NativeSource, options: CompileOptions): Promise<Compiled | undefined> {
  const isOwnChoice = options.compiler !== undefined || options.cpuFlags !== undefined;
  if (isOwnChoice || process.env.CC || demandedCpuFlags() !== undefined) return undefined;
  const search = await findPrebuilt(source);
  if (search.found !== undefined) return { ...search.found, wasCached: true };
  if (search.isCorrupt === true) options.event?.(`${search.reason}. The kernel is compiled on this machine instead.`);
  return undefined;
}

/** Loads from a copy in memory that cannot change if the system allows it, else from the file. */
function takeSealed<T>(compiled: Compiled, take: (compiled: Compiled) => T): T {
  const path = sealedPath(compiled.key, compiled.library);
  if (path !== undefined) {
    try {
      return take({ ...compiled, path });
    } catch {
      // Loading the file may succeed, or fails with a clearer reason.
    }
  }
  return take(compiled);
}

const unloadable = ({ path }: Compiled, error: unknown): CompileFailure =>
  new CompileFailure(`${path} cannot be loaded: ${(error as Error).message}`, { isAvoidable: true });

/** Libraries that are being compiled, and libraries that no cache could store; by cache folder and key. */
const ofThisProcess = new Map<string, Promise<Compiled>>();

/**
 * The shared library for a source; compiled at most once per source, definitions, compiler and CPU. Several processes
 * may call it at once. If no cache can be written, only this process has the library. Throws `CompileFailure`.
 */
export async function compileNative(source: NativeSource, options: CompileOptions = {}): Promise<Compiled> {
  const job = await jobOf(source, options);
  const place = `${job.cacheFolder ?? ''}\0${job.key}`;
  const known = ofThisProcess.get(place);
  if (known !== undefined) return known;
  const compiled = findOrCompile(job);
  ofThisProcess.set(place, compiled);
  try {
    if ((await compiled).isCacheable) ofThisProcess.delete(place);
  } catch (error) {
    ofThisProcess.delete(place);
    throw error;
  }
  return compiled;
}

interface CompileJob {
  readonly compiler: string;
  readonly compilerArguments: readonly string[];
  readonly cpuFlags: readonly string[];
  /** The arguments after the flags for the CPU and the output. */
  readonly rest: readonly string[];
  /** The start of the library's file name: the source's name and a digest of all inputs of the compilation. */
  readonly key: string;
  readonly sourceDigest: string;
  readonly cacheFolder: string | undefined;
  readonly event: CompileOptions['event'];
}

async function jobOf(source: NativeSource, options: CompileOptions): Promise<CompileJob> {
  const [compiler = 'cc', ...compilerArguments] = (options.compiler ?? (process.env.CC || 'cc')).trim().split(/\s+/);
  const sourceDigest = await sourceDigestOf(source);
  const version = await compilerVersion(compiler, compilerArguments);
  const demanded = options.cpuFlags ?? demandedCpuFlags();
  const hash = createHash('sha256');
  for (const part of [sourceDigest, compiler, ...compilerArguments, version, demanded ?? '', await cpuIdentity()]) {
    hash.update(part).update('\0');
  }
  return {
    compiler,
    compilerArguments,
    cpuFlags: demanded === undefined ? ownCpuFlags : [demanded],
    rest: compilerArgumentsOf(source),
    key: `${basename(source.file, '.c')}-${hash.digest('hex').slice(0, 32)}`,
    sourceDigest,
    cacheFolder: options.cacheFolder ?? defaultCacheFolder(),
    event: options.event,
  };
}

async function findOrCompile(job: CompileJob): Promise<Compiled & { readonly isCacheable: boolean }> {
  const { cacheFolder, key, sourceDigest, event } = job;
  if (cacheFolder !== undefined) {
    const { path, library, corruptCount } = await findLibrary(cacheFolder, key);
    if (path !== undefined && library !== undefined) {
      return { path, key, library, wasCached: true, sourceDigest, isCacheable: true };
    }
    if (corruptCount > 0) event?.(`A compiled kernel in ${cacheFolder} was corrupt. It is compiled again.`);
  }
  const workFolder = await newWorkFolder().catch((error: unknown) => {
    throw new CompileFailure(`a temporary folder cannot be made: ${reasonOf(error)}`, { isAvoidable: true });
  });
  const output = join(workFolder, `${key}.so`);
  try {
    await whenCoreIsIdle(() => compileFor(job, output));
    const library = await readFile(output);
    const path = await keep(job, library);
    if (path === undefined) keepUntilExit(workFolder);
    else await removeWorkFolder(workFolder);
    return { path: path ?? output, key, library, wasCached: false, sourceDigest, isCacheable: path !== undefined };
  } catch (error) {
    await removeWorkFolder(workFolder);
    throw new CompileFailure(reasonOf(error), { isAvoidable: !/#error.*this CPU lacks/.test(outputOf(error)) });
  }
}

/** Stores the library in the cache; undefined if the cache cannot be written. */
async function keep({ cacheFolder, key, event }: CompileJob, library: Uint8Array): Promise<string | undefined> {
  const remedy = 'Kernels are compiled again at each start. Set XDG_CACHE_HOME to a folder that can be written.';
  if (cacheFolder === undefined) {
    event?.(`There is no cache folder: the user has no home. ${remedy}`);
    return undefined;
  }
  try {
    return await keepLibrary(cacheFolder, key, library);
  } catch (error) {
    event?.(`The cache folder ${cacheFolder} cannot be used: ${reasonOf(error)}. ${remedy}`);
    return undefined;
  }
}

/** A model needs several kernels, and as many compilers as cores run at once. */
let idleCores = availableParallelism();
const waiting: (() => void)[] = [];

async function whenCoreIsIdle<T>(work: () => Promise<T>): Promise<T> {
  if (idleCores > 0) idleCores--;
  else await new Promise<void>((resolve) => waiting.push(resolve));
  try {
    return await work();
  } finally {
    const next = waiting.shift();
    if (next === undefined) idleCores++;
    else next();
  }
}

async function compileFor({ compiler, compilerArguments, cpuFlags, rest }: CompileJob, output: string): Promise<void> {
  for (const [index, cpuFlag] of cpuFlags.entries()) {
    try {
      await run(compiler, [...compilerArguments, ...cpuFlag.split(/\s+/), '-o', output, ...rest], { timeout: 60_000 });
      return;
    } catch (error) {
      if (index === cpuFlags.length - 1) throw error;
    }
  }
}

/** The output of `--version`, by compiler. A model needs several kernels, and a process asks each compiler once. */
const versions = new Map<string, Promise<string>>();

async function compilerVersion(compiler: string, before: readonly string[]): Promise<string> {
  const place = [process.env.PATH, compiler, ...before].join('\0');
  try {
    let version = versions.get(place);
    if (version === undefined) {
      version = run(compiler, [...before, '--version'], { timeout: 20_000 }).then(({ stdout }) => stdout);
      versions.set(place, version);
    }
    return await version;
  } catch (error) {
    versions.delete(place);
    const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    if (isMissing) throw new CompileFailure(`there is no C compiler \`${compiler}\``, { needsCompiler: true });
    throw new CompileFailure(reasonOf(error), { isAvoidable: true });
  }
}

/** All that decides `-march=native`: code for one CPU may be illegal on another CPU that shares the cache folder. */
async function cpuIdentity(): Promise<string> {
  const model = cpus()[0]?.model ?? '';
  const details = await readFile('/proc/cpuinfo', 'utf8').catch(() => '');
  const features = /^(?:flags|Features)\s*:.*$/m.exec(details)?.[0] ?? '';
  return `${process.platform} ${process.arch} ${model} ${features}`;
}

/** The first line with an error, else the first line with text. Of a command without messages: how it ended. */
function reasonOf(error: unknown): string {
  const { cmd, stderr, signal, code } = error as { cmd?: string; stderr?: string; signal?: string; code?: unknown };
  if (cmd !== undefined && !stderr?.trim() && typeof code !== 'string') {
    const [compiler] = cmd.split(' ');
    return `the C compiler \`${compiler}\` ended without a message, with ${signal ? `signal ${signal}` : `exit code ${code}`}`;
  }
  const lines = outputOf(error)
    .split('\n')
    .filter((line) => line.trim() !== '');
  return (lines.find((line) => /error/i.test(line)) ?? lines[0] ?? 'the compiler failed').trim();
}

function outputOf(error: unknown): string {
  const { stderr, message } = error as { stderr?: string; message?: string };
  return stderr || message || String(error);
}
