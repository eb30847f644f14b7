import { Readable } from 'node:stream';
import type { JsonObject } from '../../src/base/json.ts';
import { engineClosed, promptEmpty, queueFull, tooManyTokens } from '../../src/core/errors.ts';
import { type TokenId, tokenId } from '../../src/core/ids.ts';
import type { Pooling, RequestStats } from '../../src/core/request.ts';
import type { SamplingParams } from '../../src/core/sampling.ts';
import { parseSamplingParams } from '../../src/core/sampling-parse.ts';
import type { TokenLogprobs } from '../../src/core/step.ts';
import { ChatStream } from '../../src/engine/chat/chat-stream.ts';
import { RenderedPrompt, readPromptText } from '../../src/engine/chat/rendered-prompt.ts';
import type {
  AsyncEngine,
  ChatMessage,
  ChatRequest,
  ChatTemplateOptions,
  EngineHealth,
  EngineStats,
  GenerateRequest,
  ModelInfo,
  OutputDelta,
  TokenizePromptOptions,
} from '../../src/engine/contract.ts';
import {
  checkDimensions,
  collectEmbedding,
  type Embedding,
  type EmbedRequest,
  poolingFor,
} from '../../src/engine/embed.ts';
import { chatTemplateMissing } from '../../src/engine/errors.ts';
import { pairPrompt, type Score, type ScoreRequest, scoreAll, scoreOf, sumOfStats } from '../../src/engine/score.ts';
import { contentText } from '../../src/tools/template-messages.ts';

export interface LetterEngineOptions {
  /** Awaited before every step, so that a test decides when the engine continues. */
  readonly beforeStep?: () => Promise<void>;
  readonly maxModelLen?: number;
  readonly maxRequests?: number;
  readonly hasChatTemplate?: boolean;
  readonly pooling?: Pooling;
  /** A reranker. */
  readonly isReranker?: boolean;
  /** The answer of `health`. */
  readonly health?: () => EngineHealth;
  /** The step, counted from 1, at which every request ends with `error`. */
  readonly failAtStep?: number;
  /** The error that `generate` throws. */
  readonly throws?: unknown;
  /** Every completion is this text instead of letters, and then stops. ASCII, one token for each character. */
  readonly answer?: string;
  /** A text that is a control token, also in answers. */
  readonly control?: string;
  /** `model.description`. */
  readonly description?: string;
  /** `model.aliases`. */
  readonly aliases?: readonly string[];
  /** `model.fimTokens`. */
  readonly fimTokens?: ModelInfo['fimTokens'];
  /** The logprob of each token of a completion; default -0.5. */
  readonly logprobOf?: (index: number, step: number) => number;
  /** `model.chatTemplate`. */
  readonly chatTemplate?: string;
  /** Statistics of every request, besides its lengths. */
  readonly stats?: Partial<RequestStats>;
  /** The `kvTransferParams` of each completion's finish, as if from a connector. */
  readonly kvTransferParams?: (index: number) => JsonObject | undefined;
}

const IM_START = 256;
const IM_END = 257;
const VOCAB_SIZE = 258;
const letterScores = {
  pooling: 'cls',
  length: 1,
  activation: 'sigmoid',
  prompt: { before: [IM_START], between: [IM_END], after: [IM_END] },
} as const;

/**
 * The engine's contract without a model, for tests of its callers. Tokens are the bytes of UTF-8 and two control tokens. The output
 * depends only on the prompt: `abc...`, from a letter that the prompt's length decides, one letter later for each further choice.
 * The engine obeys stop strings, lengths, aborts and the limit of its queue.
 */
export class LetterEngine implements AsyncEngine {
  readonly model: ModelInfo;
  readonly requests: GenerateRequest[] = [];
  /** The option `answer`; a test may change it between requests. */
  answer: string | undefined;
  readonly #options: LetterEngineOptions;
  #running = 0;
  #aborts = 0;
  #generated = 0;
  #isClosed: boolean = false;
  readonly #closing = new AbortController();
  #idle: () => void = () => {};

  constructor(options: LetterEngineOptions = {}) {
    this.#options = options;
    this.answer = options.answer;
    this.model = {
      name: 'letters',
      path: '/models/letters.gguf',
      ...(options.description === undefined ? {} : { description: options.description }),
      architecture: 'letters',
      vocabSize: VOCAB_SIZE,
      maxModelLen: options.maxModelLen ?? 256,
      hasChatTemplate: options.hasChatTemplate ?? true,
      ...(options.isReranker === true ? { scores: letterScores, makesNoText: true } : {}),
      embedding: { length: 4, ...(options.pooling === undefined ? {} : { pooling: options.pooling }) },
      ...(options.aliases === undefined ? {} : { aliases: options.aliases }),
      ...(options.fimTokens === undefined ? {} : { fimTokens: options.fimTokens }),
      ...(options.chatTemplate === undefined ? {} : { chatTemplate: options.chatTemplate }),
    };
  }

  async *generate(request: GenerateRequest, { signal }: { readonly signal?: AbortSignal } = {}) {
    if (this.#options.throws !== undefined) throw this.#options.throws;
    if (this.#isClosed) throw engineClosed();
    const limit = this.#options.maxRequests ?? 64;
    if (this.#running >= limit) throw queueFull({ waiting: this.#running, limit });
    const given = request.prompt;
    const prompt = typeof given === 'string' || given instanceof RenderedPrompt ? this.tokenize(given, request) : given;
    if (prompt.length === 0) throw promptEmpty();
    const { maxModelLen } = this.model;
    const params = parseSamplingParams(request.params, {
      vocabSize: VOCAB_SIZE,
      maxTokensDefault: maxModelLen - prompt.length,
      drawSeed: () => 0n,
    });
    if (prompt.length + params.maxTokens > maxModelLen) {
      throw tooManyTokens({ promptTokens: prompt.length, maxTokens: request.params?.maxTokens, maxModelLen });
    }
    this.requests.push(request);
    this.#running++;
    let hasEnded = false;
    try {
      for await (const delta of this.#steps(prompt.length, params, signal)) {
        hasEnded = delta.finish !== undefined && delta.finish.reason !== 'abort';
        yield delta;
      }
    } finally {
      if (!hasEnded) this.#aborts++;
      this.#running--;
      if (this.#running === 0) this.#idle();
    }
  }

  async *#steps(promptTokens: number, params: SamplingParams, signal?: AbortSignal): AsyncGenerator<OutputDelta> {
    const texts = new Array<string>(params.n).fill('');
    const open = new Set(texts.keys());
    const stop = AbortSignal.any([this.#closing.signal, ...(signal === undefined ? [] : [signal])]);
    const stopped = new Promise<void>((resolve) => stop.addEventListener('abort', () => resolve(), { once: true }));
    const { answer } = this;
    if (params.promptLogprobs !== undefined || params.maxTokens === 0)
      yield* promptDeltas(promptTokens, params, this.#options.stats);
    if (params.maxTokens === 0) return;
    for (let step = 1; open.size > 0; step++) {
      if (!stop.aborted) await Promise.race([this.#options.beforeStep?.() ?? Promise.resolve(), stopped]);
      const nothing = { cachedTokens: 0, computedTokens: 0, recomputedTokens: 0, preemptions: 0 };
      const stats = { ...nothing, promptTokens, outputTokens: step, ...this.#options.stats };
      for (const index of [...open]) {
        if (stop.aborted || step === this.#options.failAtStep) {
          open.delete(index);
          yield { index, text: '', tokenIds: [], stats, finish: { reason: stop.aborted ? 'abort' : 'error' } };
          continue;
        }
        const token = answer === undefined ? letterAt(promptTokens, index, step) : tokenId(answer.charCodeAt(step - 1));
        this.#generated++;
        const before = texts[index]!;
        texts[index] = before + String.fromCharCode(token);
        const stopString = params.stop.find((text) => texts[index]!.includes(text));
        const text = stopString === undefined ? String.fromCharCode(token) : '';
        const base = {
          index,
          text,
          ...this.#controlsAt(answer, step - 1),
          tokenIds: [token],
          stats,
          ...logprobsOf(params, token, this.#options.logprobOf?.(index, step)),
        };
        const kvTransferParams = this.#options.kvTransferParams?.(index);
        const kv = kvTransferParams === undefined ? {} : { kvTransferParams };
        const isAnswered = step === answer?.length;
        if (stopString !== undefined) yield { ...base, finish: { reason: 'stop', stopReason: stopString, ...kv } };
        else if (isAnswered) yield { ...base, finish: { reason: 'stop', ...kv } };
        else if (step === params.maxTokens) yield { ...base, finish: { reason: 'length', ...kv } };
        else yield base;
        if (stopString !== undefined || isAnswered || step === params.maxTokens) open.delete(index);
      }
    }
  }

  #controlsAt(answer: string | undefined, at: number): Pick<OutputDelta, 'controls'> {
    const { control } = this.#options;
    if (control === undefined || answer?.startsWith(control, at) !== true) return {};
    return { controls: [{ at: 0, length: control.length }] };
  }

  /** A vector of 4 numbers: the length of the prompt, the last token, and two constants. */
  async embed(request: EmbedRequest, { signal }: { readonly signal?: AbortSignal } = {}): Promise<Embedding> {
    poolingFor(this.model);
    checkDimensions(request.dimensions, this.model);
    const prompt = request.prompt as ArrayLike<number>;
    const { length } = prompt;
    const last = prompt[length - 1]!;
    const stats = { promptTokens: length, cachedTokens: 0, outputTokens: 0 };
    const embedding = Float32Array.of(length, last, 0.5, -0.25);
    const counters = { computedTokens: length, recomputedTokens: 0, preemptions: 0 };
    const finish = { reason: 'length' as const };
    const delta = { index: 0, text: '', tokenIds: [], stats: { ...stats, ...counters }, embedding, finish };
    return collectEmbedding(Readable.from([delta]), this.model.name, request, signal);
  }

  /** The length of the document minus that of the query, in letters; or the similarity of embeddings. */
  async score(request: ScoreRequest, options: { readonly signal?: AbortSignal } = {}): Promise<Score> {
    const { scores } = this.model;
    if (scores === undefined) {
      const { scores: found, stats } = await scoreAll(this, [request], options);
      return { score: found[0]!, stats: sumOfStats(stats) };
    }
    const { length } = await pairPrompt(this, scores, request, options.signal);
    const { maxModelLen } = this.model;
    if (length > maxModelLen) throw tooManyTokens({ promptTokens: length, maxModelLen, isEmbedding: true });
    const counters = { computedTokens: length, recomputedTokens: 0, preemptions: 0 };
    const stats = { promptTokens: length, cachedTokens: 0, outputTokens: 0, ...counters };
    return {
      score: scoreOf(Float32Array.of(request.document.length - request.query.length), scores, request.useActivation),
      stats,
    };
  }

  chat(request: ChatRequest, { signal }: { readonly signal?: AbortSignal } = {}): ChatStream {
    return new ChatStream(this, request, signal);
  }

  tokenize(prompt: string | RenderedPrompt, given: { readonly parseSpecial?: boolean } = {}): number[] {
    const { text, options } = readPromptText(prompt, given);
    const { control } = this.#options;
    if (options.parseSpecial && text === control) return [IM_END];
    const pieces = options.parseSpecial ? text.split(/(<\|im_start\|>|<\|im_end\|>)/) : [text];
    return pieces.flatMap((piece) =>
      piece === '<|im_start|>' ? [IM_START] : piece === '<|im_end|>' ? [IM_END] : [...Buffer.from(piece)],
    );
  }

  async tokenizePrompt(text: string | RenderedPrompt, options: TokenizePromptOptions = {}): Promise<Int32Array> {
    return Int32Array.from(this.tokenize(text, options));
  }

  detokenizeParts(tokens: ArrayLike<number>, options?: { readonly skipSpecialTokens?: boolean }): string[] {
    return [this.detokenize(tokens, options)];
  }

  async warmUp(): Promise<void> {}

  async renderChat(messages: readonly ChatMessage[], options?: ChatTemplateOptions): Promise<RenderedPrompt> {
    return this.applyChatTemplate(messages, options);
  }

  detokenize(tokens: ArrayLike<number>, options: { readonly skipSpecialTokens?: boolean } = {}): string {
    const isShown = (token: number): boolean => token < IM_START || options.skipSpecialTokens === false;
    return Buffer.concat(
      Array.from(tokens)
        .filter(isShown)
        .map((token) => this.tokenBytes(token)),
    ).toString('utf8');
  }

  tokenBytes(token: number): Uint8Array {
    if (token === IM_START) return Buffer.from('<|im_start|>');
    return token === IM_END ? Buffer.from('<|im_end|>') : Uint8Array.of(token);
  }

  applyChatTemplate(
    messages: readonly ChatMessage[],
    options: { readonly addGenerationPrompt?: boolean } = {},
  ): RenderedPrompt {
    if (!this.model.hasChatTemplate) throw chatTemplateMissing({ model: this.model.name });
    const turns = messages
      .map(({ role, content }) => `<|im_start|>${role}\n${contentText(content)}<|im_end|>\n`)
      .join('');
    return new RenderedPrompt(options.addGenerationPrompt === false ? turns : `${turns}<|im_start|>assistant\n`);
  }

  observe(): () => void {
    return () => undefined;
  }

  stats(): EngineStats {
    return {
      running: this.#running,
      waiting: 0,
      waitingForRemoteKv: 0,
      blocks: { total: 0, free: 0, cached: 0, referenced: 0 },
      steps: 0,
      promptTokens: 0,
      cachedTokens: 0,
      generatedTokens: this.#generated,
      computedTokens: 0,
      recomputedTokens: 0,
      preemptions: 0,
      aborts: this.#aborts,
      externalTokens: 0,
      draftedTokens: 0,
      acceptedTokens: 0,
      transfers: {
        open: 0,
        ignored: 0,
        flushedSaves: 0,
        failedLoads: 0,
        recoveries: 0,
        recoveredTokens: 0,
        failedRequests: 0,
        affectedTokens: 0,
        counters: {},
        connector: {},
      },
    };
  }

  health(): EngineHealth {
    return this.#options.health?.() ?? { status: this.#isClosed ? 'closed' : 'ok' };
  }

  isHealthy(): boolean {
    return !this.#isClosed;
  }

  async drain(): Promise<void> {
    this.#isClosed = true;
    if (this.#running === 0) return;
    await new Promise<void>((resolve) => {
      this.#idle = resolve;
    });
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.drain();
  }
}

/** The output for a prompt of this many tokens. */
export function lettersOf(promptTokens: number, count: number, index = 0): string {
  return Array.from({ length: count }, (_, i) => String.fromCharCode(letterAt(promptTokens, index, i + 1))).join('');
}

function letterAt(promptTokens: number, index: number, step: number): TokenId {
  return tokenId(97 + ((promptTokens + index + step) % 26));
}

/**
 * Two deltas for each completion, as of a prompt in two chunks. The token at position `p` has the logprob `-p / 8`. The first completion
 * has the logprobs for all.
 */
function* promptDeltas(promptTokens: number, params: SamplingParams, more: Partial<RequestStats> = {}) {
  const nothing = { cachedTokens: 0, computedTokens: 0, recomputedTokens: 0, preemptions: 0, outputTokens: 0 };
  const stats = { ...nothing, promptTokens, ...more };
  const top = Array.from({ length: params.promptLogprobs ?? 0 }, (_, i) => ({ token: tokenId(97 + i), logprob: -i }));
  const all = Array.from({ length: promptTokens - 1 }, (_, i) => ({ logprob: -(i + 1) / 8, rank: 30, top }));
  const half = Math.floor(all.length / 2);
  for (let index = 0; index < params.n; index++) {
    const delta = { index, text: '', tokenIds: [], stats, ...(params.logprobs === undefined ? {} : { logprobs: [] }) };
    const isScored = params.promptLogprobs !== undefined && index === 0;
    yield { ...delta, ...(isScored ? { promptLogprobs: all.slice(0, half) } : {}) };
    const second = isScored ? { promptLogprobs: all.slice(half) } : {};
    yield { ...delta, ...second, ...(params.maxTokens === 0 ? { finish: { reason: 'length' as const } } : {}) };
  }
}

function logprobsOf(
  params: SamplingParams,
  token: TokenId,
  logprob = -0.5,
): { readonly logprobs?: readonly TokenLogprobs[] } {
  if (params.logprobs === undefined) return {};
  const top = Array.from({ length: params.logprobs }, (_, i) => ({
    token: tokenId((token + i) % VOCAB_SIZE),
    logprob: -0.5 - i,
  }));
  return { logprobs: [{ logprob, rank: 1, top }] };
}
