import { execFile } from 'node:child_process';
import { createHash, randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readFile, rename, rm } from 'node:fs/promises';
import { availableParallelism, cpus, homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

/**
 * C that is compiled on the machine that runs it, when a model is loaded: for this very CPU, and for the shapes of this
 * very model. Installing the package compiles nothing.
 */
export interface NativeSource {
  /** The translation unit, a file of this folder. */
  readonly file: string;
  /** Files it includes. */
  readonly headers: readonly string[];
  readonly definitions: Readonly<Record<string, number>>;
}

export interface CompileOptions {
  /** Command, with arguments perhaps; default: the environment's `CC`, else `cc`. */
  readonly compiler?: string | undefined;
  /** Default: the user's cache folder. */
  readonly cacheFolder?: string | undefined;
  /** For which CPU, in the compiler's words; default: `demandedCpuFlags`, else this one. */
  readonly cpuFlags?: string | undefined;
}

export interface Compiled {
  readonly path: string;
  /** Whether an earlier process had compiled it. */
  readonly wasCached: boolean;
}

/** A reason in words, for one line of a log: the caller does without. */
export class CompileFailure extends Error {}

const run = promisify(execFile);

// Without -ffast-math and with contraction off, what is computed in which order is the source's decision alone.
const flags = ['-O3', '-ffp-contract=off', '-std=gnu11', '-shared', '-fPIC'];
/** Compilers disagree about how to say "this CPU" for ARM. */
const ownCpuFlags = ['-march=native', '-mcpu=native'];

/**
 * `KVASIR_CPU_FLAGS=-march=haswell` compiles for another CPU than this one: it is how tests and measurements reach the
 * forms of kernels that other CPUs get. Undefined is the rule.
 */
export const demandedCpuFlags = (): string | undefined => process.env.KVASIR_CPU_FLAGS?.trim() || undefined;

/**
 * The shared library for a source; compiled at most once per source, definitions, compiler and CPU. Several processes may
 * do so at once: each writes a file of its own and renames it. Throws `CompileFailure`.
 */
export async function compileNative(source: NativeSource, options: CompileOptions = {}): Promise<Compiled> {
  const [compiler = 'cc', ...compilerArguments] = (options.compiler ?? (process.env.CC || 'cc')).trim().split(/\s+/);
  const folder = sourceFolder(source.file);
  const definitions = Object.entries(source.definitions).map(([name, value]) => `-D${name}=${value}`);
  const version = await compilerVersion(compiler, compilerArguments);
  const demanded = options.cpuFlags ?? demandedCpuFlags();
  const hash = createHash('sha256');
  for (const file of [source.file, ...source.headers]) hash.update(await readFile(join(folder, file))).update('\0');
  for (const part of [
    compiler,
    ...compilerArguments,
    ...flags,
    ...definitions,
    version,
    demanded ?? '',
    await cpuIdentity(),
  ]) {
    hash.update(part).update('\0');
  }
  const cacheFolder = options.cacheFolder ?? defaultCacheFolder();
  const path = join(cacheFolder, `${source.file.replace(/\.c$/, '')}-${hash.digest('hex').slice(0, 32)}.so`);
  if (existsSync(path)) return { path, wasCached: true };
  const temporary = `${path}.${process.pid}.${randomUUID()}`;
  try {
    await mkdir(cacheFolder, { recursive: true, mode: 0o700 });
    const rest = [...flags, ...definitions, '-o', temporary, join(folder, source.file), '-lm'];
    const cpuFlags = demanded === undefined ? ownCpuFlags : [demanded];
    await inTurn(() => compileFor(cpuFlags, compiler, compilerArguments, rest));
    await rename(temporary, path);
    return { path, wasCached: false };
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => undefined);
    throw new CompileFailure(reasonOf(error));
  }
}

/** A model wants several kernels: as many compilers run at once as there are cores. */
let idleCores = availableParallelism();
const waiting: (() => void)[] = [];

async function inTurn<T>(work: () => Promise<T>): Promise<T> {
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

async function compileFor(cpuFlags: string[], compiler: string, before: string[], after: string[]): Promise<void> {
  for (const [index, cpuFlag] of cpuFlags.entries()) {
    try {
      await run(compiler, [...before, ...cpuFlag.split(/\s+/), ...after], { timeout: 60_000 });
      return;
    } catch (error) {
      if (index === cpuFlags.length - 1) throw error;
    }
  }
}

async function compilerVersion(compiler: string, before: readonly string[]): Promise<string> {
  try {
    return (await run(compiler, [...before, '--version'], { timeout: 20_000 })).stdout;
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    throw new CompileFailure(isMissing ? `there is no C compiler \`${compiler}\`` : reasonOf(error));
  }
}

/** What `-march=native` looks at: code for one CPU may be illegal on another that shares the cache folder. */
async function cpuIdentity(): Promise<string> {
  const model = cpus()[0]?.model ?? '';
  const details = await readFile('/proc/cpuinfo', 'utf8').catch(() => '');
  const features = /^(?:flags|Features)\s*:.*$/m.exec(details)?.[0] ?? '';
  return `${process.platform} ${process.arch} ${model} ${features}`;
}

/** Where the platform keeps what can be made again. */
function defaultCacheFolder(): string {
  const { XDG_CACHE_HOME, LOCALAPPDATA } = process.env;
  if (XDG_CACHE_HOME) return join(XDG_CACHE_HOME, 'kvasir');
  if (process.platform === 'darwin') return join(homedir(), 'Library', 'Caches', 'kvasir');
  if (process.platform === 'win32' && LOCALAPPDATA) return join(LOCALAPPDATA, 'kvasir', 'cache');
  return join(homedir(), '.cache', 'kvasir');
}

/** C is not built into `dist`: it lies beside this file in the repository, and under `src` in the package. */
function sourceFolder(file: string): string {
  const folders = ['./', '../../../../src/runner/native/'].map((path) => fileURLToPath(new URL(path, import.meta.url)));
  const found = folders.find((folder) => existsSync(join(folder, file)));
  if (found === undefined) throw new CompileFailure(`${file} is not in the package`);
  return found;
}

/** The first line that says something. */
function reasonOf(error: unknown): string {
  const { stderr, message } = error as { stderr?: string; message?: string };
  const lines = (stderr || message || String(error)).split('\n').filter((line) => line.trim() !== '');
  return (lines.find((line) => /error/i.test(line)) ?? lines[0] ?? 'the compiler failed').trim();
}
