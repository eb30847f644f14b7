import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server as NetServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ParentKeeper } from '../../src/cli/models/parent-keeper.ts';
import { modelFileChanged } from '../../src/ggml/errors.ts';
import { hubRefused } from '../../src/hub/errors.ts';
import type { LoadStatus } from '../../src/server/loading-routes.ts';
import {
  type ModelEntry,
  type ModelProcess,
  type ModelProcessHooks,
  type ModelSource,
  type PreparedModel,
  ProcessEnded,
  type ServedFacts,
} from '../../src/server/models/contract.ts';
import { ModelPool, type ModelPoolOptions } from '../../src/server/models/model-pool.ts';
import { servedModels } from '../../src/server/models/served-models.ts';
import { Server, type ServerOptions } from '../../src/server/server.ts';
import { LetterEngine, type LetterEngineOptions } from './letter-engine.ts';
import { ManualTime } from './manual-time.ts';

/** A server in this process that stands in for the process of a model. The test decides when its model is loaded. */
export class HereProcess implements ModelProcess {
  readonly engine: LetterEngine;
  readonly socketPath: string;
  readonly ready: Promise<ServedFacts>;
  readonly gone: Promise<string>;
  isBusy = false;
  silentMs: number | undefined;
  wasStopped = false;
  readonly #hooks: ModelProcessHooks;
  readonly #server: Server;
  readonly #keeper: ParentKeeper;
  readonly #names: readonly string[];
  #settle!: { resolve(facts: ServedFacts): void; reject(error: Error): void };
  #end!: (reason: string) => void;
  #hanging: NetServer | undefined;

  constructor(
    { name, aliases }: ModelEntry,
    socketPath: string,
    hooks: ModelProcessHooks,
    options: LetterEngineOptions & Partial<ServerOptions>,
  ) {
    this.#names = [name, ...aliases];
    this.socketPath = socketPath;
    this.#hooks = hooks;
    this.engine = new LetterEngine({ maxModelLen: 4096, ...options });
    Object.assign(this.engine.model, { name, aliases });
    this.#keeper = new ParentKeeper(hooks.responses, (tenant, response) => hooks.onStored(tenant, response));
    const own = { version: '0.0.0', logLevel: 'silent', responseKeeper: this.#keeper } as const;
    this.#server = new Server(this.engine, { ...own, ...options });
    this.ready = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    this.ready.catch(() => undefined);
    this.gone = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  progress(status: LoadStatus): void {
    this.#hooks.onProgress(status);
  }

  async load(): Promise<void> {
    await this.#server.listenAt(this.socketPath);
    this.#settle.resolve({ names: this.#names, maxModelLen: 4096, architecture: 'letters' });
  }

  fail(error: Error): void {
    this.#settle.reject(error);
    this.#end('exited with code 1');
  }

  /** The engine has ended its work in the background. */
  idle(): void {
    this.isBusy = false;
    this.#hooks.onIdle();
  }

  forget(tenant: string | undefined, id: string): void {
    this.#keeper.forget(tenant, id);
  }

  /** The engine is broken. Its process has not ended yet. */
  breaks(reason: string): void {
    this.#hooks.onBroken(reason);
  }

  stop(): void {
    this.wasStopped = true;
    void this.#server.drain(60_000).then(() => this.#end('exited with code 0'));
  }

  /** A process that ends closes its sockets first, before its parent knows of the end. */
  closeSockets(): Promise<void> {
    return this.#server.close();
  }

  /** Accepts connections, and answers none. */
  async hang(): Promise<void> {
    await this.#server.close();
    this.#hanging = createServer().listen(this.socketPath);
    await once(this.#hanging, 'listening');
  }

  kill(): void {
    this.#hanging?.close();
    this.#settle.reject(new ProcessEnded('its process died of SIGKILL'));
    void this.#server.close().then(() => this.#end('died of SIGKILL'));
  }
}

export interface PoolOptions extends Partial<ModelPoolOptions> {
  /** Memory by the name of the model; two numbers: on the machine and on the GPU. */
  readonly models?: Readonly<Record<string, number | readonly [number, number]>>;
  /** Whether models are loaded at once. */
  readonly loads?: boolean;
  readonly engine?: LetterEngineOptions & Partial<ServerOptions>;
}

/** A pool of models whose processes are servers in this process. */
export function poolHere({ models = { a: 1, b: 1 }, loads = true, engine = {}, ...options }: PoolOptions = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'kvasir-pool-'));
  const entries = new Map(
    Object.entries(models).map(([name, memory]) => {
      const [bytes, gpuBytes = 0] = typeof memory === 'number' ? [memory] : memory;
      return [name, { name, aliases: [`${name}-alias`], bytes, gpuBytes }];
    }),
  );
  /** Each process that was started. */
  const started: HereProcess[] = [];
  const time = new ManualTime();
  const lines: string[] = [];
  /** Models whose files have changed. */
  const changed = new Set<string>();
  let startFailure: Error | undefined;
  const source: ModelSource = {
    list: async () => [...entries.values()],
    find: async (name) => [...entries.values()].find((entry) => entry.name === name || entry.aliases.includes(name)),
    pull:
      ({ name }) =>
      async ({ onProgress }) => {
        if (name === 'b')
          throw hubRefused({ endpoint: 'https://hub', status: 404, what: name, reason: 'none', remedy: 'Ask' });
        for (const done of [1, 2]) onProgress(done, 2);
      },
    prepare: async (entry): Promise<PreparedModel> => ({
      bytes: (entry as { readonly bytes?: number }).bytes ?? 1,
      gpuBytes: (entry as { readonly gpuBytes?: number }).gpuBytes ?? 0,
      checkFiles: async () => {
        if (changed.has(entry.name)) throw modelFileChanged({ path: entry.name, problem: 'it is half' });
      },
      start: (hooks) => {
        const failure = startFailure;
        startFailure = undefined;
        if (failure !== undefined) throw failure;
        const process = new HereProcess(entry, join(folder, String(started.length)), hooks, engine);
        started.push(process);
        if (loads) void process.load();
        return process;
      },
    }),
  };
  const pool = new ModelPool(source, {
    memoryMaxBytes: 2,
    idleTimeoutMs: Infinity,
    waitMaxMs: 60_000,
    responseStoreMaxBytes: 1024 ** 2,
    timers: time,
    clock: time,
    log: (_, message) => void lines.push(message),
    ...options,
  });
  const processOf = (name: string): HereProcess | undefined =>
    started.findLast(({ engine: { model } }) => model.name === name);
  const close = async (): Promise<void> => {
    await pool.close();
    rmSync(folder, { recursive: true });
  };
  const states = async () => Object.fromEntries((await pool.reports()).map(({ entry, state }) => [entry.name, state]));
  const failNextStart = (error: Error): void => {
    startFailure = error;
  };
  return { pool, entries, started, processOf, time, lines, close, states, failNextStart, changed };
}

/** A server of several models, whose processes are servers in this process. */
export async function serveModelsHere(options: PoolOptions = {}, serverOptions: Partial<ServerOptions> = {}) {
  const here = poolHere(options);
  const server = new Server(servedModels(here.pool), { version: '0.0.0', logLevel: 'silent', ...serverOptions });
  const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  const post = (path: string, body: object, headers: Record<string, string> = {}, signal?: AbortSignal) =>
    fetch(origin + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
      ...(signal === undefined ? {} : { signal }),
    });
  const close = async (): Promise<void> => {
    await server.close();
    await here.close();
  };
  return { ...here, server, origin, post, close };
}
