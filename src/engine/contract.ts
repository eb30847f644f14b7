import type { KvasirError } from '../base/errors.ts';
import type { JsonObject } from '../base/json.ts';
import type { TokenId } from '../core/ids.ts';
import type { FinishReason, Pooling, RequestStats } from '../core/request.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import type { ModelSampling } from '../core/sampling-parse.ts';
import type { TokenLogprobs } from '../core/step.ts';
import type { GrammarSource } from '../grammar/structured-grammar.ts';
import type { SchedulerStats } from '../scheduler/contract.ts';
import type { FimTokens, PairTokens } from '../tokenizer/contract.ts';
import type { ControlSpan } from '../tools/answer-reader.ts';
import type { RankTrouble } from '../worker/rank.ts';
import type { EngineAdapters } from './adapters.ts';
import type { CacheMonitor } from './cache-contract.ts';
import type { ChatDelta, ChatMessage, ChatRequest } from './chat/chat-contract.ts';
import type { RenderedPrompt } from './chat/rendered-prompt.ts';
import type { KvAdministration } from './kv-administration-contract.ts';
import type { EngineObserver, TraceHeaders } from './observer.ts';

export type { ChatDelta, ChatMessage, ChatRequest } from './chat/chat-contract.ts';

import type { Embedding, EmbedRequest } from './embed.ts';
import type { Score, ScoreRequest } from './score.ts';

/**
 * The interface of the asynchronous engine for its users: server, CLI and library. `LLM` (offline, batch) uses it too.
 *
 * Any number of `generate` calls can be active; the steps compute all running requests together. The request's blocks
 * are released when the caller iterates to the end, leaves the loop, or aborts the signal.
 */
export interface AsyncEngine {
  readonly model: ModelInfo;
  /** Shows the KV pool to people. Absent in engines without one. */
  readonly cache?: CacheMonitor | undefined;
  /** Pins, removes and loads blocks of prompts, and administers tiers. Absent in engines without a pool. */
  readonly kv?: KvAdministration | undefined;
  /** Absent in engines that compute no LoRA adapters. */
  readonly adapters?: EngineAdapters | undefined;
  /**
   * The request starts at the call, not at the first `next()`. The first `next()` rejects with a KvasirError if the
   * request is invalid, the queue is full (`queueFull`) or the engine is closed. A long text is tokenized on another
   * thread first. If the signal aborts, the stream ends with finish reason `abort`.
   */
  generate(request: GenerateRequest, options?: { readonly signal?: AbortSignal }): AsyncIterableIterator<OutputDelta>;
  /**
   * Renders the conversation, generates answers and divides them into content, reasoning and calls of tools, as the chat
   * endpoint of the server does. Starts, fails and aborts as `generate`.
   */
  chat(request: ChatRequest, options?: { readonly signal?: AbortSignal }): AsyncIterableIterator<ChatDelta>;
  /**
   * The embedding of one prompt. The steps compute it together with other requests. Rejects with a KvasirError, as the
   * first `next()` of `generate`, and with `poolingMissing` if the model has no pooling; or with the signal's reason.
   */
  embed(request: EmbedRequest, options?: { readonly signal?: AbortSignal }): Promise<Embedding>;
  /**
   * How relevant a document is for a query: by a reranker, or by the similarity of embeddings. Starts, fails and aborts as
   * `embed`.
   */
  score(request: ScoreRequest, options?: { readonly signal?: AbortSignal }): Promise<Score>;
  /** A list of tokens. Tokenizes on the calling thread and blocks the event loop: about a microsecond per character. */
  tokenize(
    text: string | RenderedPrompt,
    options?: { readonly addSpecial?: boolean; readonly parseSpecial?: boolean },
  ): number[];
  /**
   * Gives the same tokens as `tokenize`, in the type that the scheduler has them in. A long text is tokenized on another thread, and counts as a
   * waiting request until its tokens exist. Rejects with `promptTooLong` (before tokenizing if the length alone
   * shows it), `queueFull`, or the signal's reason.
   */
  tokenizePrompt(text: string | RenderedPrompt, options?: TokenizePromptOptions): Promise<Int32Array>;
  detokenize(tokens: ArrayLike<number>, options?: { readonly skipSpecialTokens?: boolean }): string;
  /** The result of `detokenize` in parts; each part takes a few milliseconds. */
  detokenizeParts(tokens: ArrayLike<number>, options?: { readonly skipSpecialTokens?: boolean }): Iterable<string>;
  /** The raw bytes of one token, or the name of a control token. A token can be a part of a character. For logprobs. */
  tokenBytes(token: number): Uint8Array;
  /**
   * Renders the model's chat template with these messages. Messages that it does not take are changed so that all their texts are in the
   * prompt (docs/api.md). `variables` are further inputs of the template
   * (`tools`, `enable_thinking`, ...). The result is a prompt for `generate`; its `text` is the text. Renders on the calling thread,
   * without a limit of time: for templates that you trust.
   */
  applyChatTemplate(messages: readonly ChatMessage[], options?: ChatTemplateOptions): RenderedPrompt;
  /**
   * Gives the same prompt as `applyChatTemplate`, rendered on another thread, and counts as a waiting request until then. A template
   * that does not end is stopped: rejects with `chatTemplateFailed`, `queueFull`, or the signal's reason.
   */
  renderChat(messages: readonly ChatMessage[], options?: RenderChatOptions): Promise<RenderedPrompt>;
  /**
   * Starts the threads that long texts, chats and large grammars need, instead of with the first of them: for servers, so that a later
   * moment without free file descriptors does no harm. A thread that cannot start is tried again; meanwhile `health` says so.
   */
  warmUp(): Promise<void>;
  stats(): EngineStats;
  /** For metrics and traces. Returns the function that ends the observation. */
  observe(observer: EngineObserver): () => void;
  /** Says whether the engine serves now, and if not, the reason. */
  health(): EngineHealth;
  /** True until `close`, or until the engine breaks (then every request ends with `error`). */
  isHealthy(): boolean;
  /** Refuses new requests and waits until every accepted request has ended. */
  drain(): Promise<void>;
  /** Aborts the remaining requests and frees all memory. Idempotent. */
  close(): Promise<void>;
}

export interface TokenizePromptOptions {
  /** As in `GenerateRequest`. */
  readonly addSpecial?: boolean;
  readonly parseSpecial?: boolean;
  /** The caller cuts the tokens, so a text that cannot fit the model is no error. */
  readonly isCut?: boolean;
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

/**
 * A prompt and how to complete it.
 *
 * ```ts
 * const request: GenerateRequest = {
 *   prompt: 'Once upon a time',
 *   params: { maxTokens: 64, temperature: 0.8, seed: 42 },
 *   cacheSalt: 'tenant-1',
 * };
 * for await (const { text } of engine.generate(request)) process.stdout.write(text);
 * ```
 */
export interface GenerateRequest {
  /**
   * A text, which is tokenized with the model's special tokens; a rendered conversation, which has them already; or token
   * ids, which are used unchanged.
   */
  readonly prompt: string | RenderedPrompt | ArrayLike<number>;
  /** Whether the names of control tokens in a text become control tokens. Default: in a rendered conversation only. */
  readonly parseSpecial?: boolean;
  /** Whether BOS is added at the start, if the model uses BOS. Default: true, but for a rendered conversation. */
  readonly addSpecial?: boolean;
  readonly params?: SamplingOptions;
  /** The request's name in logs and responses; generated if absent. */
  readonly requestId?: string;
  /** The name of a LoRA adapter; default: the model without one. */
  readonly lora?: string;
  readonly cacheSalt?: string;
  readonly priority?: number;
  /** For whom the request is. Tenants share the engine: the requests of one do not keep those of another waiting. */
  readonly tenant?: string;
  /** Parameters for the connector, as in vLLM; the engine does not read them. */
  readonly kvTransferParams?: JsonObject;
  /** The trace that the request belongs to, if the caller has no active span (`docs/tracing.md`). */
  readonly traceHeaders?: TraceHeaders;
  /** A grammar for the output, instead of `params.structuredOutputs`: for callers that compose grammars. */
  readonly grammar?: GrammarSource;
  /**
   * Memory for deltas that the caller has not read yet, about. If they need more, `next()` rejects with `unreadOverLimit`.
   * Default: no limit.
   */
  readonly unreadMaxBytes?: number;
}

/** The text and tokens that one step added to a completion. */
export interface OutputDelta {
  /** The number of the completion, from 0 to `n - 1`. */
  readonly index: number;
  /** Whole characters only. Text that can be the start of a stop string is kept for a later delta. */
  readonly text: string;
  /** Where the names of control tokens are in the text; present if there are any, with `skipSpecialTokens: false`. */
  readonly controls?: readonly ControlSpan[];
  readonly tokenIds: readonly TokenId[];
  /** Parallel to `tokenIds`; present if logprobs were requested. */
  readonly logprobs?: readonly TokenLogprobs[];
  /**
   * Of the next tokens of the prompt, which this step computed; present if they were requested. The first token of a
   * prompt has no logprobs. Only deltas of the first completion have them: the prompt is that of all completions.
   */
  readonly promptLogprobs?: readonly TokenLogprobs[];
  /** On the last delta of an embedding request: the pooled hidden states, not normalised. */
  readonly embedding?: Float32Array;
  /** Set on the last delta of this completion. `stopReason`: the stop string or token id that matched. */
  readonly finish?: {
    readonly reason: FinishReason;
    readonly stopReason?: string | number;
    /** The cause, if the reason is `error` and the error concerns this request alone. */
    readonly error?: KvasirError;
    /** The connector's answer to the client. */
    readonly kvTransferParams?: JsonObject;
  };
  readonly stats: RequestStats;
}

/** What is known of the loaded model, from its file and the options of the engine. */
export interface ModelInfo {
  /** The name in responses: by default the file name without its extension. */
  readonly name: string;
  /** Further names by which requests may ask for the model. */
  readonly aliases?: readonly string[];
  readonly path: string;
  /** The file's `general.description`: at most 300 characters in one line. */
  readonly description?: string;
  readonly architecture: string;
  readonly vocabSize: number;
  /** Whether the vocabulary has tokens of single bytes, as SentencePiece has. Each invalid byte is one U+FFFD in texts. */
  readonly hasByteTokens?: boolean;
  /** Longest prompt plus output. */
  readonly maxModelLen: number;
  readonly hasChatTemplate: boolean;
  /** Its source. */
  readonly chatTemplate?: string;
  /** The source of the template for conversations with tools, if the model has one of its own. */
  readonly toolTemplate?: string;
  /** The tokens around the parts of a text with a gap; absent if the model cannot fill in the middle. */
  readonly fimTokens?: FimTokens;
  /** Of embeddings: the length of the vectors, and the pooling of the file or of the engine's options. */
  readonly embedding?: { readonly length: number; readonly pooling?: Pooling };
  /** Present if the model is a reranker, which makes scores and no embeddings. */
  readonly scores?: ScoreInfo;
  /** Matrices follow the pooling. */
  readonly hasPooledHead?: boolean;
  /** The model makes embeddings or scores, but no text. */
  readonly makesNoText?: boolean;
  /** The file's `general.sampling.*`: for absent parameters of requests, as vLLM takes them from `generation_config.json`. */
  readonly samplingDefaults?: ModelSampling;
  /** A sentence that names the attention implementation, and the reason if a faster one is not available. */
  readonly attention?: string;
  /** Which layers are on the GPU, if the model is divided between the CPU and a GPU. */
  readonly placement?: string;
}

/** How a reranker scores a query and a document. */
export interface ScoreInfo {
  readonly pooling: Pooling;
  /** The number of values that the model computes. */
  readonly length: number;
  /** What makes a score between 0 and 1 of them: of one value, or of several labels of which the first is "relevant". */
  readonly activation: 'sigmoid' | 'softmax';
  /** The prompt: a text with `{query}` and `{document}`, or token ids around the texts. */
  readonly prompt: string | PairTokens;
}

/**
 * `ok`: the engine serves. `degraded`: it serves, but some kinds of requests fail; `message` names them. `recovering`: a worker process does not answer or is being replaced; requests wait and then
 * continue. `broken`: the engine serves no more requests; start a new engine. `closed`: `close` was called.
 */
export interface EngineHealth {
  readonly status: 'ok' | 'degraded' | 'recovering' | 'broken' | 'closed';
  /** The reason if the status is not `ok`: a sentence. */
  readonly message?: string;
  /** The ranks that do not serve. */
  readonly ranks?: readonly RankTrouble[];
}

/** Counters since the start of the engine, and current numbers of requests and blocks. All are also in `/metrics` (docs/metrics.md). */
export interface EngineStats {
  readonly running: number;
  readonly waiting: number;
  /** Requests that have blocks and wait for a load of KV. */
  readonly waitingForRemoteKv: number;
  readonly blocks: SchedulerStats['blocks'];
  readonly steps: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly generatedTokens: number;
  /** Tokens that the workers computed for all requests. `recomputedTokens` of them were computed a second time. */
  readonly computedTokens: number;
  readonly recomputedTokens: number;
  readonly preemptions: number;
  readonly aborts: number;
  /** Prompt tokens whose KV a connector promised. After failed loads, some of them are recomputed tokens too. */
  readonly externalTokens: number;
  /** Draft tokens that were verified, and those of them that became output tokens. 0 without speculation. */
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
  readonly transfers: SchedulerStats['transfers'];
}

/** A message for the program that runs the engine. Requests get their errors in their own streams. */
export interface EngineEvent {
  readonly level: 'warn' | 'error';
  readonly message: string;
  readonly fields: Readonly<Record<string, string | number>>;
}
