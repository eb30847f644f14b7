import type { JsonObject } from '../../src/base/json.ts';
import { engineClosed, promptEmpty, promptTooLong, queueFull } from '../../src/core/errors.ts';
import { type TokenId, tokenId } from '../../src/core/ids.ts';
import type { RequestStats } from '../../src/core/request.ts';
import type { SamplingParams } from '../../src/core/sampling.ts';
import { parseSamplingParams } from '../../src/core/sampling-parse.ts';
import type { TokenLogprobs } from '../../src/core/step.ts';
import type {
  AsyncEngine,
  ChatMessage,
  ChatTemplateOptions,
  EngineHealth,
  EngineStats,
  GenerateRequest,
  ModelInfo,
  OutputDelta,
  TokenizePromptOptions,
} from '../../src/engine/contract.ts';
import { chatTemplateMissing } from '../../src/engine/errors.ts';

export interface LetterEngineOptions {
  /** Awaited before every step, so that a test decides when the engine continues. */
  readonly beforeStep?: () => Promise<void>;
  readonly maxModelLen?: number;
  readonly maxRequests?: number;
  readonly hasChatTemplate?: boolean;
  /** The answer of `health`. */
  readonly health?: () => EngineHealth;
  /** The step, counted from 1, at which every request ends with `error`. */
  readonly failAtStep?: number;
  /** The error that `generate` throws. */
  readonly throws?: unknown;
  /** Every completion is this text instead of letters, and then stops. ASCII, one token for each character. */
  readonly answer?: string;
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

/**
 * The engine's contract without a model, for tests of its callers. Tokens are the bytes of UTF-8 and two control tokens. The output
 * depends only on the prompt: `abc...`, from a letter that the prompt's length decides, one letter later for each further choice.
 * The engine obeys stop strings, lengths, aborts and the limit of its queue.
 */
export class LetterEngine implements AsyncEngine {
  readonly model: ModelInfo;
  readonly requests: GenerateRequest[] = [];
  readonly #options: LetterEngineOptions;
  #running = 0;
  #aborts = 0;
  #generated = 0;
  #isClosed: boolean = false;
  readonly #closing = new AbortController();
  #idle: () => void = () => {};

  constructor(options: LetterEngineOptions = {}) {
    this.#options = options;
    this.model = {
      name: 'letters',
      path: '/models/letters.gguf',
      architecture: 'letters',
      vocabSize: VOCAB_SIZE,
      maxModelLen: options.maxModelLen ?? 256,
      hasChatTemplate: options.hasChatTemplate ?? true,
      ...(options.chatTemplate === undefined ? {} : { chatTemplate: options.chatTemplate }),
    };
  }

  async *generate(request: GenerateRequest, { signal }: { readonly signal?: AbortSignal } = {}) {
    if (this.#options.throws !== undefined) throw this.#options.throws;
    if (this.#isClosed) throw engineClosed();
    const limit = this.#options.maxRequests ?? 64;
    if (this.#running >= limit) throw queueFull({ waiting: this.#running, limit });
    const prompt = typeof request.prompt === 'string' ? this.tokenize(request.prompt) : request.prompt;
    if (prompt.length === 0) throw promptEmpty();
    const { maxModelLen } = this.model;
    const params = parseSamplingParams(request.params, {
      vocabSize: VOCAB_SIZE,
      maxTokensDefault: maxModelLen - prompt.length,
      drawSeed: () => 0n,
    });
    if (prompt.length + params.maxTokens > maxModelLen) {
      throw promptTooLong({ promptTokens: prompt.length, maxTokens: params.maxTokens, maxModelLen });
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
        const answer = this.#options.answer;
        const token = answer === undefined ? letterAt(promptTokens, index, step) : tokenId(answer.charCodeAt(step - 1));
        this.#generated++;
        const before = texts[index]!;
        texts[index] = before + String.fromCharCode(token);
        const stopString = params.stop.find((text) => texts[index]!.includes(text));
        const text = stopString === undefined ? String.fromCharCode(token) : '';
        const base = { index, text, tokenIds: [token], stats, ...logprobsOf(params, token) };
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

  tokenize(text: string, options: { readonly parseSpecial?: boolean } = {}): number[] {
    const pieces = options.parseSpecial === true ? text.split(/(<\|im_start\|>|<\|im_end\|>)/) : [text];
    return pieces.flatMap((piece) =>
      piece === '<|im_start|>' ? [IM_START] : piece === '<|im_end|>' ? [IM_END] : [...Buffer.from(piece)],
    );
  }

  async tokenizePrompt(text: string, options: TokenizePromptOptions = {}): Promise<number[]> {
    return this.tokenize(text, options);
  }

  detokenizeParts(tokens: ArrayLike<number>, options?: { readonly skipSpecialTokens?: boolean }): string[] {
    return [this.detokenize(tokens, options)];
  }

  async renderChat(messages: readonly ChatMessage[], options?: ChatTemplateOptions): Promise<string> {
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
  ): string {
    if (!this.model.hasChatTemplate) throw chatTemplateMissing({ model: this.model.name });
    const turns = messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join('');
    return options.addGenerationPrompt === false ? turns : `${turns}<|im_start|>assistant\n`;
  }

  stats(): EngineStats {
    return {
      running: this.#running,
      waiting: 0,
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
      transfers: {
        open: 0,
        ignored: 0,
        flushedSaves: 0,
        failedLoads: 0,
        recoveries: 0,
        affectedTokens: 0,
        counters: {},
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

function logprobsOf(params: SamplingParams, token: TokenId): { readonly logprobs?: readonly TokenLogprobs[] } {
  if (params.logprobs === undefined) return {};
  const top = Array.from({ length: params.logprobs }, (_, i) => ({
    token: tokenId((token + i) % VOCAB_SIZE),
    logprob: -0.5 - i,
  }));
  return { logprobs: [{ logprob: -0.5, rank: 1, top }] };
}
