/**
 * Fails one chosen call among all system calls that the sources make, in this thread and in all threads that it starts afterwards.
 * All other calls happen as usual: only the result of the chosen call is replaced.
 *
 * A call belongs to a site: the function of the system, and the place of the call in the sources. Threads run at different speeds. So
 * "the third call at this site" is the same call in each run, but "the 97th call of all" is not.
 *
 * The file imports only Node's modules, because threads load it (compiled) before their own modules.
 */
import fs from 'node:fs';
import promises from 'node:fs/promises';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import workerThreads, { isMainThread, type WorkerOptions } from 'node:worker_threads';

const sitesMax = 512;
const nameBytes = 384;
const field = { lock: 0, siteCount: 1, isOn: 2, site: 3, remaining: 4, errno: 5, hasFailed: 6, threads: 7 } as const;
const fieldCount = 16;
/** A thread has the lock for some microseconds. */
const lockMaxMs = 10_000;

/** Names, numbers and texts of the system's errors. */
const errnos = [
  ['EIO', 5, 'i/o error'],
  ['ENOSPC', 28, 'no space left on device'],
  ['EACCES', 13, 'permission denied'],
  ['ENOMEM', 12, 'not enough memory'],
  ['EMFILE', 24, 'too many open files'],
] as const;

export interface Site {
  readonly name: string;
  /** Calls since `begin`. */
  readonly calls: number;
}

/** The state that all threads share: the number of calls of each site, and the call that fails. */
export class FaultPoints {
  readonly memory: SharedArrayBuffer;
  readonly #fields: Int32Array;
  readonly #calls: Int32Array;
  readonly #names: Uint8Array;
  /** Sites that this thread has looked up. */
  readonly #known = new Map<string, number>();

  constructor(memory = new SharedArrayBuffer(4 * (fieldCount + sitesMax) + sitesMax * nameBytes)) {
    this.memory = memory;
    this.#fields = new Int32Array(memory, 0, fieldCount);
    this.#calls = new Int32Array(memory, 4 * fieldCount, sitesMax);
    this.#names = new Uint8Array(memory, 4 * (fieldCount + sitesMax));
  }

  /** Counts calls from now on, and fails the `nth` call (from 1) at `site` if they are given. `errno`: any number. */
  begin(fault?: { readonly site: string; readonly nth: number; readonly errno: number }): void {
    this.#calls.fill(0);
    this.#fields[field.hasFailed] = 0;
    this.#fields[field.site] = fault === undefined ? -1 : this.#indexOf(fault.site);
    this.#fields[field.remaining] = fault?.nth ?? 0;
    this.#fields[field.errno] = (fault?.errno ?? 0) % errnos.length;
    Atomics.store(this.#fields, field.isOn, 1);
  }

  /** Stops counting. */
  end(): void {
    Atomics.store(this.#fields, field.isOn, 0);
  }

  /** Whether the chosen call has happened, and has failed. */
  get hasFailed(): boolean {
    return Atomics.load(this.#fields, field.hasFailed) === 1;
  }

  /** Sites with calls since `begin`. */
  sites(): Site[] {
    const found: Site[] = [];
    for (let index = 0; index < Atomics.load(this.#fields, field.siteCount); index++) {
      const calls = Atomics.load(this.#calls, index);
      if (calls > 0) found.push({ name: this.#nameAt(index), calls });
    }
    return found.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Threads that were started and have not ended. */
  get threadCount(): number {
    return Atomics.load(this.#fields, field.threads);
  }

  countThreads(change: 1 | -1): void {
    Atomics.add(this.#fields, field.threads, change);
  }

  /** Counts a call that the sources make. Returns the error if this is the call that must fail. */
  hit(call: string, path?: unknown): NodeJS.ErrnoException | undefined {
    if (Atomics.load(this.#fields, field.isOn) === 0) return undefined;
    const place = placeInSources();
    if (place === undefined) return undefined;
    const index = this.#indexOf(`${call} in ${place}`);
    Atomics.add(this.#calls, index, 1);
    if (index !== this.#fields[field.site] || Atomics.sub(this.#fields, field.remaining, 1) !== 1) return undefined;
    Atomics.store(this.#fields, field.hasFailed, 1);
    const [code, errno, text] = errnos[this.#fields[field.errno]!]!;
    const syscall = call.replace(/Sync$/, '').replace(/^handle\./, '');
    const about = typeof path === 'string' ? ` '${path}'` : '';
    return Object.assign(new Error(`${code}: ${text}, ${syscall}${about}`), { code, errno: -errno, syscall });
  }

  #indexOf(name: string): number {
    let index = this.#known.get(name);
    if (index === undefined) {
      // A thread that was terminated may have the lock.
      const untilMs = performance.now() + lockMaxMs;
      while (Atomics.compareExchange(this.#fields, field.lock, 0, 1) !== 0 && performance.now() < untilMs);
      index = this.#find(name);
      Atomics.store(this.#fields, field.lock, 0);
      this.#known.set(name, index);
    }
    return index;
  }

  #find(name: string): number {
    const count = this.#fields[field.siteCount]!;
    for (let index = 0; index < count; index++) if (this.#nameAt(index) === name) return index;
    if (count === sitesMax) throw new Error(`there are more than ${sitesMax} sites`);
    this.#names.set(new TextEncoder().encode(name).subarray(0, nameBytes), count * nameBytes);
    this.#fields[field.siteCount] = count + 1;
    return count;
  }

  #nameAt(index: number): string {
    const bytes = this.#names.slice(index * nameBytes, (index + 1) * nameBytes);
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
  }
}

const root = process.cwd();

/** The innermost two functions of the sources on the stack; undefined if the sources do not make this call. */
function placeInSources(): string | undefined {
  const { prepareStackTrace, stackTraceLimit } = Error;
  Error.stackTraceLimit = 40;
  Error.prepareStackTrace = (_, sites) => sites;
  const stack = new Error().stack as unknown as NodeJS.CallSite[];
  Error.prepareStackTrace = prepareStackTrace;
  Error.stackTraceLimit = stackTraceLimit;
  const frames: string[] = [];
  for (const frame of stack) {
    const file = frame.getFileName()?.replace('file://', '');
    if (file === undefined || !file.startsWith(root)) continue;
    const [, path] = /^\/(?:dist\/)?src\/(.*)\.[jt]s/.exec(file.slice(root.length)) ?? [];
    if (path === undefined || path.endsWith('.test')) continue;
    const line = frames.length === 0 ? `:${frame.getLineNumber()}:${frame.getColumnNumber()}` : '';
    frames.push(`${frame.getFunctionName()?.replace(/^(async|Object\.) ?/, '') ?? 'function'} (${path}${line})`);
    if (frames.length === 2) break;
  }
  return frames.length === 0 ? undefined : frames.join(' from ');
}

const syncCalls =
  'open close read readv write writev fstat stat lstat readdir readFile writeFile rename unlink utimes mkdir link rm rmdir fsync fdatasync mkdtemp';
const asyncCalls = 'open stat lstat readFile writeFile readdir rename unlink mkdir mkdtemp rm rmdir utimes';
const handleCalls = 'read readv write writev readFile writeFile sync datasync stat truncate';

type Call = (...args: unknown[]) => unknown;
type Calls = Record<string, Call>;

/** Replaces the functions of `node:fs`. `handle`: any open file. A failed close has closed the file, as on Linux. */
function installFiles(points: FaultPoints, handle: object): void {
  const sync = fs as unknown as Calls;
  for (const name of syncCalls.split(' ').map((call) => `${call}Sync`)) {
    const original = sync[name]!;
    sync[name] = function (this: unknown, ...args: unknown[]) {
      const error = points.hit(name, args[0]);
      if (error === undefined) return original.apply(this, args);
      if (name === 'closeSync') original.apply(this, args);
      throw error;
    };
  }
  const existing = fs.existsSync;
  fs.existsSync = (path) => points.hit('existsSync', path) === undefined && existing(path);
  for (const [calls, names, prefix] of [
    [promises as unknown as Calls, asyncCalls, ''],
    [Object.getPrototypeOf(handle) as Calls, handleCalls, 'handle.'],
  ] as const) {
    for (const name of names.split(' ')) {
      const original = calls[name]!;
      calls[name] = function (this: unknown, ...args: unknown[]) {
        const error = points.hit(`${prefix}${name}`, prefix === '' ? args[0] : undefined);
        return error === undefined ? original.apply(this, args) : Promise.reject(error);
      };
    }
  }
  const { open } = promises;
  promises.open = async (...args) => {
    const handle = await open(...args);
    // Each handle has its own `close`.
    const { close } = handle;
    handle.close = async () => {
      const error = points.hit('handle.close');
      await close();
      if (error !== undefined) throw error;
    };
    return handle;
  };
  syncBuiltinESMExports();
}

/** Results of native functions without memory. Other functions end the process (`GGML_ABORT`) or cannot fail. */
const outOfMemory: Readonly<Record<string, unknown>> = {
  ggml_backend_alloc_ctx_tensors_from_buft: 0,
  ggml_backend_buft_alloc_buffer: 0,
  ggml_backend_dev_init: 0,
  ggml_gallocr_alloc_graph: false,
  ggml_backend_graph_compute: -2,
  llama_model_load_from_file: 0,
  memfd_create: -1,
  fcntl: -1,
  madvise: -1,
};

/** Native functions that open an object, and the functions that close it. */
const closedBy: Readonly<Record<string, string>> = {
  ggml_init: 'ggml_free',
  ggml_gallocr_new: 'ggml_gallocr_free',
  ggml_backend_dev_init: 'ggml_backend_free',
  ggml_backend_alloc_ctx_tensors_from_buft: 'ggml_backend_buffer_free',
  ggml_backend_buft_alloc_buffer: 'ggml_backend_buffer_free',
  llama_model_load_from_file: 'llama_model_free',
};

/** Native objects of this thread that are open, by the function that closes them. */
export class OpenObjects {
  readonly #open = new Map<string, Set<unknown>>(Object.values(closedBy).map((name) => [name, new Set()]));

  returned(name: string, object: unknown): void {
    const closer = closedBy[name];
    if (closer !== undefined && object !== 0) this.#open.get(closer)!.add(object);
  }

  called(name: string, [object]: readonly unknown[]): void {
    this.#open.get(name)?.delete(object);
  }

  counts(): Record<string, number> {
    return Object.fromEntries([...this.#open].map(([closer, { size }]) => [closer, size]));
  }
}

type Library = { func: Call };

function installNative(points: FaultPoints, koffi: { load: Call }, open: OpenObjects): void {
  const { load } = koffi;
  const watched = new Set([...Object.keys(outOfMemory), ...Object.keys(closedBy), ...Object.values(closedBy)]);
  koffi.load = (...args) => {
    const library = load(...args) as Library;
    const func = (...signature: unknown[]): unknown => {
      const original = library.func(...signature) as Call;
      const name = String(signature[0]);
      if (!watched.has(name)) return original;
      const watchedCall = (...args: unknown[]): unknown => {
        if (name in outOfMemory && points.hit(name) !== undefined) return outOfMemory[name];
        open.called(name, args);
        const returned = original(...args);
        open.returned(name, returned);
        return returned;
      };
      /** koffi's call on a thread. */
      const async = (...given: unknown[]): void => {
        const args = given.slice(0, -1);
        const done = given.at(-1) as (error: unknown, result: unknown) => void;
        if (name in outOfMemory && points.hit(name) !== undefined) {
          setImmediate(done, null, outOfMemory[name]);
          return;
        }
        open.called(name, args);
        (original as unknown as { async(...args: unknown[]): void }).async(
          ...args,
          (error: unknown, result: unknown) => {
            open.returned(name, result);
            done(error, result);
          },
        );
      };
      return Object.assign(watchedCall, { async });
    };
    return new Proxy(library, {
      get(target, name) {
        if (name === 'func') return func;
        const value: unknown = Reflect.get(target, name);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    });
  };
}

/** Memory outside the heap that JavaScript allocates. */
function installBuffers(points: FaultPoints): void {
  for (const name of ['ArrayBuffer', 'SharedArrayBuffer'] as const) {
    const original = globalThis[name];
    globalThis[name] = new Proxy(original as never, {
      construct(target, args, newTarget) {
        if (points.hit(`new ${name}`) !== undefined) throw new RangeError('Array buffer allocation failed');
        return Reflect.construct(target, args, newTarget === proxyOf.get(name) ? target : newTarget) as object;
      },
    });
    proxyOf.set(name, globalThis[name] as never);
  }
}
const proxyOf = new Map<string, never>();

const dataName = 'kvasir fault points';

/** Threads that this thread starts load `entry`, which is this module, before their own modules. */
function installThreads(points: FaultPoints, entry: string): void {
  workerThreads.setEnvironmentData(dataName, points.memory);
  workerThreads.Worker = class extends workerThreads.Worker {
    constructor(file: string | URL, options: WorkerOptions = {}) {
      super(file, { ...options, execArgv: [...(options.execArgv ?? []), '--import', pathToFileURL(entry).href] });
      points.countThreads(1);
      this.once('exit', () => points.countThreads(-1));
    }
  };
  syncBuiltinESMExports();
}

/** For the main thread. `entry`: this module, compiled. `koffi`: the instance that the sources import. */
export async function installFaultPoints(
  entry: string,
  koffi: { load: Call },
): Promise<{ readonly points: FaultPoints; readonly open: OpenObjects }> {
  const points = new FaultPoints();
  const open = new OpenObjects();
  const handle = await promises.open(join(root, 'package.json'));
  installFiles(points, handle);
  await handle.close();
  installNative(points, koffi, open);
  installBuffers(points);
  installThreads(points, entry);
  return { points, open };
}

async function installInThread(memory: SharedArrayBuffer): Promise<void> {
  const points = new FaultPoints(memory);
  const handle = await promises.open(join(root, 'package.json'));
  installFiles(points, handle);
  await handle.close();
  const koffi = createRequire(join(root, 'package.json'))
    .resolve('koffi')
    .replace(/index\.cjs$/, 'index.js');
  const loaded = (await import(pathToFileURL(koffi).href)) as { default: { load: Call } };
  installNative(points, loaded.default, new OpenObjects());
}

const ofThread = isMainThread ? undefined : workerThreads.getEnvironmentData(dataName);
if (ofThread instanceof SharedArrayBuffer) await installInThread(ofThread);
