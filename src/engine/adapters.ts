import { describeValue } from '../base/describe-value.ts';
import { nameLengthMax } from '../base/field-reader.ts';
import { invalidParameter } from '../core/errors.ts';
import type { AdapterRef } from '../core/request.ts';
import { checkIsObject } from './check-arguments.ts';
import { adapterExists, adapterNotFound, tooManyAdapters } from './errors.ts';

/** Far more than the square root of a rank. */
const adapterScaleMax = 1000;

/** A LoRA adapter: a GGUF file, and the name by which requests ask for it. */
export interface LoraModule {
  readonly name: string;
  readonly path: string;
  /** Times that of the file, default 1: for adapters of rsLoRA, whose files lack a factor (docs/lora.md). */
  readonly scale?: number;
}

/**
 * The LoRA adapters of an engine. Requests may use any of them in the same steps. Loading and unloading change nothing for requests with
 * other adapters and without.
 */
export interface EngineAdapters {
  /** In the order in which they were loaded. */
  list(): readonly LoraModule[];
  /** Rejects with `adapterUnusable`, `adapterExists`, `tooManyAdapters`, or an error of memory; then nothing has changed. */
  load(module: LoraModule): Promise<void>;
  /** New requests cannot use it. Those that run go on with it, and its memory is freed after the last. Rejects with `adapterNotFound`. */
  unload(name: string): Promise<void>;
}

/** Where the weights are. `load` resolves to the digest. */
export interface AdapterLoader {
  load(path: string, scale: number): Promise<string>;
  unload(digest: string): Promise<void>;
}

interface AdapterOptions {
  readonly loader: AdapterLoader;
  /** Names that an adapter cannot have: those of the model. */
  readonly modelNames: readonly string[];
  readonly countMax: number;
}

/** Names and uses of the adapters. An adapter stays in memory while it has a name or a request. */
export class Adapters implements EngineAdapters {
  readonly #options: AdapterOptions;
  readonly #named = new Map<string, { readonly ref: AdapterRef; readonly module: LoraModule }>();
  /** By digest: its names and its requests. */
  readonly #uses = new Map<string, number>();
  /** Loads and unloads come one after the other: two names may have the same content. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(options: AdapterOptions) {
    this.#options = options;
  }

  list(): readonly LoraModule[] {
    return [...this.#named.values()].map(({ module }) => module);
  }

  /** @throws KvasirError `adapterNotFound`. */
  find(name: string): AdapterRef {
    return this.#entry(name).ref;
  }

  load(module: LoraModule): Promise<void> {
    return this.#inTurn(async () => {
      checkIsObject('module', module);
      const { name, path, scale = 1 } = module;
      checkText('name', name);
      checkText('path', path);
      checkScale(scale);
      const { modelNames, countMax, loader } = this.#options;
      if (this.#named.has(name) || modelNames.includes(name)) throw adapterExists({ name });
      if (this.#named.size >= countMax) throw tooManyAdapters({ limit: countMax });
      const digest = await loader.load(path, scale);
      const kept = { name, path, ...(scale === 1 ? {} : { scale }) };
      this.#named.set(name, { ref: Object.freeze({ name, digest }), module: kept });
      this.#use(digest);
    });
  }

  unload(name: string): Promise<void> {
    return this.#inTurn(async () => {
      checkText('name', name);
      const { ref } = this.#entry(name);
      this.#named.delete(name);
      await this.#drop(ref.digest);
    });
  }

  /** A request begins. @throws KvasirError `adapterNotFound` if the adapter was unloaded after `find`. */
  hold({ name, digest }: AdapterRef): void {
    if (!this.#uses.has(digest)) throw this.#notFound(name);
    this.#use(digest);
  }

  /** The request has ended. */
  release({ digest }: AdapterRef): void {
    if (this.#uses.get(digest) !== 1) this.#uses.set(digest, this.#uses.get(digest)! - 1);
    else this.#inTurn(() => this.#drop(digest)).catch(() => undefined);
  }

  #entry(name: string) {
    const entry = this.#named.get(name);
    if (entry === undefined) throw this.#notFound(name);
    return entry;
  }

  #notFound(name: string) {
    const loaded = [...this.#named.keys()].join(', ');
    return adapterNotFound({ name: name.slice(0, 100), loaded: loaded === '' ? 'none' : loaded });
  }

  #use(digest: string): void {
    this.#uses.set(digest, (this.#uses.get(digest) ?? 0) + 1);
  }

  async #drop(digest: string): Promise<void> {
    const uses = this.#uses.get(digest)! - 1;
    if (uses > 0) {
      this.#uses.set(digest, uses);
      return;
    }
    this.#uses.delete(digest);
    await this.#options.loader.unload(digest);
  }

  #inTurn<T>(act: () => Promise<T>): Promise<T> {
    const done = this.#last.then(act);
    this.#last = done.catch(() => undefined);
    return done;
  }
}

function checkScale(value: unknown): void {
  if (typeof value === 'number' && value > 0 && value <= adapterScaleMax) return;
  throw invalidParameter({
    parameter: 'scale',
    expected: `a number above 0 and at most ${adapterScaleMax}`,
    actual: describeValue(value),
  });
}

function checkText(parameter: string, value: unknown): void {
  if (typeof value === 'string' && value !== '' && value.length <= 4 * nameLengthMax) return;
  throw invalidParameter({ parameter, expected: 'a text', actual: describeValue(value) });
}
