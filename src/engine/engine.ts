import { assert } from '../base/assert.ts';
import { type Clock, systemClock } from '../base/clock.ts';
import { engineClosed } from '../core/errors.ts';
import type { RequestUpdate } from '../core/request.ts';
import { requestFits } from '../scheduler/request-fits.ts';
import type { DecodeOptions, EncodeOptions } from '../tokenizer/contract.ts';
import { GrammarThread } from '../tools/grammar-thread.ts';
import type { EngineAdapters } from './adapters.ts';
import { BackgroundThreads } from './background-threads.ts';
import { BreakerLog } from './breaker-log.ts';
import { reasonOf, warnBroken } from './broken-warning.ts';
import type { CacheMonitor } from './cache-contract.ts';
import { cacheMonitorOf, type EngineCacheMonitor } from './cache-monitor.ts';
import { ChatStream } from './chat/chat-stream.ts';
import { type RenderedPrompt, readPromptText } from './chat/rendered-prompt.ts';
import { checkIsListOfObjects, checkIsObject, checkSignal, checkToken, checkTokens } from './check-arguments.ts';
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
import { checkDimensions, collectEmbedding, type Embedding, type EmbedRequest, poolingFor } from './embed.ts';
import type { EngineParts, EngineSettings } from './engine-parts.ts';
import { EngineState } from './engine-state.ts';
import { poolTooSmall } from './errors.ts';
import { Intake, type LateStream } from './intake.ts';
import { type EngineKvAdministration, kvAdministrationOf } from './kv-administration.ts';
import type { KvAdministration } from './kv-administration-contract.ts';
import { LiveRequests } from './live-requests.ts';
import { LoadFailureLog } from './load-failure-log.ts';
import type { EngineObserver } from './observer.ts';
import { Observers } from './observers.ts';
import type { OutputStream } from './output-stream.ts';
import { pairPrompt, type Score, type ScoreRequest, scoreAll, scoreOf, sumOfStats } from './score.ts';
import { EngineTotals } from './stats.ts';
import { step } from './step.ts';
import { Wakeup } from './wakeup.ts';

/**
 * The engine accepts requests, runs steps while it has work, and sleeps otherwise. `Intake` has the requests before they enter
 * the scheduler, `LiveRequests` those that have not ended.
 * @throws KvasirError `poolTooSmall` from the constructor if one request of full length does not fit the pool.
 */
export class Engine implements AsyncEngine {
  readonly model: ModelInfo;
  readonly #parts: EngineParts;
  readonly #settings: EngineSettings;
  readonly #clock: Clock;
  readonly #state = new EngineState();
  readonly #live: LiveRequests;
  readonly #intake: Intake;
  readonly #totals = new EngineTotals();
  readonly #observers: Observers;
  readonly #loadFailures: LoadFailureLog;
  readonly #breakers: BreakerLog;
  readonly #cache: EngineCacheMonitor | undefined;
  readonly #kv: EngineKvAdministration | undefined;
  readonly #work = new Wakeup();
  readonly #threads: BackgroundThreads;
  readonly #loop: Promise<void>;
  #drainers: (() => void)[] = [];
  /** The loop has ended: closed or broken. */
  #hasStopped: boolean = false;
  #closing: Promise<void> | undefined;

  constructor(parts: EngineParts, settings: EngineSettings) {
    const { maxModelLen } = parts.model;
    assert(maxModelLen === settings.scheduler.maxModelLen, 'engine and scheduler have the same maxModelLen');
    assert(parts.tokenizer.vocabSize === parts.model.vocabSize, 'tokenizer and model have the same vocabulary size');
    const spec = parts.executor.kvCacheSpec;
    if (!requestFits(spec, settings.scheduler, 1, maxModelLen - 1)) {
      throw poolTooSmall({ blockCount: spec.blockCount - 1, maxModelLen });
    }
    this.model = parts.model;
    this.#parts = parts;
    this.#settings = settings;
    this.#clock = settings.clock ?? systemClock;
    this.#loadFailures = new LoadFailureLog(settings.onEvent);
    this.#breakers = new BreakerLog(settings.onEvent);
    const grammarThread = new GrammarThread();
    this.#threads = new BackgroundThreads([...(parts.threads ?? []), grammarThread.jobs]);
    this.#observers = new Observers(() => this.#clock.nowMs(), parts.inspector);
    const wake = (): void => {
      this.#state.checkRunning();
      this.#work.notify();
    };
    this.#cache = cacheMonitorOf(parts, wake, () => this.#clock.nowMs());
    const [observers, totals] = [this.#observers, this.#totals];
    this.#live = new LiveRequests({
      ...{ scheduler: parts.scheduler, tokenizer: parts.tokenizer, model: parts.model },
      ...{ observers, totals, cache: this.#cache, adapters: parts.adapters },
      onDeliver: (updates) => this.#report(updates),
      wake: () => this.#work.notify(),
    });
    this.#intake = new Intake({
      ...{ engine: parts, settings, grammarThread, state: this.#state, live: this.#live, observers, totals },
      onEnd: () => {
        this.#work.notify();
        if (this.#hasStopped) this.#tellDrained();
      },
    });
    this.#kv = kvAdministrationOf(parts, {
      nowMs: () => this.#clock.nowMs(),
      checkRunning: () => this.#state.checkRunning(),
      tokenize: (prompt, options) => this.#intake.tokenize(prompt as string | RenderedPrompt, options),
      load: (request, signal) => this.#intake.submit(request, signal, { loadOnly: true }),
      changed: () => this.#cache?.changed(),
    });
    this.#loop = this.#run()
      .catch((cause: unknown) => this.#break(cause))
      .finally(() => {
        this.#hasStopped = true;
        this.#cache?.rejectPending(engineClosed());
        this.#tellDrained();
      });
  }

  generate(request: GenerateRequest, { signal }: { readonly signal?: AbortSignal } = {}): OutputStream | LateStream {
    checkSignal(signal);
    return this.#intake.submit(request, signal);
  }

  async embed(request: EmbedRequest, { signal }: { readonly signal?: AbortSignal } = {}): Promise<Embedding> {
    checkIsObject('request', request);
    checkSignal(signal);
    const pooling = poolingFor(this.model);
    checkDimensions(request.dimensions, this.model);
    const stream = this.#intake.submit({ ...request, params: { maxTokens: 0 } }, signal, { pooling });
    return collectEmbedding(stream, this.model.name, request, signal);
  }

  async score(request: ScoreRequest, { signal }: { readonly signal?: AbortSignal } = {}): Promise<Score> {
    checkIsObject('request', request);
    checkSignal(signal);
    const { model } = this;
    const { query: _query, document: _document, truncation: _truncation, useActivation, ...settings } = request;
    const { scores } = model;
    if (scores === undefined) {
      const { scores: found, stats } = await scoreAll(this, [request], { signal });
      return { score: found[0]!, stats: sumOfStats(stats) };
    }
    const prompt = await pairPrompt(this, scores, request, signal);
    const stream = this.#intake.submit({ ...settings, prompt, params: { maxTokens: 0 } }, signal, {
      pooling: scores.pooling,
    });
    const { embedding, stats } = await collectEmbedding(stream, model.name, { prompt, normalize: false }, signal);
    return { score: scoreOf(embedding, scores, useActivation), stats };
  }

  chat(request: ChatRequest, { signal }: { readonly signal?: AbortSignal } = {}): ChatStream {
    checkIsObject('request', request);
    checkSignal(signal);
    return new ChatStream(this, request, signal);
  }

  async tokenizePrompt(prompt: string | RenderedPrompt, options: TokenizePromptOptions = {}): Promise<Int32Array> {
    this.#state.checkNotClosed();
    checkSignal(options.signal);
    return this.#intake.tokenize(prompt, options);
  }

  tokenize(prompt: string | RenderedPrompt, given: EncodeOptions = {}): number[] {
    this.#state.checkNotClosed();
    const { text, options } = readPromptText(prompt, given);
    return Array.from(this.#parts.tokenizer.encode(text, options));
  }

  detokenize(tokens: ArrayLike<number>, options: DecodeOptions = {}): string {
    this.#state.checkNotClosed();
    checkTokens(tokens, this.model.vocabSize);
    return this.#parts.tokenizer.decode(tokens, options);
  }

  detokenizeParts(tokens: ArrayLike<number>, options: DecodeOptions = {}): Iterable<string> {
    this.#state.checkNotClosed();
    checkTokens(tokens, this.model.vocabSize);
    return this.#parts.tokenizer.decodeParts(tokens, options);
  }

  tokenBytes(token: number): Uint8Array {
    this.#state.checkNotClosed();
    checkToken(token, this.model.vocabSize);
    return this.#parts.tokenizer.tokenBytes(token, { special: true });
  }

  async renderChat(messages: readonly ChatMessage[], options: RenderChatOptions = {}): Promise<RenderedPrompt> {
    this.#state.checkNotClosed();
    checkSignal(options.signal);
    checkIsListOfObjects('messages', messages);
    return this.#intake.renderChat(messages, options);
  }

  applyChatTemplate(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): RenderedPrompt {
    checkIsListOfObjects('messages', messages);
    return this.#intake.renderChatHere(messages, options);
  }

  /** Connectors call it at any time, when transfers end outside a step or a deferred answer is available. */
  notifyTransfers(): void {
    this.#parts.scheduler.notifyTransfers(this.#clock.nowMs());
    this.#work.notify();
  }

  stats(): EngineStats {
    const report = this.#totals.report(this.#parts.scheduler.stats());
    return { ...report, waiting: report.waiting + this.#intake.completions };
  }

  observe(observer: EngineObserver): () => void {
    return this.#observers.add(observer);
  }

  get adapters(): EngineAdapters | undefined {
    return this.#parts.adapters;
  }

  get cache(): CacheMonitor | undefined {
    return this.#cache;
  }

  get kv(): KvAdministration | undefined {
    return this.#kv;
  }

  health(): EngineHealth {
    const { isClosed, failure } = this.#state;
    if (isClosed) return { status: 'closed' };
    if (failure !== undefined) return { status: 'broken', message: reasonOf(failure.cause) };
    const ranks = this.#parts.executor.troubles?.() ?? [];
    if (ranks.length === 0) return this.#threads.health();
    // A rank that is not restarted breaks the engine at the next step.
    const status = ranks.some(({ state }) => state === 'gone') ? 'broken' : 'recovering';
    return { status, message: ranks.map(({ message }) => message).join(' '), ranks };
  }

  warmUp(): Promise<void> {
    return this.#threads.warmUp();
  }

  isHealthy(): boolean {
    return this.#state.isHealthy;
  }

  async drain(): Promise<void> {
    this.#state.drain();
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

  async #run(): Promise<void> {
    const { outbox } = this.#live;
    const parts = this.#observers.measured({ ...this.#parts, outbox, nowMs: () => this.#clock.nowMs() });
    while (!this.#state.isClosed) {
      if (await step(parts)) {
        this.#totals.countStep();
        this.#tellKvEvents();
        this.#cache?.changed();
        this.#loseBlocks();
        continue;
      }
      if (this.#loseBlocks()) continue;
      this.#parts.scheduler.checkInvariants(this.#settings.invariants ?? 'counts');
      this.#live.check();
      this.#tellDrained();
      const wakeMs = this.#parts.scheduler.nextWakeMs();
      await this.#work.sleep(wakeMs === undefined ? undefined : Math.max(0, wakeMs - this.#clock.nowMs()));
    }
    this.#report([]);
  }

  /** No step is in flight. Returns whether blocks were lost, so that there may be work. */
  #loseBlocks(): boolean {
    if (this.#cache === undefined || !this.#cache.hasPending) return false;
    this.#live.outbox.put(this.#cache.loseNow());
    return true;
  }

  /** Called after each step: beside the next step, which then starts earlier, or after the last one. */
  #report(updates: readonly RequestUpdate[]): void {
    const { transfers } = this.#parts.scheduler.stats();
    this.#loadFailures.update(transfers, updates);
    this.#breakers.update(this.#clock.nowMs(), () => transfers.connector);
  }

  #tellKvEvents(): void {
    const events = this.#parts.connector?.takeEvents() ?? [];
    if (events.length === 0) return;
    this.#settings.onKvEvents?.(events);
    this.#parts.kvEvents?.connectorEvents(events);
  }

  /** Resolves the calls of `drain` if no request is left; no step is in flight here. */
  #tellDrained(): void {
    if (this.#live.size + this.#intake.completions > 0) return;
    for (const resolve of this.#drainers) resolve();
    this.#drainers = [];
  }

  /** The executor or the scheduler failed, so no later token is reliable. */
  #break(cause: unknown): void {
    this.#state.break(cause);
    this.#intake.abortAll(cause);
    this.#live.failAll();
    (this.#settings.onBroken ?? warnBroken)(cause);
  }

  async #close(): Promise<void> {
    this.#state.close();
    this.#intake.abortAll(engineClosed());
    this.#live.abortAll();
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
