import { assert, assertDefined } from '../base/assert.ts';
import { type Clock, systemClock } from '../base/clock.ts';
import { allowSharing } from '../base/unless-aborted.ts';
import type { OutputConstraint } from '../core/constraint.ts';
import { engineClosed } from '../core/errors.ts';
import { type RequestId, requestId } from '../core/ids.ts';
import type { FinishReason, Pooling, RequestUpdate } from '../core/request.ts';
import type { Grammars } from '../grammar/grammars.ts';
import { structuredSource } from '../grammar/structured-grammar.ts';
import type { AbortedRequest } from '../scheduler/contract.ts';
import { requestFits } from '../scheduler/request-fits.ts';
import type { DecodeOptions, EncodeOptions } from '../tokenizer/contract.ts';
import { GrammarThread } from '../tools/grammar-thread.ts';
import { BackgroundThreads } from './background-threads.ts';
import { reasonOf, warnBroken } from './broken-warning.ts';
import type { CacheMonitor } from './cache-contract.ts';
import { cacheMonitorOf, type EngineCacheMonitor } from './cache-monitor.ts';
import { ChatRenderer } from './chat/chat-renderer.ts';
import { ChatStream } from './chat/chat-stream.ts';
import { type RenderedPrompt, readPromptText } from './chat/rendered-prompt.ts';
import type {
  AsyncEngine,
  ChatMessage,
  ChatRequest,
  ChatTemplateOptions,
  EngineHealth,
  EngineStats,
  GenerateRequest,
  ModelInfo,
  RenderChatOptions,
  TokenizePromptOptions,
} from './contract.ts';
import { checkDimensions, collectEmbedding, type Embedding, type EmbedRequest, poolerOf, poolingFor } from './embed.ts';
import { grammarsOf } from './engine-grammars.ts';
import type { EngineParts, EngineSettings } from './engine-parts.ts';
import { engineBroken, poolTooSmall } from './errors.ts';
import { LateStream } from './late-stream.ts';
import type { EngineObserver, RequestArrival } from './observer.ts';
import { Observers } from './observers.ts';
import { Outbox } from './outbox.ts';
import { OutputStream } from './output-stream.ts';
import {
  type CheckedRequest,
  checkRequest,
  completionRequest,
  type PreparedRequest,
  prepareRequest,
} from './prepare.ts';
import { checkTextFits } from './prompt-limits.ts';
import { checkRoom } from './queue-room.ts';
import { rankHealth } from './rank-health.ts';
import { RequestHandle } from './request-handle.ts';
import { EngineTotals } from './stats.ts';
import { step } from './step.ts';
import { TextQueue } from './text-queue.ts';
import { TransferLog } from './transfer-log.ts';
import { Wakeup } from './wakeup.ts';

interface StartOptions {
  readonly name: string | undefined;
  readonly signal: AbortSignal | undefined;
  readonly constraint: OutputConstraint | undefined;
  readonly arrival: RequestArrival | undefined;
}

/**
 * The engine accepts requests, runs steps while it has work, and sleeps otherwise.
 *
 * Its own state is the streams of the live requests. The scheduler has the state of tokens, blocks and order.
 * @throws KvasirError `poolTooSmall` from the constructor if one request of full length does not fit the pool.
 */
export class Engine implements AsyncEngine {
  readonly model: ModelInfo;
  readonly #parts: EngineParts;
  readonly #outbox = new Outbox(
    (update) => this.#deliver(update),
    () => this.#report(),
  );
  readonly #settings: EngineSettings;
  readonly #drawSeed: () => bigint;
  /** Every completion that has not ended. */
  readonly #live = new Map<RequestId, RequestHandle>();
  readonly #totals = new EngineTotals();
  readonly #observers: Observers;
  readonly #clock: Clock;
  readonly #transferLog: TransferLog;
  readonly #cache: EngineCacheMonitor | undefined;
  readonly #work = new Wakeup();
  readonly #texts: TextQueue;
  readonly #chats: ChatRenderer;
  readonly #grammars: Grammars;
  readonly #threads: BackgroundThreads;
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
    this.#drawSeed = settings.drawSeed ?? (() => crypto.getRandomValues(new BigUint64Array(1))[0]!);
    this.#clock = settings.clock ?? systemClock;
    const { kvLoadFailurePolicy = 'recompute' } = settings.scheduler;
    this.#transferLog = new TransferLog(kvLoadFailurePolicy, settings.onEvent, this.#clock);
    const grammarThread = new GrammarThread();
    this.#grammars = grammarsOf(parts.tokenizer, grammarThread, settings.onEvent);
    this.#threads = new BackgroundThreads([...(parts.threads ?? []), grammarThread.jobs]);
    this.#texts = new TextQueue(parts.tokenizer, maxModelLen, () => {
      this.#work.notify();
      if (this.#hasStopped) this.#tellDrained();
    });
    this.#chats = new ChatRenderer(parts, parts.model, this.#texts);
    this.#parts = parts;
    this.#observers = new Observers(() => this.#clock.nowMs(), parts.inspector);
    const wake = (): void => {
      this.#checkRunning();
      this.#work.notify();
    };
    this.#cache = cacheMonitorOf(parts, wake, () => this.#clock.nowMs());
    this.#loop = this.#run()
      .catch((cause: unknown) => this.#break(cause))
      .finally(() => {
        this.#hasStopped = true;
        this.#cache?.rejectPending(engineClosed());
        this.#tellDrained();
      });
  }

  generate(request: GenerateRequest, { signal }: { readonly signal?: AbortSignal } = {}): OutputStream | LateStream {
    return this.#submit(request, signal);
  }

  async embed(request: EmbedRequest, { signal }: { readonly signal?: AbortSignal } = {}): Promise<Embedding> {
    const pooling = poolingFor(this.model);
    checkDimensions(request.dimensions, this.model);
    const stream = this.#submit({ ...request, params: { maxTokens: 0 } }, signal, pooling);
    return collectEmbedding(stream, this.model.name, request, signal);
  }

  #submit(request: GenerateRequest, signal: AbortSignal | undefined, pooling?: Pooling): OutputStream | LateStream {
    try {
      this.#checkOpen();
      const parts = { tokenizer: this.#parts.tokenizer, model: this.model, drawSeed: this.#drawSeed, pooling };
      const checked = checkRequest(request, parts);
      const { n = 1, structuredOutputs } = checked.sampling;
      const tokens = checked.prompt instanceof Int32Array ? checked.prompt : this.#texts.runAtOnce(checked.prompt);
      const prepared = tokens && prepareRequest(checked, tokens, this.model);
      this.#checkRoom(n, request.tenant);
      const grammar = request.grammar ?? (structuredOutputs && structuredSource(structuredOutputs));
      const arrival = this.#observers.arrived(request);
      const begin = (constraint?: OutputConstraint): OutputStream | LateStream => {
        const start: StartOptions = { name: request.requestId, signal, constraint, arrival };
        return prepared === undefined ? this.#startLong(checked, start) : this.#start(prepared, start);
      };
      if (grammar === undefined) return begin();
      const compiled = this.#grammars.compileAtOnce(grammar);
      if (compiled !== undefined) return begin(compiled);
      return this.#startLate(n, signal, (stop) =>
        this.#texts.hold(n, stop, (signal) => this.#grammars.compile(grammar, signal), begin),
      );
    } catch (error) {
      return OutputStream.failed(error);
    }
  }

  chat(request: ChatRequest, { signal }: { readonly signal?: AbortSignal } = {}): ChatStream {
    return new ChatStream(this, request, signal);
  }

  async tokenizePrompt(prompt: string | RenderedPrompt, given: TokenizePromptOptions = {}): Promise<Int32Array> {
    this.#checkNotClosed();
    const text = readPromptText(prompt, given);
    checkTextFits(text.text, this.#parts.tokenizer, this.model);
    const tokens = this.#texts.runAtOnce(text);
    if (tokens !== undefined) return tokens;
    this.#checkRoom(1);
    return this.#texts.run({ ...text, completions: 1 }, given.signal, (tokens) => tokens);
  }

  tokenize(prompt: string | RenderedPrompt, given: EncodeOptions = {}): number[] {
    this.#checkNotClosed();
    const { text, options } = readPromptText(prompt, given);
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

  async renderChat(messages: readonly ChatMessage[], options: RenderChatOptions = {}): Promise<RenderedPrompt> {
    this.#checkNotClosed();
    this.#checkRoom(1);
    return this.#chats.render(messages, options);
  }

  applyChatTemplate(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): RenderedPrompt {
    return this.#chats.renderHere(messages, options);
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

  observe(observer: EngineObserver): () => void {
    return this.#observers.add(observer);
  }

  get cache(): CacheMonitor | undefined {
    return this.#cache;
  }

  health(): EngineHealth {
    if (this.#closing !== undefined) return { status: 'closed' };
    if (this.#failure !== undefined) return { status: 'broken', message: reasonOf(this.#failure.cause) };
    const ranks = this.#parts.executor.troubles?.() ?? [];
    return ranks.length === 0 ? this.#threads.health() : rankHealth(ranks);
  }

  warmUp(): Promise<void> {
    return this.#threads.warmUp();
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
    this.#checkRunning();
  }

  #checkRunning(): void {
    this.#checkNotClosed();
    if (this.#failure !== undefined) {
      const { cause } = this.#failure;
      throw engineBroken({ reason: reasonOf(cause) }, cause);
    }
  }

  #checkRoom(completions: number, tenant?: string): void {
    const { maxWaiting, scheduler } = this.#settings;
    const { maxNumSeqs } = scheduler;
    checkRoom({ live: this.#live, preparing: this.#texts.completions, maxNumSeqs, maxWaiting }, completions, tenant);
  }

  /** The request enters the scheduler's queue when its tokens exist. Short requests that came later can be ahead of it. */
  #startLong(request: CheckedRequest, start: StartOptions): LateStream {
    const { n: completions = 1 } = request.sampling;
    assert(!(request.prompt instanceof Int32Array), 'a long prompt is a text');
    const text = { ...request.prompt, completions };
    const begin = (tokens: Int32Array) => this.#start(prepareRequest(request, tokens, this.model), start);
    return this.#startLate(completions, start.signal, (stop) => this.#texts.run(text, stop, begin));
  }

  /** A request that starts when something is ready that another thread, or later turns of the event loop, prepare. */
  #startLate(
    completions: number,
    signal: AbortSignal | undefined,
    prepare: (stop: AbortSignal) => Promise<OutputStream | LateStream>,
  ): LateStream {
    const stop = new AbortController();
    const onAbort = (): void => stop.abort();
    if (signal?.aborted === true) onAbort();
    allowSharing(signal);
    signal?.addEventListener('abort', onAbort, { once: true });
    const started = prepare(stop.signal)
      .catch((error: unknown) => this.#notStarted(completions, error, stop.signal))
      .finally(() => signal?.removeEventListener('abort', onAbort));
    return new LateStream(started, onAbort);
  }

  /** The stream of a request that ended before it could start. */
  #notStarted(completions: number, error: unknown, { aborted }: AbortSignal): OutputStream {
    const isAborted = aborted || this.#closing !== undefined;
    if (!isAborted && this.#failure === undefined) return OutputStream.failed(error);
    if (isAborted) for (let index = 0; index < completions; index++) this.#totals.countAbort();
    return OutputStream.ended(completions, isAborted ? 'abort' : 'error');
  }

  #start(prepared: PreparedRequest, { name, signal, constraint, arrival }: StartOptions): OutputStream {
    assert(this.isHealthy(), `request ${name ?? ''} starts in an engine that no longer runs steps`);
    const { params } = prepared;
    const handles: RequestHandle[] = [];
    const onAbort = (): void => {
      for (const handle of handles) if (!handle.hasEnded) this.#abort(handle, 'abort');
    };
    const onEnd = (): void => {
      signal?.removeEventListener('abort', onAbort);
      // A completion that has not ended here has no reader any more.
      for (const handle of handles) if (!handle.hasEnded) this.#abandon(handle);
    };
    const stream = new OutputStream(params.n, onEnd, prepared.unreadMaxBytes);
    allowSharing(signal);
    const serial = ++this.#serial;
    for (let index = 0; index < params.n; index++) {
      const id = requestId(`${name ?? 'request'}#${serial}.${index}`);
      const request = completionRequest(prepared, {
        id,
        index,
        constraint,
        eosTokenIds: this.#parts.tokenizer.eosTokenIds,
      });
      const pooler = poolerOf(prepared, this.model);
      const handle = new RequestHandle(request, index, stream, this.#parts.tokenizer, pooler);
      handles.push(handle);
      assert(!this.#live.has(id), `request ${id} is live already`);
      this.#live.set(id, handle);
      this.#observers.began(request, arrival);
      // If the signal is aborted already, the request ends without entering the scheduler.
      if (signal?.aborted !== true) this.#parts.scheduler.add(request);
    }
    if (signal?.aborted === true) onAbort();
    else signal?.addEventListener('abort', onAbort, { once: true });
    this.#cache?.changed();
    this.#work.notify();
    return stream;
  }

  async #run(): Promise<void> {
    const parts = this.#observers.measured({ ...this.#parts, outbox: this.#outbox, nowMs: () => this.#clock.nowMs() });
    while (this.#closing === undefined) {
      if (await step(parts)) {
        this.#totals.countStep();
        this.#tellKvEvents();
        this.#cache?.changed();
        this.#loseBlocks();
        continue;
      }
      if (this.#loseBlocks()) continue;
      this.#parts.scheduler.checkInvariants(this.#settings.invariants ?? 'counts');
      this.#checkLive();
      this.#tellDrained();
      const wakeMs = this.#parts.scheduler.nextWakeMs();
      await this.#work.sleep(wakeMs === undefined ? undefined : Math.max(0, wakeMs - this.#clock.nowMs()));
    }
    this.#report();
  }

  /** No step is in flight. Returns whether blocks were lost, so that there may be work. */
  #loseBlocks(): boolean {
    if (this.#cache === undefined || !this.#cache.hasPending) return false;
    this.#outbox.put(this.#cache.loseNow());
    return true;
  }

  /** No step is in flight, and all updates are delivered: the engine and the scheduler have the same requests. */
  #checkLive(): void {
    const { running, waiting, waitingForRemoteKv } = this.#parts.scheduler.stats();
    const scheduled = running + waiting + waitingForRemoteKv;
    assert(scheduled === this.#live.size, `${scheduled} requests in the scheduler, ${this.#live.size} in the engine`);
  }

  #report(): void {
    this.#transferLog.update(this.#parts.scheduler.stats().transfers);
  }

  #tellKvEvents(): void {
    const events = this.#parts.connector?.takeEvents() ?? [];
    if (events.length === 0) return;
    this.#settings.onKvEvents?.(events);
    this.#parts.kvEvents?.connectorEvents(events);
  }

  #deliver(update: RequestUpdate): void {
    const handle = this.#live.get(update.requestId);
    if (handle === undefined) return;
    const before = handle.stats;
    handle.receive(update, () => this.#parts.scheduler.abort(update.requestId));
    this.#totals.add(before, assertDefined(handle.stats, 'an update has statistics'));
    this.#observers.tokensArrived(handle, update.newTokens.length);
    if (handle.hasEnded) this.#cache?.ended(update.requestId, update.stats);
    if (handle.hasEnded) this.#forget(handle);
  }

  #abort(handle: RequestHandle, reason: FinishReason): void {
    // Deliver the tokens of the last step first; they belong to the completion.
    this.#outbox.deliverTo(handle.request.id);
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
    const { finishReason } = handle;
    assert(finishReason !== undefined, `request ${handle.request.id} is removed before its end`);
    assert(this.#live.delete(handle.request.id), `request ${handle.request.id} is removed twice`);
    this.#observers.ended(handle, finishReason);
    this.#cache?.changed();
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
    (this.#settings.onBroken ?? warnBroken)(cause);
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
      await this.#parts.draftModel?.close();
    } finally {
      await this.#parts.kvEvents?.close();
      this.#threads.close();
      this.#parts.tokenizer.close();
    }
  }
}
