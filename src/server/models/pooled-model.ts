import { assert } from '../../base/assert.ts';
import type { Timer } from '../../base/timers.ts';
import { RestartBudget, type RestartPolicy } from '../../worker/restart-budget.ts';
import type { LoadStatus } from '../loading-routes.ts';
import type { ModelEntry, ModelProcess, ModelReport, ServedFacts } from './contract.ts';
import { modelPaused } from './errors.ts';

/** A model whose processes served for less than a minute, three together, is loaded again after a pause only. */
const reloads: RestartPolicy = { startsMax: 3, withinMs: 60_000, backoffMs: 0 };
const pauseMs = 30_000;

/** A request that waits for the model. */
export interface Waiter {
  serve(): void;
  refuse(error: Error): void;
}

/** The state of one model in the pool. Transitions are methods; `ModelPool` decides when they happen. */
export class PooledModel {
  entry: ModelEntry;
  process: ModelProcess | undefined;
  facts: ServedFacts | undefined;
  /** Memory that it has, from before its process starts until the process has ended. */
  bytes = 0;
  /** The same on the GPU. */
  gpuBytes = 0;
  progress: LoadStatus;
  /** Its open requests. */
  active = 0;
  readonly waiters = new Set<Waiter>();
  /** The larger, the later. */
  lastUse = 0;
  /** Its memory is needed: new requests wait for its next load. */
  isLeaving: boolean = false;
  /** It is unloaded when its last request has ended, whether or not its memory is needed. */
  endsWhenIdle: boolean = false;
  idle: Timer | undefined;
  loads = 0;
  failures = 0;
  #state: ModelReport['state'] | 'unloading' = 'unloaded';
  #failure: ModelReport['failure'];
  #budget = new RestartBudget(reloads);
  /** This load, or the last one, has started a process. */
  #hasStarted: boolean = false;
  #servesSinceMs: number | undefined;
  #pausedUntilMs = 0;

  constructor(entry: ModelEntry) {
    this.entry = entry;
    this.progress = opens(entry.name);
  }

  get name(): string {
    return this.entry.name;
  }

  get state(): ModelReport['state'] | 'unloading' {
    return this.#state;
  }

  /** Whether it takes new requests. */
  get isServing(): boolean {
    return this.#state === 'loaded' && !this.isLeaving;
  }

  /** Whether a load may begin: also the process of a failed load has ended. */
  get canBegin(): boolean {
    return (this.#state === 'unloaded' || this.#state === 'failed') && this.process === undefined;
  }

  get isIdle(): boolean {
    return this.active === 0 && this.process?.isBusy !== true;
  }

  begin(): void {
    assert(this.canBegin && this.bytes === 0, `${this.name} is ${this.#state} when a load begins`);
    this.#state = 'loading';
    this.#failure = undefined;
    this.#hasStarted = false;
    this.endsWhenIdle = false;
    this.progress = opens(this.name);
  }

  started(process: ModelProcess): void {
    this.process = process;
    this.#hasStarted = true;
  }

  loaded(nowMs: number): void {
    assert(this.#state === 'loading', `${this.name} is ${this.#state} when its load ends`);
    this.#servesSinceMs = nowMs;
    this.#state = 'loaded';
    this.isLeaving = false;
    this.loads++;
  }

  unloading(): void {
    assert(this.#state === 'loaded', `${this.name} is ${this.#state} when it is unloaded`);
    this.#state = 'unloading';
  }

  unloaded(): void {
    this.#state = 'unloaded';
    this.#failure = undefined;
    this.#leaves();
  }

  failed(failure: NonNullable<ModelReport['failure']>, nowMs: number): void {
    this.#state = 'failed';
    this.#failure = failure;
    this.failures++;
    // A load that fails before costs little, and the next request may find another file.
    if (this.#hasStarted) {
      const next = this.#budget.ended(nowMs - (this.#servesSinceMs ?? nowMs));
      if (!('delayMs' in next)) this.#pausedUntilMs = nowMs + pauseMs;
    }
    this.#leaves();
  }

  /** Why a load does not begin now. */
  pause(nowMs: number): Error | undefined {
    if (this.#state !== 'failed' || nowMs >= this.#pausedUntilMs) return undefined;
    const retryAfterSeconds = Math.ceil((this.#pausedUntilMs - nowMs) / 1000);
    return modelPaused({ model: this.name, code: this.#failure?.code ?? 'internal_error', retryAfterSeconds });
  }

  /** An operator has mended the cause. */
  endPause(): void {
    this.#budget = new RestartBudget(reloads);
    this.#pausedUntilMs = 0;
  }

  #leaves(): void {
    this.isLeaving = false;
    this.facts = undefined;
    this.#servesSinceMs = undefined;
  }

  adapterChanged(adapter: string, isLoaded: boolean): void {
    if (this.facts === undefined) return;
    const others = this.facts.names.filter((name) => name !== adapter);
    this.facts = { ...this.facts, names: isLoaded ? [...others, adapter] : others };
  }

  refuseAll(error: Error): void {
    for (const waiter of [...this.waiters]) waiter.refuse(error);
  }

  report(entry = this.entry): ModelReport {
    return {
      entry,
      state: this.#state === 'unloading' ? 'unloaded' : this.#state,
      ...(this.#state === 'loading' ? { progress: this.progress } : {}),
      ...(this.#failure === undefined ? {} : { failure: this.#failure }),
      ...(this.#state !== 'failed' && this.process?.silentMs !== undefined ? { silentMs: this.process.silentMs } : {}),
      ...(this.facts === undefined ? {} : { facts: this.facts }),
      ...(this.bytes === 0 ? {} : { bytes: this.bytes }),
      ...(this.gpuBytes === 0 ? {} : { gpuBytes: this.gpuBytes }),
    };
  }
}

/**
 * Forgets the name that was asked for longest ago, if more than these have no loaded model and never had one: with names of a hub,
 * requests may ask for any number.
 */
export function forgetNeverLoaded(models: Map<string, PooledModel>): void {
  if (models.size <= neverLoadedMax) return;
  const never = [...models.values()].filter(
    ({ loads, canBegin, waiters }) => loads === 0 && canBegin && waiters.size === 0,
  );
  if (never.length <= neverLoadedMax) return;
  models.delete(never.reduce((oldest, model) => (model.lastUse < oldest.lastUse ? model : oldest)).name);
}

export const neverLoadedMax = 1000;

const opens = (name: string): LoadStatus => ({
  phase: 'starting',
  message: `The server opens ${name}.`,
  retryAfterSeconds: 5,
});
