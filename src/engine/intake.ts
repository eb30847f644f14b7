import { assert } from '../base/assert.ts';
import { allowSharing } from '../base/unless-aborted.ts';
import type { OutputConstraint } from '../core/constraint.ts';
import { queueFull } from '../core/errors.ts';
import type { Pooling } from '../core/request.ts';
import { Grammars } from '../grammar/grammars.ts';
import { structuredSource } from '../grammar/structured-grammar.ts';
import { isWithinShare } from '../scheduler/tenant-turns.ts';
import type { GrammarThread } from '../tools/grammar-thread.ts';
import { ChatRenderer } from './chat/chat-renderer.ts';
import { type RenderedPrompt, readPromptText } from './chat/rendered-prompt.ts';
import type {
  ChatMessage,
  ChatTemplateOptions,
  GenerateRequest,
  OutputDelta,
  RenderChatOptions,
  TokenizePromptOptions,
} from './contract.ts';
import { checkMakesText } from './embed.ts';
import type { EngineParts, EngineSettings } from './engine-parts.ts';
import type { EngineState } from './engine-state.ts';
import type { LiveRequests, StartOptions } from './live-requests.ts';
import type { Observers } from './observers.ts';
import { OutputStream } from './output-stream.ts';
import { type CheckedRequest, checkRequest, type PreparedRequest, prepareRequest } from './prepare.ts';
import { checkTextFits } from './prompt-limits.ts';
import type { EngineTotals } from './stats.ts';
import { TextQueue } from './text-queue.ts';

export interface IntakeParts {
  readonly engine: EngineParts;
  readonly settings: EngineSettings;
  readonly grammarThread: GrammarThread;
  readonly state: EngineState;
  readonly live: LiveRequests;
  readonly observers: Observers;
  readonly totals: EngineTotals;
  /** Called when a text has been tokenized or given up. */
  onEnd(): void;
}

/** What a request is for, if not for a text. */
export interface Purpose {
  readonly pooling?: Pooling | undefined;
  /** It only loads its blocks. */
  readonly loadOnly?: true;
}

/**
 * Requests before they enter the scheduler: checks, tokens, grammars. Work that takes long runs on another thread; such requests
 * count as waiting. Short requests that come later can be ahead of them.
 */
export class Intake {
  readonly #parts: IntakeParts;
  readonly #drawSeed: () => bigint;
  readonly #texts: TextQueue;
  readonly #chats: ChatRenderer;
  readonly #grammars: Grammars;

  constructor(parts: IntakeParts) {
    const { engine, settings } = parts;
    this.#parts = parts;
    this.#drawSeed = settings.drawSeed ?? (() => crypto.getRandomValues(new BigUint64Array(1))[0]!);
    this.#texts = new TextQueue(engine.tokenizer, engine.model.maxModelLen, () => parts.onEnd());
    this.#chats = new ChatRenderer(engine, engine.model, this.#texts);
    this.#grammars = new Grammars(engine.tokenizer, parts.grammarThread, (notes, parameter) => {
      const message = `Outputs may not match \`${parameter}\`, because a part of it cannot be kept: ${notes.join('; ')}.`;
      settings.onEvent?.({ level: 'warn', message, fields: { parameter } });
    });
  }

  /** Completions that wait for tokens or for a grammar. */
  get completions(): number {
    return this.#texts.completions;
  }

  submit(request: GenerateRequest, signal: AbortSignal | undefined, purpose: Purpose = {}): OutputStream | LateStream {
    const { state, engine, observers } = this.#parts;
    const { pooling, loadOnly } = purpose;
    try {
      state.checkOpen();
      if (pooling === undefined && loadOnly === undefined) checkMakesText(engine.model);
      const { tokenizer, model, adapters } = engine;
      // A seed that is drawn changes those of later requests.
      const drawSeed = loadOnly === true ? () => 0n : this.#drawSeed;
      const parts = { tokenizer, model, adapters, drawSeed, pooling, loadOnly };
      const checked = checkRequest(request, parts);
      const { n = 1, structuredOutputs } = checked.sampling;
      const tokens = checked.prompt instanceof Int32Array ? checked.prompt : this.#texts.runAtOnce(checked.prompt);
      const prepared = tokens && prepareRequest(checked, tokens, engine.model);
      this.#checkRoom(n, request.tenant);
      const grammar = request.grammar ?? (structuredOutputs && structuredSource(structuredOutputs));
      const arrival = loadOnly === true ? undefined : observers.arrived(request);
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

  async tokenize(prompt: string | RenderedPrompt, given: TokenizePromptOptions): Promise<Int32Array> {
    const { tokenizer, model } = this.#parts.engine;
    const text = readPromptText(prompt, given);
    if (given.isCut !== true) checkTextFits(text.text, tokenizer, model);
    const tokens = this.#texts.runAtOnce(text);
    if (tokens !== undefined) return tokens;
    this.#checkRoom(1);
    return this.#texts.run({ ...text, completions: 1, isCut: given.isCut }, given.signal, (tokens) => tokens);
  }

  async renderChat(messages: readonly ChatMessage[], options: RenderChatOptions): Promise<RenderedPrompt> {
    this.#checkRoom(1);
    return this.#chats.render(messages, options);
  }

  renderChatHere(messages: readonly ChatMessage[], options: ChatTemplateOptions): RenderedPrompt {
    return this.#chats.renderHere(messages, options);
  }

  abortAll(reason: unknown): void {
    this.#texts.abortAll(reason);
  }

  /**
   * The limit applies to accepted requests, not to waiting ones: an idle engine accepts a burst that arrives before its next step. If no
   * other request is there, a request may have more completions than the limit. A tenant leaves a part of the queue to others.
   * @throws KvasirError `queueFull`.
   */
  #checkRoom(completions: number, tenant?: string): void {
    const { live, settings } = this.#parts;
    const { maxWaiting: limit, scheduler } = settings;
    const accepted = live.size + this.completions;
    if (accepted === 0) return;
    const free = scheduler.maxNumSeqs + limit - accepted - completions;
    const held = tenant === undefined ? 0 : live.countOf(tenant);
    if (free >= 0 && isWithinShare(held, completions, free)) return;
    throw queueFull({ waiting: Math.max(0, accepted - scheduler.maxNumSeqs), limit });
  }

  /** The request enters the scheduler's queue when its tokens exist. */
  #startLong(request: CheckedRequest, start: StartOptions): LateStream {
    const { n: completions = 1 } = request.sampling;
    assert(!(request.prompt instanceof Int32Array), 'a long prompt is a text');
    const text = { ...request.prompt, completions };
    const begin = (tokens: Int32Array) => this.#start(prepareRequest(request, tokens, this.#parts.engine.model), start);
    return this.#startLate(completions, start.signal, (stop) => this.#texts.run(text, stop, begin));
  }

  #start(prepared: PreparedRequest, start: StartOptions): OutputStream {
    const { state, live } = this.#parts;
    assert(state.isHealthy, `request ${start.name ?? ''} starts in an engine that no longer runs steps`);
    return live.start(prepared, start);
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
    const { state, totals } = this.#parts;
    const isAborted = aborted || state.isClosed;
    if (!isAborted && state.failure === undefined) return OutputStream.failed(error);
    if (isAborted) for (let index = 0; index < completions; index++) totals.countAbort();
    return OutputStream.ended(completions, isAborted ? 'abort' : 'error');
  }
}

/** The stream of a request whose prompt or grammar is not ready yet. It forwards to the stream that `start` resolves to. */
export class LateStream implements AsyncIterableIterator<OutputDelta> {
  readonly #start: Promise<AsyncIterableIterator<OutputDelta, undefined>>;
  readonly #giveUp: () => void;

  /** `start` must not reject. `giveUp` is called when the reader closes the stream, before or after the start. */
  constructor(start: Promise<AsyncIterableIterator<OutputDelta, undefined>>, giveUp: () => void) {
    this.#start = start;
    this.#giveUp = giveUp;
  }

  async next(): Promise<IteratorResult<OutputDelta, undefined>> {
    return (await this.#start).next();
  }

  async return(): Promise<IteratorResult<OutputDelta, undefined>> {
    this.#giveUp();
    const stream = await this.#start;
    return (await stream.return?.()) ?? { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
