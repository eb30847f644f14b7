import { assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import { KvasirError } from '../../base/errors.ts';
import type { Timers } from '../../base/timers.ts';
import { engineClosed } from '../../core/errors.ts';
import type { EngineEvent } from '../../engine/contract.ts';
import { engineBroken } from '../../engine/errors.ts';
import type { Download } from '../apis/ollama/model-orders.ts';
import { clientGone, modelLoading } from '../http/server-errors.ts';
import type { LoadStatus } from '../loading-routes.ts';
import { type ModelEntry, type ModelReport, type ModelSource, type PreparedModel, ProcessEnded } from './contract.ts';
import { modelNotStarted, modelOverMemory, modelProcessEnded, modelUnknown } from './errors.ts';
import { KeptResponses } from './kept-responses.ts';
import { forgetNeverLoaded, PooledModel, type Waiter } from './pooled-model.ts';

export interface ModelPoolOptions {
  /** Of all loaded models together. */
  readonly memoryMaxBytes: number;
  /** The same on the GPU, for models that have layers there. */
  readonly gpuMaxBytes?: number;
  /** A model without requests for so long is unloaded. Infinity: never. */
  readonly idleTimeoutMs: number;
  /** Memory for the ended responses of all models. */
  readonly responseStoreMaxBytes: number;
  /** How long a request waits for its model. */
  readonly waitMaxMs: number;
  readonly timers: Timers;
  readonly clock: Clock;
  /** Writes a line of the server's log. */
  log(level: 'info' | 'error', message: string, fields: EngineEvent['fields']): void;
}

/** A loaded model that stays loaded until this is disposed of. */
export interface ModelLease extends Disposable {
  readonly model: string;
  readonly socketPath: string;
  /** Resolves when the process has ended, and the pool knows it. */
  readonly gone: Promise<unknown>;
}

/** In bytes, on the machine and on its GPU. */
interface Memory {
  readonly bytes: number;
  readonly gpuBytes: number;
}

export interface PoolCounts {
  readonly usedBytes: number;
  /** Requests that wait for a load. */
  readonly waiting: number;
  /** All requests that have not ended. */
  readonly open: number;
}

/**
 * The models of a server, each in a process of its own:
 *
 *     unloaded -> loading -> loaded -> unloading -> unloaded
 *                    |          |
 *                    +-> failed <-+    the load failed, or the process ended; the next request loads it again
 *
 * A load that needs memory waits for its turn. When it is the first, the models that were not used for the longest time leave: those without
 * requests at once, others when their requests have ended. New requests for a model that leaves wait for its next load, so that the
 * first load gets its turn.
 */
export class ModelPool {
  readonly kept: KeptResponses;
  readonly #source: ModelSource;
  readonly #options: ModelPoolOptions;
  readonly #models = new Map<string, PooledModel>();
  /** Loads that wait for memory, in order of arrival. */
  readonly #queue: { readonly model: PooledModel; readonly needs: Memory; settle(error?: Error): void }[] = [];
  #used: Memory = { bytes: 0, gpuBytes: 0 };
  #turn = 0;
  #isClosing: boolean = false;

  constructor(source: ModelSource, options: ModelPoolOptions) {
    this.#source = source;
    this.#options = options;
    this.kept = new KeptResponses(options.responseStoreMaxBytes);
  }

  /** Every model of the source, and those that are still loaded although their file is gone. */
  async reports(): Promise<ModelReport[]> {
    const entries = await this.#source.list();
    const names = new Set(entries.map(({ name }) => name));
    const others = [...this.#models.values()].filter(({ name, state }) => !names.has(name) && state !== 'unloaded');
    return [...entries.map((entry) => this.#reportOf(entry)), ...others.map((model) => model.report())];
  }

  /** By its name or an alias; undefined: there is no such model. */
  async find(name: string): Promise<ModelReport | undefined> {
    const loaded = this.#loadedAs(name);
    const entry = await this.#source.find(loaded?.name ?? name);
    if (entry === undefined) return loaded?.state === 'loaded' ? loaded.report() : undefined;
    return this.#reportOf(entry);
  }

  pull(entry: ModelEntry): Download {
    return this.#source.pull(entry);
  }

  /** Those that were asked for, without a look at files. */
  get all(): readonly ModelReport[] {
    return Array.from(this.#models.values(), (model) => model.report());
  }

  counts(): PoolCounts {
    let [waiting, active] = [0, 0];
    for (const model of this.#models.values()) {
      waiting += model.waiters.size;
      active += model.active;
    }
    return { usedBytes: this.#used.bytes, waiting, open: waiting + active };
  }

  /** The totals of loads, by model. */
  get totals(): readonly { readonly name: string; readonly loads: number; readonly failures: number }[] {
    return Array.from(this.#models.values(), ({ name, loads, failures }) => ({ name, loads, failures }));
  }

  /** The processes of all loaded models. */
  get loaded(): readonly { readonly name: string; readonly socketPath: string }[] {
    return Array.from(this.#models.values()).flatMap(({ name, state, process }) =>
      state === 'loaded' && process !== undefined ? [{ name, socketPath: process.socketPath }] : [],
    );
  }

  /**
   * A model for one request. Loads it if it is not loaded, and waits for it.
   * @throws modelUnknown, modelLoading after the time limit, clientGone, or why it cannot be loaded
   */
  async acquire(name: string, signal?: AbortSignal): Promise<ModelLease> {
    const model = await this.#modelOf(name);
    if (this.#isClosing) throw engineClosed();
    if (signal?.aborted) throw clientGone();
    model.lastUse = ++this.#turn;
    if (model.isServing) return this.#lease(model);
    const pause = model.pause(this.#nowMs());
    if (pause !== undefined) throw pause;
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        serve: () => end(() => resolve(this.#lease(model))),
        refuse: (error) => end(() => reject(error)),
      };
      const end = (settle: () => void): void => {
        if (!model.waiters.delete(waiter)) return;
        limit.cancel();
        signal?.removeEventListener('abort', leave);
        settle();
        if (model.waiters.size === 0) this.#forgetUnwanted(model);
      };
      const leave = (): void => waiter.refuse(clientGone());
      const limit = this.#options.timers.after(this.#options.waitMaxMs, () => {
        const { message, retryAfterSeconds } = model.progress;
        waiter.refuse(modelLoading({ progress: message, retryAfterSeconds }));
      });
      signal?.addEventListener('abort', leave, { once: true });
      model.waiters.add(waiter);
      this.#advance(model);
    });
  }

  /** A loaded model, for a request that neither loads it nor keeps it loaded. Undefined: it is not loaded. */
  async peek(name: string): Promise<{ readonly model: string; readonly socketPath: string } | undefined> {
    const { name: model, process, state } = await this.#modelOf(name);
    return state === 'loaded' && process !== undefined ? { model, socketPath: process.socketPath } : undefined;
  }

  /** The name of the model that answers to this name. @throws modelUnknown */
  async nameOf(name: string): Promise<string> {
    return (await this.#modelOf(name)).name;
  }

  /** Begins to load the model, also during its pause. @throws modelUnknown */
  async load(name: string): Promise<void> {
    const model = await this.#modelOf(name);
    model.endPause();
    this.acquire(model.name).then(
      (lease) => lease[Symbol.dispose](),
      () => undefined,
    );
  }

  /** Unloads the model as soon as no request uses it. @throws modelUnknown */
  async unload(name: string): Promise<void> {
    const model = await this.#modelOf(name);
    if (model.state === 'failed') {
      model.unloaded();
      model.endPause();
    }
    if (model.state !== 'loading' && model.state !== 'loaded') return;
    model.endsWhenIdle = true;
    this.#idle(model);
  }

  /** A loaded model has got an adapter, or lost one: requests name it as they name the model. */
  adapterChanged(model: string, adapter: string, isLoaded: boolean): void {
    this.#models.get(model)?.adapterChanged(adapter, isLoaded);
  }

  /** A stored response of the model was deleted: its process forgets it too. */
  forget(model: string, tenant: string | undefined, id: string): void {
    this.#models.get(model)?.process?.forget(tenant, id);
  }

  /** Refuses the requests that wait. Every process finishes its requests and ends; resolves when all have ended. */
  async drain(): Promise<void> {
    this.#isClosing = true;
    for (const { settle } of this.#queue.splice(0)) settle(engineClosed());
    const ends = Array.from(this.#models.values(), async (model) => {
      model.idle?.cancel();
      model.refuseAll(engineClosed());
      // A load has no request to finish.
      if (model.state === 'loading') model.process?.kill();
      else model.process?.stop();
      await model.process?.gone;
    });
    await Promise.all(ends);
  }

  /** Ends every process at once. */
  async close(): Promise<void> {
    for (const { process } of this.#models.values()) process?.kill();
    await this.drain();
  }

  async #modelOf(name: string): Promise<PooledModel> {
    const loaded = this.#loadedAs(name);
    const entry = await this.#source.find(loaded?.name ?? name);
    if (entry === undefined) {
      if (loaded !== undefined && loaded.state !== 'unloaded' && loaded.state !== 'failed') return loaded;
      throw modelUnknown({ parameter: 'model', requested: name.slice(0, 100) });
    }
    return this.#known(entry);
  }

  #reportOf(entry: ModelEntry): ModelReport {
    return this.#models.get(entry.name)?.report(entry) ?? { entry, state: 'unloaded' };
  }

  #known(entry: ModelEntry): PooledModel {
    const known = this.#models.get(entry.name);
    if (known === undefined) {
      const made = new PooledModel(entry);
      made.lastUse = ++this.#turn;
      this.#models.set(entry.name, made);
      forgetNeverLoaded(this.#models);
      return made;
    }
    known.entry = entry;
    return known;
  }

  /** A loaded model says itself which names it has, such as those of adapters. */
  #loadedAs(name: string): PooledModel | undefined {
    const known = this.#models.get(name);
    if (known !== undefined) return known;
    return Array.from(this.#models.values()).find(({ facts }) => facts?.names.includes(name));
  }

  #lease(model: PooledModel): ModelLease {
    const { process } = model;
    assert(process !== undefined && model.isServing, `${model.name} is not loaded`);
    model.idle?.cancel();
    model.active++;
    let isHeld = true;
    return {
      model: model.name,
      socketPath: process.socketPath,
      gone: process.gone,
      [Symbol.dispose]: () => {
        if (!isHeld) return;
        isHeld = false;
        model.active--;
        model.lastUse = ++this.#turn;
        this.#idle(model);
      },
    };
  }

  /** Serves the requests that wait if the model is loaded, or begins its load. */
  #advance(model: PooledModel): void {
    if (model.isServing) for (const waiter of [...model.waiters]) waiter.serve();
    else if (model.waiters.size > 0 && model.canBegin) {
      const pause = model.pause(this.#nowMs());
      if (pause === undefined) void this.#load(model);
      else model.refuseAll(pause);
    }
  }

  async #load(model: PooledModel): Promise<void> {
    model.begin();
    const onProgress = (status: LoadStatus): void => {
      model.progress = status;
    };
    let started: PreparedModel | undefined;
    try {
      const prepared = await this.#source.prepare(model.entry, onProgress);
      const { bytes, gpuBytes = 0 } = prepared;
      const limitBytes = this.#options.memoryMaxBytes;
      if (bytes > limitBytes) throw modelOverMemory({ model: model.name, bytes, limitBytes });
      await this.#takeMemory(model, { bytes, gpuBytes });
      if (this.#isClosing) throw engineClosed();
      const process = prepared.start({
        onProgress,
        onIdle: () => this.#idle(model),
        onBroken: (reason) => {
          if (model.process === process) this.#broke(model, reason);
        },
        onStored: (tenant, response) => this.kept.stored(model.name, tenant, response),
        responses: this.kept.statesOf(model.name),
      });
      model.started(process);
      started = prepared;
      void process.gone.then((reason) => this.#ended(model, reason));
      // The end of the process before its model is loaded is the end of the load.
      model.facts = await process.ready;
      if (model.process !== process) throw modelNotStarted({ model: model.name, code: 'ended' });
      model.loaded(this.#nowMs());
      this.#say('info', `the model ${model.name} is loaded`, {
        model: model.name,
        bytes,
        ...(gpuBytes === 0 ? {} : { gpuBytes }),
      });
      this.#advance(model);
      this.#idle(model);
    } catch (error) {
      // Half a file has any error, or ends the process.
      const changed = await started?.checkFiles?.().catch((cause: unknown) => cause);
      this.#failed(model, changed ?? error);
    }
  }

  #failed(model: PooledModel, error: unknown): void {
    // No request waits for it.
    if (error instanceof UnwantedLoad) {
      model.unloaded();
      this.#advance(model);
      return;
    }
    const known = error instanceof KvasirError ? error : undefined;
    const code = known?.code ?? (error instanceof ProcessEnded ? modelProcessEnded.definition.code : 'internal_error');
    const shown =
      known?.code === modelOverMemory.definition.code || known?.code === engineClosed.definition.code
        ? known
        : modelNotStarted({ model: model.name, code }, error);
    const reason = error instanceof Error ? error.message : String(error);
    if (!this.#isClosing) this.#say('error', `the model ${model.name} could not be loaded: ${reason}`, { code });
    model.failed({ code, message: shown.message }, this.#nowMs());
    if (model.process !== undefined) model.process.kill();
    else this.#giveMemoryBack(model);
    model.refuseAll(shown);
    this.#admit();
  }

  /** Resolves when the memory belongs to this model. */
  #takeMemory(model: PooledModel, needs: Memory): Promise<void> {
    if (this.#isClosing) throw engineClosed();
    return new Promise((resolve, reject) => {
      this.#queue.push({
        model,
        needs,
        settle: (error) => {
          if (error !== undefined) return reject(error);
          Object.assign(model, needs);
          this.#used = plus(this.#used, needs);
          resolve();
        },
      });
      model.progress = waitsForMemory(model.name);
      if (model.waiters.size === 0) this.#forgetUnwanted(model);
      this.#admit();
    });
  }

  /** The last request has left before the load began: no other model is unloaded for it. */
  #forgetUnwanted(model: PooledModel): void {
    const at = this.#queue.findIndex((queued) => queued.model === model);
    if (at === -1) return;
    this.#queue.splice(at, 1)[0]!.settle(new UnwantedLoad());
    this.#admit();
  }

  /** Lets the first load begin if there is memory for it, or makes models leave. */
  #admit(): void {
    for (;;) {
      const [first] = this.#queue;
      const missing = first === undefined ? nothing : minus(plus(first.needs, this.#used), this.#limits);
      if (first !== undefined && missing.bytes <= 0 && missing.gpuBytes <= 0) {
        this.#queue.shift()!.settle();
        continue;
      }
      this.#chooseLeaving(missing);
      return;
    }
  }

  /**
   * Which models leave is decided anew each time, so that a model stays if its memory is not needed any more. Otherwise a model that
   * leaves goes on leaving: if models took turns, none would become idle.
   */
  #chooseLeaving(wanted: Memory): void {
    const ending = Array.from(this.#models.values()).filter(({ state }) => state === 'unloading');
    let missing = ending.reduce<Memory>(minus, wanted);
    const candidates = Array.from(this.#models.values())
      .filter(({ state }) => state === 'loaded')
      .sort((a, b) => leaveOrder(a) - leaveOrder(b) || a.lastUse - b.lastUse);
    for (const model of candidates) {
      model.isLeaving = missing.bytes > 0 || (missing.gpuBytes > 0 && model.gpuBytes > 0);
      if (model.isLeaving) missing = minus(missing, model);
      if (model.isLeaving && model.isIdle) this.#unload(model, 'memory');
      else this.#advance(model);
    }
  }

  /** Called when the model may have no work any more. */
  #idle(model: PooledModel): void {
    if (model.state !== 'loaded' || !model.isIdle || this.#isClosing) return;
    if (model.endsWhenIdle) {
      this.#unload(model, 'request');
      return;
    }
    // A model that is idle is preferred to those that leave.
    this.#admit();
    if (model.state !== 'loaded' || this.#options.idleTimeoutMs === Infinity) return;
    model.idle?.cancel();
    model.idle = this.#options.timers.after(this.#options.idleTimeoutMs, () => {
      if (model.state === 'loaded' && model.isIdle) this.#unload(model, 'idle');
    });
  }

  #unload(model: PooledModel, reason: 'memory' | 'idle' | 'request'): void {
    this.#say('info', `the model ${model.name} is unloaded`, { model: model.name, reason });
    model.idle?.cancel();
    model.unloading();
    model.process!.stop();
  }

  /** Its process answers the requests that it has with errors, and ends. Later requests wait for the next load. */
  #broke(model: PooledModel, reason: string): void {
    const message = `the engine of the model ${model.name} stopped after an error: ${reason}`;
    if (model.state === 'loaded') this.#lost(model, { code: engineBroken.definition.code, message });
  }

  #lost(model: PooledModel, failure: { readonly code: string; readonly message: string }): void {
    model.idle?.cancel();
    this.#say('error', failure.message, { model: model.name });
    model.failed(failure, this.#nowMs());
  }

  #ended(model: PooledModel, reason: string): void {
    const { state } = model;
    model.idle?.cancel();
    if (state === 'unloading' || (state === 'loaded' && this.#isClosing)) model.unloaded();
    else if (state === 'loaded') {
      const message = `the process of the model ${model.name} ${reason}`;
      this.#lost(model, { code: modelProcessEnded.definition.code, message });
    }
    model.process = undefined;
    this.#giveMemoryBack(model);
    this.#admit();
    this.#advance(model);
  }

  #giveMemoryBack(model: PooledModel): void {
    this.#used = minus(this.#used, model);
    Object.assign(model, nothing);
  }

  #nowMs(): number {
    return this.#options.clock.nowMs();
  }

  get #limits(): Memory {
    const { memoryMaxBytes, gpuMaxBytes = Number.POSITIVE_INFINITY } = this.#options;
    return { bytes: memoryMaxBytes, gpuBytes: gpuMaxBytes };
  }

  #say(...line: Parameters<ModelPoolOptions['log']>): void {
    this.#options.log(...line);
  }
}

const nothing: Memory = { bytes: 0, gpuBytes: 0 };
const plus = (a: Memory, b: Memory): Memory => ({ bytes: a.bytes + b.bytes, gpuBytes: a.gpuBytes + b.gpuBytes });
const minus = (a: Memory, b: Memory): Memory => ({ bytes: a.bytes - b.bytes, gpuBytes: a.gpuBytes - b.gpuBytes });

const leaveOrder = ({ isIdle, isLeaving }: PooledModel): number => (isIdle ? 0 : isLeaving ? 1 : 2);

class UnwantedLoad extends Error {}

const waitsForMemory = (name: string): LoadStatus => ({
  phase: 'starting',
  message: `The model ${name} waits for the memory of other models.`,
  retryAfterSeconds: 5,
});
