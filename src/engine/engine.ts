import { setMaxListeners } from 'node:events';
import { assert } from '../base/assert.ts';
import { type Clock, systemClock } from '../base/clock.ts';
import type { KvEvent, SchedulerConnector } from '../connector/connector.ts';
import { engineClosed, queueFull } from '../core/errors.ts';
import { type RequestId, requestId, tokenId } from '../core/ids.ts';
import type { EngineRequest, FinishReason, RequestUpdate } from '../core/request.ts';
import type { SamplingParams } from '../core/sampling.ts';
import type { AbortedRequest, SchedulerOptions } from '../scheduler/contract.ts';
import { requestFits } from '../scheduler/request-fits.ts';
import type { InvariantDepth, SchedulerInterface } from '../scheduler/scheduler-interface.ts';
import type { DecodeOptions, EncodeOptions, Tokenizer } from '../tokenizer/contract.ts';
import type { Executor } from '../worker/executor.ts';
import type {
  AsyncEngine,
  ChatMessage,
  ChatTemplateOptions,
  EngineEvent,
  EngineHealth,
  EngineStats,
  GenerateRequest,
  ModelInfo,
  RenderChatOptions,
  TokenizePromptOptions,
} from './contract.ts';
import { chatTemplateMissing, engineBroken, poolTooSmall } from './errors.ts';
import { LateStream } from './late-stream.ts';
import { LoadFailureLog } from './load-failure-log.ts';
import { Outbox } from './outbox.ts';
import { OutputStream } from './output-stream.ts';
import { hasLongText, type LongRequest, type PreparedRequest, prepareLongRequest, prepareRequest } from './prepare.ts';
import { checkTextFits, isLongConversation, isLongText } from './prompt-limits.ts';
import { RequestHandle } from './request-handle.ts';
import { EngineTotals } from './stats.ts';
import { type StepParts, step } from './step.ts';
import { TextQueue } from './text-queue.ts';
import { Wakeup } from './wakeup.ts';

/** The components of an engine. The engine owns the executor, the connector and the tokenizer: `close` closes them. */
export interface EngineParts extends ChatRenderers {
  readonly scheduler: SchedulerInterface;
  readonly executor: Executor;
  readonly tokenizer: Tokenizer;
  readonly model: ModelInfo;
  /** The scheduler side of the connector, if there is one. The scheduler queries it, the engine closes it. */
  readonly connector?: Pick<SchedulerConnector, 'takeEvents' | 'close'>;
}

/** Absent when the model has no chat template. */
export interface ChatRenderers {
  readonly renderChat?: RenderChat;
  /** The same on another thread, for long conversations; by default they are rendered on this thread. */
  readonly renderLongChat?: RenderLongChat;
}

export type RenderLongChat = (...args: [...Parameters<RenderChat>, signal?: AbortSignal]) => Promise<string>;

export type RenderChat = (
  messages: readonly ChatMessage[],
  options: { readonly addGenerationPrompt: boolean; readonly variables?: Readonly<Record<string, unknown>> },
) => string;

export interface EngineSettings {
  /** The options that the scheduler was created with. */
  readonly scheduler: SchedulerOptions;
  /** Requests beyond `maxNumSeqs` that the engine accepts; the next request is refused with `queueFull`. */
  readonly maxWaiting: number;
  /** Gives the seed of a request without a seed; default: 64 random bits. */
  readonly drawSeed?: () => bigint;
  /** Called once when the engine breaks, after every request has ended. Default: a warning of the process. */
  readonly onBroken?: (cause: unknown) => void;
  /** Called with messages for the program that runs the engine, such as recovered load failures. Default: ignored. */
  readonly onEvent?: (event: EngineEvent) => void;
  /** Called with the blocks that stores gained and removed, at most once per step. */
  readonly onKvEvents?: (events: readonly KvEvent[]) => void;
  readonly clock?: Clock;
  /** What the scheduler checks whenever the engine becomes idle. Default `counts`; tests check `all`. */
  readonly invariants?: InvariantDepth;
}

/**
 * The engine accepts requests, runs steps while it has work, and sleeps otherwise.
 *
 * Its own state is the streams of the live requests. The scheduler has the state of tokens, blocks and order.
 * @throws KvasirError `poolTooSmall` from the constructor if one request of full length does not fit the pool.
 */
export class Engine implements AsyncEngine {
  readonly model: ModelInfo;
  readonly #parts: EngineParts & StepParts;
  readonly #settings: EngineSettings;
  readonly #drawSeed: () => bigint;
  /** Every completion that has not ended. */
  readonly #live = new Map<RequestId, RequestHandle>();
  readonly #totals = new EngineTotals();
  readonly #clock: Clock;
  readonly #loadFailures: LoadFailureLog;
  readonly #work = new Wakeup();
  readonly #texts: TextQueue;
  readonly #loop: Promise<void>;
  #drainers: (() => void)[] = [];
  #serial = 0;
  #isDraining: boolean = false;
  /** The loop has ended: closed or broken. */
  #hasStopped: boolean = false;
  #closing: Promise<void> | undefined;
  #failure: { readonly cause: unknown } | undefined;

  constructor(parts: EngineParts, settings: EngineSettings) {
    const { maxModelLen } = parts.model;
    assert(maxModelLen === settings.scheduler.maxModelLen, 'engine and scheduler have the same maxModelLen');
    assert(parts.tokenizer.vocabSize === parts.model.vocabSize, 'tokenizer and model have the same vocabulary size');
    const spec = parts.executor.kvCacheSpec;
    if (!requestFits(spec, settings.scheduler, 1, maxModelLen - 1)) {
      throw poolTooSmall({ blockCount: spec.blockCount - 1, maxModelLen });
    }
    this.model = parts.model;
    this.#settings = settings;
    this.#drawSeed = settings.drawSeed ?? randomSeed;
    this.#clock = settings.clock ?? systemClock;
    this.#loadFailures = new LoadFailureLog(settings.scheduler.kvLoadFailurePolicy ?? 'recompute', settings.onEvent);
    this.#texts = new TextQueue(parts.tokenizer, maxModelLen, () => {
      this.#work.notify();
      if (this.#hasStopped) this.#tellDrained();
    });
    this.#parts = { ...parts, nowMs: () => this.#clock.nowMs(), outbox: new Outbox((update) => this.#deliver(update)) };
    this.#loop = this.#run()
      .catch((cause: unknown) => this.#break(cause))
      .finally(() => {
        this.#hasStopped = true;
        this.#tellDrained();
      });
  }

  generate(request: GenerateRequest, { signal }: { readonly signal?: AbortSignal } = {}): OutputStream | LateStream {
    try {
      this.#checkOpen();
      const parts = { tokenizer: this.#parts.tokenizer, model: this.model, drawSeed: this.#drawSeed };
      if (hasLongText(request)) return this.#startLong(prepareLongRequest(request, parts), request.requestId, signal);
      const prepared = prepareRequest(request, parts);
      this.#checkRoom(prepared.params.n);
      return this.#start(prepared, request.requestId, signal);
    } catch (error) {
      return OutputStream.failed(error);
    }
  }

  async tokenizePrompt(text: string, { signal, ...options }: TokenizePromptOptions = {}): Promise<number[]> {
    this.#checkNotClosed();
    checkTextFits(text, this.#parts.tokenizer, this.model);
    if (!isLongText(text)) return this.tokenize(text, options);
    this.#checkRoom(1);
    return this.#texts.run({ text, options, completions: 1 }, signal, (tokens) => Array.from(tokens));
  }

  tokenize(text: string, options: EncodeOptions = {}): number[] {
    this.#checkNotClosed();
    return Array.from(this.#parts.tokenizer.encode(text, options));
  }

  detokenize(tokens: ArrayLike<number>, options: DecodeOptions = {}): string {
    this.#checkNotClosed();
    return this.#parts.tokenizer.decode(tokens, options);
  }

  detokenizeParts(tokens: ArrayLike<number>, options: DecodeOptions = {}): Iterable<string> {
    this.#checkNotClosed();
    return this.#parts.tokenizer.decodeParts(tokens, options);
  }

  tokenBytes(token: number): Uint8Array {
    this.#checkNotClosed();
    return this.#parts.tokenizer.tokenBytes(token, { special: true });
  }

  async renderChat(messages: readonly ChatMessage[], options: RenderChatOptions = {}): Promise<string> {
    const { renderLongChat } = this.#parts;
    if (renderLongChat === undefined || !isLongConversation(messages)) return this.applyChatTemplate(messages, options);
    this.#checkNotClosed();
    const { signal, ...others } = options;
    return renderLongChat(messages, { ...others, addGenerationPrompt: options.addGenerationPrompt ?? true }, signal);
  }

  applyChatTemplate(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): string {
    const { renderChat } = this.#parts;
    if (renderChat === undefined) throw chatTemplateMissing({ model: this.model.name });
    return renderChat(messages, { ...options, addGenerationPrompt: options.addGenerationPrompt ?? true });
  }

  /** Connectors call it at any time, when transfers end outside a step or a deferred answer is available. */
  notifyTransfers(): void {
    this.#parts.scheduler.notifyTransfers(this.#clock.nowMs());
    this.#work.notify();
  }

  stats(): EngineStats {
    const report = this.#totals.report(this.#parts.scheduler.stats());
    return { ...report, waiting: report.waiting + this.#texts.completions };
  }

  health(): EngineHealth {
    if (this.#closing !== undefined) return { status: 'closed' };
    if (this.#failure !== undefined) return { status: 'broken', message: reasonOf(this.#failure.cause) };
    const ranks = this.#parts.executor.troubles?.() ?? [];
    if (ranks.length === 0) return { status: 'ok' };
    // A rank that is not restarted breaks the engine at the next step.
    const status = ranks.some(({ state }) => state === 'gone') ? 'broken' : 'recovering';
    return { status, message: ranks.map(({ message }) => message).join(' '), ranks };
  }

  isHealthy(): boolean {
    return this.#closing === undefined && this.#failure === undefined;
  }

  async drain(): Promise<void> {
    this.#isDraining = true;
    if (this.#hasStopped) return;
    await new Promise<void>((resolve) => {
      this.#drainers.push(resolve);
      this.#work.notify();
    });
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #checkNotClosed(): void {
    if (this.#closing !== undefined) throw engineClosed();
  }

  #checkOpen(): void {
    this.#checkNotClosed();
    if (this.#isDraining) throw engineClosed();
    if (this.#failure !== undefined) {
      const { cause } = this.#failure;
      throw engineBroken({ reason: reasonOf(cause) }, cause);
    }
  }

  /**
   * The limit applies to accepted requests, not to waiting ones: an idle engine accepts a burst that arrives before its
   * next step. If no other request is there, a request may have more completions than the limit.
   */
  #checkRoom(completions: number): void {
    const { maxWaiting, scheduler } = this.#settings;
    const accepted = this.#live.size + this.#texts.completions;
    if (accepted === 0 || accepted + completions <= scheduler.maxNumSeqs + maxWaiting) return;
    throw queueFull({ waiting: Math.max(0, accepted - scheduler.maxNumSeqs), limit: maxWaiting });
  }

  /**
   * The request enters the scheduler's queue when its tokens exist. Short requests that came later can be ahead of it;
   * long ones cannot.
   */
  #startLong(long: LongRequest, name: string | undefined, signal: AbortSignal | undefined): LateStream {
    this.#checkRoom(long.n);
    const stop = new AbortController();
    const onAbort = (): void => stop.abort();
    if (signal?.aborted === true) onAbort();
    // Any number of requests can share one signal; from the eleventh on, Node would warn of a leak.
    if (signal !== undefined) setMaxListeners(0, signal);
    signal?.addEventListener('abort', onAbort, { once: true });
    const started = this.#texts
      .run({ text: long.text, options: long.options, completions: long.n }, stop.signal, (tokens) =>
        this.#start(long.finish(tokens), name, signal),
      )
      .catch((error: unknown) => this.#notStarted(long.n, error, stop.signal))
      .finally(() => signal?.removeEventListener('abort', onAbort));
    return new LateStream(started, onAbort);
  }

  /** The stream of a request that ended before its prompt was tokenized. */
  #notStarted(completions: number, error: unknown, stop: AbortSignal): OutputStream {
    const isAborted = stop.aborted || this.#closing !== undefined;
    if (!isAborted && this.#failure === undefined) return OutputStream.failed(error);
    if (isAborted) for (let index = 0; index < completions; index++) this.#totals.countAbort();
    return OutputStream.ended(completions, isAborted ? 'abort' : 'error');
  }

  #start(prepared: PreparedRequest, name: string | undefined, signal: AbortSignal | undefined): OutputStream {
    assert(this.isHealthy(), `request ${name ?? ''} starts in an engine that no longer runs steps`);
    const { params } = prepared;
    const handles: RequestHandle[] = [];
    const onAbort = (): void => {
      for (const handle of handles) if (!handle.hasEnded) this.#abort(handle, 'abort');
    };
    const stream = new OutputStream(params.n, () => {
      signal?.removeEventListener('abort', onAbort);
      // A completion that has not ended here has no reader any more.
      for (const handle of handles) if (!handle.hasEnded) this.#abandon(handle);
    });
    // Any number of requests can share one signal; from the eleventh on, Node would warn of a leak.
    if (signal !== undefined) setMaxListeners(0, signal);
    const serial = ++this.#serial;
    for (let index = 0; index < params.n; index++) {
      const id = requestId(`${name ?? 'request'}#${serial}.${index}`);
      const request = this.#requestOf(prepared, id, index);
      const handle = new RequestHandle(request, index, stream, this.#parts.tokenizer);
      handles.push(handle);
      assert(!this.#live.has(id), `request ${id} is live already`);
      this.#live.set(id, handle);
      // If the signal is aborted already, the request ends without entering the scheduler.
      if (signal?.aborted !== true) this.#parts.scheduler.add(request);
    }
    if (signal?.aborted === true) onAbort();
    else signal?.addEventListener('abort', onAbort, { once: true });
    this.#work.notify();
    return stream;
  }

  #requestOf(prepared: PreparedRequest, id: RequestId, index: number): EngineRequest {
    const { promptTokens, params, priority, cacheSalt, kvTransferParams } = prepared;
    return Object.freeze({
      id,
      promptTokens,
      params: withSeed(params, params.seed + BigInt(index)),
      eosTokenIds: this.#parts.tokenizer.eosTokenIds.map(tokenId),
      priority,
      ...(cacheSalt === undefined ? {} : { cacheSalt }),
      ...(kvTransferParams === undefined ? {} : { kvTransferParams }),
    });
  }

  async #run(): Promise<void> {
    while (this.#closing === undefined) {
      if (await step(this.#parts)) {
        this.#totals.countStep();
        this.#report();
        continue;
      }
      this.#parts.scheduler.checkInvariants(this.#settings.invariants ?? 'counts');
      this.#checkLive();
      this.#tellDrained();
      const wakeMs = this.#parts.scheduler.nextWakeMs();
      await this.#work.sleep(wakeMs === undefined ? undefined : Math.max(0, wakeMs - this.#clock.nowMs()));
    }
  }

  /** No step is in flight, and all updates are delivered: the engine and the scheduler have the same requests. */
  #checkLive(): void {
    const { running, waiting, waitingForRemoteKv } = this.#parts.scheduler.stats();
    const scheduled = running + waiting + waitingForRemoteKv;
    assert(scheduled === this.#live.size, `${scheduled} requests in the scheduler, ${this.#live.size} in the engine`);
  }

  /** After a step: reports to the program that runs the engine. */
  #report(): void {
    this.#loadFailures.update(this.#parts.scheduler.stats().transfers);
    const events = this.#parts.connector?.takeEvents() ?? [];
    if (events.length > 0) this.#settings.onKvEvents?.(events);
  }

  #deliver(update: RequestUpdate): void {
    const handle = this.#live.get(update.requestId);
    if (handle === undefined) return;
    this.#totals.add(handle.stats, update.stats);
    handle.receive(update, () => this.#parts.scheduler.abort(update.requestId));
    if (handle.hasEnded) this.#forget(handle);
  }

  #abort(handle: RequestHandle, reason: FinishReason): void {
    // Deliver the tokens of the last step first; they belong to the completion.
    this.#parts.outbox.deliverTo(handle.request.id);
    if (handle.hasEnded) return;
    handle.end(reason, this.#endInScheduler(handle));
    this.#forget(handle);
  }

  #abandon(handle: RequestHandle): void {
    this.#endInScheduler(handle);
    handle.abandon();
    this.#forget(handle);
  }

  #endInScheduler(handle: RequestHandle): AbortedRequest | undefined {
    const aborted = this.#parts.scheduler.abort(handle.request.id);
    if (aborted !== undefined) this.#totals.add(handle.stats, aborted.stats);
    this.#totals.countAbort();
    return aborted;
  }

  #forget(handle: RequestHandle): void {
    assert(handle.hasEnded, `request ${handle.request.id} is removed before its end`);
    assert(this.#live.delete(handle.request.id), `request ${handle.request.id} is removed twice`);
    // Another request may wait for its blocks.
    this.#work.notify();
  }

  /** Resolves the calls of `drain` if no request is left; no step is in flight here. */
  #tellDrained(): void {
    if (this.#live.size + this.#texts.completions > 0) return;
    for (const resolve of this.#drainers) resolve();
    this.#drainers = [];
  }

  /** The executor or the scheduler failed, so no later token is reliable. The scheduler is not called again. */
  #break(cause: unknown): void {
    this.#failure = { cause };
    this.#texts.abortAll(cause);
    for (const handle of [...this.#live.values()]) {
      // A reader that saw the end of one completion may have closed the whole stream already.
      if (handle.hasEnded) continue;
      handle.end('error', undefined);
      this.#forget(handle);
    }
    (this.#settings.onBroken ?? warn)(cause);
  }

  async #close(): Promise<void> {
    this.#texts.abortAll(engineClosed());
    for (const handle of [...this.#live.values()]) if (!handle.hasEnded) this.#abort(handle, 'abort');
    assert(this.#live.size === 0, `${this.#live.size} requests are live after the engine has ended all`);
    this.#work.notify();
    await this.#loop;
    try {
      await this.#parts.connector?.close();
      await this.#parts.executor.close();
    } finally {
      this.#parts.tokenizer.close();
    }
  }
}

const withSeed = (params: SamplingParams, seed: bigint): SamplingParams =>
  Object.freeze({ ...params, seed: BigInt.asUintN(64, seed) });

const reasonOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));

const randomSeed = (): bigint => crypto.getRandomValues(new BigUint64Array(1))[0]!;

/** The default for `onBroken`: the requests end with `error`, which does not name the cause. */
function warn(cause: unknown): void {
  const text = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
  process.emitWarning(`the engine stopped after an error: ${text}`, 'KvasirEngineBroken');
}
