import type { KvasirError } from '../base/errors.ts';
import type { JsonObject } from '../base/json.ts';
import type { TokenId } from '../core/ids.ts';
import type { FinishReason, RequestStats } from '../core/request.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import type { TokenLogprobs } from '../core/step.ts';
import type { SchedulerStats } from '../scheduler/contract.ts';
import type { RankTrouble } from '../worker/rank.ts';

/**
 * The asynchronous engine as its users (server, CLI, library) see it. `LLM` (offline, batch) is a few lines on top.
 *
 * `generate` may be called any number of times at once; all running requests share every step. Iterating to the end,
 * breaking out of the loop, or aborting the signal all release the request's blocks.
 */
export interface AsyncEngine {
  readonly model: ModelInfo;
  /**
   * Starts at the call, not at the first `next()`. Throws (rejects the first `next()`) KvasirError for a bad request,
   * a full queue (`queueFull`) or a closed engine. A long text is tokenized on another thread first. With an aborted signal the stream ends with finish reason `abort`.
   */
  generate(request: GenerateRequest, options?: { readonly signal?: AbortSignal }): AsyncIterableIterator<OutputDelta>;
  /** Tokenizes at once: the event loop waits, about a microsecond per character. */
  tokenize(text: string, options?: { readonly addSpecial?: boolean; readonly parseSpecial?: boolean }): number[];
  /**
   * The same tokens, for a prompt. A long text is tokenized on another thread, and counts as a waiting request until then.
   * Rejects with `promptTooLong` (at once, where no tokens of the text would fit the model), `queueFull`, or the signal's
   * reason.
   */
  tokenizePrompt(text: string, options?: TokenizePromptOptions): Promise<number[]>;
  detokenize(tokens: ArrayLike<number>, options?: { readonly skipSpecialTokens?: boolean }): string;
  /** The text that `detokenize` gives, in parts that take a few milliseconds each. */
  detokenizeParts(tokens: ArrayLike<number>, options?: { readonly skipSpecialTokens?: boolean }): Iterable<string>;
  /** The raw bytes of one token, perhaps a part of a character; a control token gives its name. For logprobs' `bytes`. */
  tokenBytes(token: number): Uint8Array;
  /** Renders the model's chat template; `variables` are what else the template may read (`enable_thinking`, ...). */
  applyChatTemplate(messages: readonly ChatMessage[], options?: ChatTemplateOptions): string;
  /** The same. A long conversation is rendered on another thread. */
  renderChat(messages: readonly ChatMessage[], options?: RenderChatOptions): Promise<string>;
  stats(): EngineStats;
  /** Whether it serves right now, and if not, why and for how long. */
  health(): EngineHealth;
  /** True until `close`, or until the runner broke (then every request ends with `error`). */
  isHealthy(): boolean;
  /** Waits until every accepted request has ended, taking no new ones. */
  drain(): Promise<void>;
  /** Aborts what still runs and frees everything. Idempotent. */
  close(): Promise<void>;
}

export interface TokenizePromptOptions {
  /** As in `GenerateRequest`. */
  readonly addSpecial?: boolean;
  readonly parseSpecial?: boolean;
  readonly signal?: AbortSignal;
}

export interface ChatTemplateOptions {
  /** Default true. */
  readonly addGenerationPrompt?: boolean;
  readonly variables?: Readonly<Record<string, unknown>>;
}

export interface RenderChatOptions extends ChatTemplateOptions {
  readonly signal?: AbortSignal;
}

export interface GenerateRequest {
  /** Text (tokenized with the model's special tokens) or tokens as they are. */
  readonly prompt: string | ArrayLike<number>;
  /** Whether control tokens written in a text prompt count as such: true for rendered chat templates, else false. */
  readonly parseSpecial?: boolean;
  /** Whether the model's BOS is put first, where the model wants one; default true for text prompts. */
  readonly addSpecial?: boolean;
  readonly params?: SamplingOptions;
  /** A name for logs and responses; made up when absent. */
  readonly requestId?: string;
  readonly cacheSalt?: string;
  readonly priority?: number;
  /** A word to the connector, as in vLLM; the engine does not read it. */
  readonly kvTransferParams?: JsonObject;
}

/** What is new since the last delta of the same completion. */
export interface OutputDelta {
  /** Which of the `n` completions. */
  readonly index: number;
  /** Whole characters only; held back while it might be the start of a stop string. */
  readonly text: string;
  readonly tokenIds: readonly TokenId[];
  /** Parallel to `tokenIds` when logprobs were asked for. */
  readonly logprobs?: readonly TokenLogprobs[];
  /** Set on the last delta of this completion. `stopReason`: the stop string or token id that matched. */
  readonly finish?: {
    readonly reason: FinishReason;
    readonly stopReason?: string | number;
    /** Why, when the reason is `error` and it was this request's own fault. */
    readonly error?: KvasirError;
    /** The connector's word to the client. */
    readonly kvTransferParams?: JsonObject;
  };
  readonly stats: RequestStats;
}

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
  readonly [extra: string]: unknown;
}

export interface ModelInfo {
  /** As served: file name without extension unless overridden. */
  readonly name: string;
  readonly path: string;
  readonly architecture: string;
  readonly vocabSize: number;
  /** Longest prompt plus output. */
  readonly maxModelLen: number;
  readonly hasChatTemplate: boolean;
  /** What computes attention, and why not something faster; for people. */
  readonly attention?: string;
}

/**
 * `ok`: serves. `recovering`: a worker process does not answer or is being replaced; requests wait, and go on by themselves.
 * `broken`: nothing will be served any more, only a new engine helps. `closed`: it was told to close.
 */
export interface EngineHealth {
  readonly status: 'ok' | 'recovering' | 'broken' | 'closed';
  /** Why it is not `ok`: a sentence. */
  readonly message?: string;
  /** The ranks that do not serve. */
  readonly ranks?: readonly RankTrouble[];
}

export interface EngineStats {
  readonly running: number;
  readonly waiting: number;
  readonly blocks: SchedulerStats['blocks'];
  readonly steps: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly generatedTokens: number;
  /** Tokens that the workers computed, over all requests; `recomputedTokens` of them beyond those that had to be. */
  readonly computedTokens: number;
  readonly recomputedTokens: number;
  readonly preemptions: number;
  readonly aborts: number;
  /** Prompt tokens whose KV a connector had promised; some of them may be among the recomputed. */
  readonly externalTokens: number;
  readonly transfers: SchedulerStats['transfers'];
}

/** Something that whoever runs the engine should know; requests are told by their own means. */
export interface EngineEvent {
  readonly level: 'warn' | 'error';
  readonly message: string;
  readonly fields: Readonly<Record<string, string | number>>;
}
