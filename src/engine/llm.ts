import { setImmediate as nextTurn } from 'node:timers/promises';
import { assertDefined } from '../base/assert.ts';
import { engineClosed, invalidParameter, promptEmpty } from '../core/errors.ts';
import type { TokenId } from '../core/ids.ts';
import type { FinishReason, RequestStats } from '../core/request.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import type { TokenLogprobs } from '../core/step.ts';
import type { GrammarSource } from '../grammar/structured-grammar.ts';
import type { ControlSpan } from '../tools/answer-reader.ts';
import { type AnswerMessage, ChatAnswer, type ChatAnswerOptions, type ChatFinishReason } from './chat/chat-answer.ts';
import type { ChatSettings } from './chat/chat-contract.ts';
import { modelFormats } from './chat/conversation.ts';
import { type PreparedChat, prepareChat } from './chat/prepare-chat.ts';
import { readChat } from './chat/read-chat.ts';
import { RenderedPrompt } from './chat/rendered-prompt.ts';
import { checkIsList, checkIsObject, checkSignal } from './check-arguments.ts';
import type { AsyncEngine, ChatDelta, ChatMessage, OutputDelta } from './contract.ts';
import { type Embedding, type EmbedRequest, embedAll } from './embed.ts';
import { type ScoreRequest, scoreAll } from './score.ts';

/** A text, a conversation that `applyChatTemplate` rendered, or token ids. */
export type Prompt = string | RenderedPrompt | ArrayLike<number>;

/** One completion of a prompt: its text, tokens and how it ended. */
export interface CompletionOutput {
  /** The number of the completion, from 0 to `n - 1`. */
  readonly index: number;
  readonly text: string;
  /** Where the names of control tokens are in the text; present if there are any, with `skipSpecialTokens: false`. */
  readonly controls?: readonly ControlSpan[];
  readonly tokenIds: readonly TokenId[];
  readonly finishReason: FinishReason;
  /** The stop string or the stop token of the caller that ended the completion. */
  readonly stopReason?: string | number;
  /** Parallel to `tokenIds`; present if logprobs were requested. */
  readonly logprobs?: readonly TokenLogprobs[];
}

/** Plain data: JSON keeps every field, except that a logprob of minus infinity becomes null. */
export interface RequestOutput {
  /** The prompt's text, given or rendered by the chat template; absent for a prompt of tokens. */
  readonly prompt?: string;
  readonly promptTokenIds: readonly number[];
  /** Parallel to `promptTokenIds`; present if they were requested. The first token has none. */
  readonly promptLogprobs?: readonly (TokenLogprobs | null)[];
  /** One per completion, by index. */
  readonly outputs: readonly CompletionOutput[];
  /** Prompt and cached tokens are those of the first completion; the other counters are sums over all completions. */
  readonly stats: RequestStats;
}

/** What all prompts of one call of `LLM.generate` share. */
export interface BatchOptions {
  /** When it aborts, the running completions end with finish reason `abort`. */
  readonly signal?: AbortSignal;
  /** Only requests with equal salts share cached prefixes. */
  readonly cacheSalt?: string;
  /** The name of a LoRA adapter of the engine. */
  readonly lora?: string;
}

/** What all conversations of one call of `LLM.chat` share. */
export interface ChatOptions extends BatchOptions, ChatSettings {
  /** True: `chat` returns the answers' deltas as they are generated, for one conversation. */
  readonly stream?: boolean;
}

/** Messages of one conversation. */
export type ChatMessages = readonly ChatMessage[];

/** The answers to one conversation. `text` of an answer is what the model wrote, `message` what it means. */
export interface ChatOutput extends Omit<RequestOutput, 'outputs'> {
  readonly outputs: readonly ChatCompletionOutput[];
}

/** One answer to a conversation: a completion whose text is divided into content, reasoning and calls. */
export interface ChatCompletionOutput extends Omit<CompletionOutput, 'finishReason'> {
  readonly finishReason: ChatFinishReason;
  readonly message: AnswerMessage;
}

/** The largest number of completions in the engine at a time: enough to fill its steps, far below its queue's limit. */
const inFlightMax = 256;

/**
 * Offline inference: takes prompts and returns finished completions in the order of the prompts. The engine's steps
 * compute all of them together. The model is loaded at the first use.
 *
 * The default of `maxTokens` is the rest of the model's length (vLLM: 16).
 */
export class OfflineLlm {
  readonly #createEngine: () => Promise<AsyncEngine>;
  #engine: Promise<AsyncEngine> | undefined;
  #isClosed: boolean = false;

  /** `createEngine` is called once, at the first use. */
  constructor(createEngine: () => Promise<AsyncEngine>) {
    this.#createEngine = createEngine;
  }

  /**
   * The engine: for streams (`engine.generate`), tokens and statistics. The first call loads the model.
   * @throws the error of loading; the next use tries again.
   */
  async engine(): Promise<AsyncEngine> {
    if (this.#isClosed) throw engineClosed();
    this.#engine ??= this.#createEngine();
    try {
      return await this.#engine;
    } catch (error) {
      this.#engine = undefined;
      throw error;
    }
  }

  /**
   * Returns one output per prompt. `params` applies to all prompts, or is an array with one entry per prompt.
   * @throws KvasirError of the first invalid request; the other requests are aborted.
   */
  async generate(
    prompts: Prompt | readonly Prompt[],
    params: SamplingOptions | readonly SamplingOptions[] = {},
    options: BatchOptions = {},
  ): Promise<RequestOutput[]> {
    checkIsObject('options', options);
    checkSignal(options.signal);
    const engine = await this.engine();
    const list: readonly Prompt[] = isPrompt(prompts) ? [prompts] : prompts;
    if (list.includes('')) throw promptEmpty();
    return runBatch(engine, list, params, options);
  }

  /**
   * Returns one embedding per prompt, in the order of the prompts. The model file or `pooling` of the options says how
   * tokens become one vector.
   */
  async embed(
    prompts: Prompt | readonly Prompt[],
    { signal, ...settings }: Omit<EmbedRequest, 'prompt'> & { readonly signal?: AbortSignal } = {},
  ): Promise<Embedding[]> {
    const list: readonly Prompt[] = isPrompt(prompts) ? [prompts] : prompts;
    return embedAll(
      await this.engine(),
      list.map((prompt) => ({ ...settings, prompt })),
      { signal },
    );
  }

  /**
   * How relevant each document is for the query, in the order of the documents: by a reranker, or by the similarity of
   * embeddings. More is more relevant.
   */
  async score(
    query: string,
    documents: readonly string[],
    { signal, ...settings }: Omit<ScoreRequest, 'query' | 'document'> & { readonly signal?: AbortSignal } = {},
  ): Promise<readonly number[]> {
    checkIsList('documents', documents, 'a list of texts');
    const pairs = documents.map((document) => ({ ...settings, query, document }));
    return (await scoreAll(await this.engine(), pairs, { signal })).scores;
  }

  /**
   * Like `generate`, for one conversation or several; the model's chat template renders each. With `stream: true` it
   * returns the deltas of one conversation at once, as `engine.chat` does.
   */
  chat(
    messages: ChatMessages,
    params: SamplingOptions | undefined,
    options: ChatOptions & { readonly stream: true },
  ): AsyncIterableIterator<ChatDelta>;
  chat(
    conversations: ChatMessages | readonly ChatMessages[],
    params?: SamplingOptions | readonly SamplingOptions[],
    options?: ChatOptions & { readonly stream?: false },
  ): Promise<ChatOutput[]>;
  chat(
    conversations: ChatMessages | readonly ChatMessages[],
    params: SamplingOptions | readonly SamplingOptions[] = {},
    { stream = false, ...options }: ChatOptions = {},
  ): AsyncIterableIterator<ChatDelta> | Promise<ChatOutput[]> {
    checkIsList('messages', conversations, 'a list of messages, or a list of conversations');
    checkSignal(options.signal);
    if (!stream) return this.#chatAll(isConversation(conversations) ? [conversations] : conversations, params, options);
    if (isConversation(conversations) && !isList(params)) return this.#chatStream(conversations, params, options);
    throw invalidParameter({ parameter: 'stream', expected: 'false for several conversations', actual: 'true' });
  }

  async *#chatStream(
    messages: ChatMessages,
    params: SamplingOptions,
    { signal, ...settings }: ChatOptions,
  ): AsyncGenerator<ChatDelta, undefined> {
    const engine = await this.engine();
    yield* engine.chat({ ...settings, messages, params }, signal === undefined ? {} : { signal });
    return undefined;
  }

  async #chatAll(
    conversations: readonly ChatMessages[],
    params: SamplingOptions | readonly SamplingOptions[],
    { signal, cacheSalt, lora, ...settings }: ChatOptions,
  ): Promise<ChatOutput[]> {
    const engine = await this.engine();
    const paramsOf = perRequest(params, conversations.length);
    const formats = modelFormats(engine.model, settings);
    const chats: PreparedChat[] = [];
    for (const [index, messages] of conversations.entries()) {
      const chat = readChat(messages, paramsOf(index), settings, engine.model.vocabSize);
      chats.push(await prepareChat(engine, chat, formats));
    }
    const options = {
      ...(signal === undefined ? {} : { signal }),
      ...(cacheSalt === undefined ? {} : { cacheSalt }),
      ...(lora === undefined ? {} : { lora }),
      grammars: chats.map(({ grammar }) => grammar),
    };
    const outputs = await runBatch(
      engine,
      chats.map(({ prompt }) => prompt),
      chats.map((chat) => chat.params),
      options,
    );
    return outputs.map((output, index) => readAnswers(output, chats[index]!.answers));
  }

  /** Aborts the running requests and frees the model. Idempotent. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const engine = await this.#engine?.catch(() => undefined);
    await engine?.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Characters that are tokenized between two turns of the event loop, if many short prompts start together. */
const TEXT_LENGTH_PER_TURN = 65_536;

type Params = SamplingOptions;

async function runBatch(
  engine: AsyncEngine,
  prompts: readonly Prompt[],
  params: Params | readonly Params[],
  {
    signal,
    cacheSalt,
    lora,
    grammars = [],
  }: BatchOptions & { readonly grammars?: readonly (GrammarSource | undefined)[] },
): Promise<RequestOutput[]> {
  const paramsOf = perRequest(params, prompts.length);
  const stop = new AbortController();
  const onAbort = (): void => stop.abort();
  if (signal?.aborted === true) stop.abort();
  signal?.addEventListener('abort', onAbort, { once: true });

  const outputs: RequestOutput[] = [];
  let failure: { readonly error: unknown } | undefined;
  let next = 0;
  let textLength = 0;
  const shared = { ...(cacheSalt === undefined ? {} : { cacheSalt }), ...(lora === undefined ? {} : { lora }) };
  const begin = async (index: number) => {
    const prompt = prompts[index]!;
    const tokens = isText(prompt) ? await tokensOf(engine, prompt, stop.signal) : prompt;
    if (isText(prompt)) textLength += `${prompt}`.length;
    if (textLength > TEXT_LENGTH_PER_TURN) {
      textLength = 0;
      await nextTurn();
    }
    const grammar = grammars[index] === undefined ? {} : { grammar: grammars[index] };
    const stream = engine.generate({ prompt: tokens ?? prompt, params: paramsOf(index), ...shared, ...grammar }, stop);
    const hasPromptLogprobs = (paramsOf(index).promptLogprobs ?? null) !== null;
    return { prompt, tokens: tokens ?? [], stream, hasPromptLogprobs };
  };
  // Requests start one after the other, because requests without a seed draw their seeds in the order of their starts.
  let begun: Promise<unknown> = Promise.resolve();
  const runInTurn = async (): Promise<void> => {
    while (next < prompts.length && failure === undefined) {
      const index = next++;
      try {
        const beginning = begun.then(() => begin(index));
        begun = beginning.catch(() => undefined);
        outputs[index] = await collectOutput(await beginning);
      } catch (error) {
        failure ??= { error };
        stop.abort();
      }
    }
  };
  // The engine refuses an invalid `n`; here it must only not break the arithmetic.
  const completionsMax = prompts.reduce((most, _, index) => Math.max(most, Number(paramsOf(index).n) || 1), 1);
  const lanes = Math.min(prompts.length, Math.max(1, Math.floor(inFlightMax / completionsMax)));
  await Promise.all(Array.from({ length: lanes }, runInTurn));
  signal?.removeEventListener('abort', onAbort);
  if (failure !== undefined) throw (failure as { readonly error: unknown }).error;
  return outputs;
}

/** Undefined if the signal aborts before a long text is tokenized. */
async function tokensOf(
  engine: AsyncEngine,
  text: string | RenderedPrompt,
  signal: AbortSignal,
): Promise<Int32Array | undefined> {
  try {
    return await engine.tokenizePrompt(text, { signal });
  } catch (error) {
    if (signal.aborted) return undefined;
    throw error;
  }
}

interface BegunRequest {
  readonly prompt: Prompt;
  readonly tokens: ArrayLike<number>;
  readonly stream: AsyncIterable<OutputDelta>;
  readonly hasPromptLogprobs: boolean;
}

function perRequest(params: Params | readonly Params[], count: number): (index: number) => Params {
  if (!isList(params)) return () => params;
  if (params.length !== count) {
    const expected = `one set of parameters for each of the ${count} prompts`;
    throw invalidParameter({ parameter: 'params', expected, actual: `${params.length}` });
  }
  return (index) => params[index]!;
}

async function collectOutput({ prompt, tokens, stream, hasPromptLogprobs }: BegunRequest): Promise<RequestOutput> {
  const completions: OutputDelta[][] = [];
  for await (const delta of stream) {
    completions[delta.index] ??= [];
    completions[delta.index]!.push(delta);
  }
  const totals = completions.map((deltas) => deltas.at(-1)!.stats);
  const sum = (counter: 'outputTokens' | 'computedTokens' | 'recomputedTokens' | 'preemptions') =>
    totals.reduce((total, stats) => total + stats[counter], 0);
  return {
    ...(isText(prompt) ? { prompt: `${prompt}` } : {}),
    promptTokenIds: Array.from(tokens),
    ...promptLogprobsOf(completions[0] ?? [], hasPromptLogprobs),
    outputs: completions.map(joinDeltas),
    stats: {
      ...totals[0]!,
      outputTokens: sum('outputTokens'),
      computedTokens: sum('computedTokens'),
      recomputedTokens: sum('recomputedTokens'),
      preemptions: sum('preemptions'),
    },
  };
}

/** The first completion has those of all. */
function promptLogprobsOf(
  deltas: readonly OutputDelta[],
  areRequested: boolean,
): Pick<RequestOutput, 'promptLogprobs'> {
  return areRequested
    ? { promptLogprobs: [null, ...deltas.flatMap(({ promptLogprobs }) => promptLogprobs ?? [])] }
    : {};
}

function joinDeltas(deltas: readonly OutputDelta[], index: number): CompletionOutput {
  const { reason, stopReason } = assertDefined(deltas.at(-1)?.finish, 'a stream ends with the end of its completions');
  return {
    index,
    ...joinTexts(deltas),
    tokenIds: deltas.flatMap(({ tokenIds }) => tokenIds),
    finishReason: reason,
    ...(stopReason === undefined ? {} : { stopReason }),
    ...(deltas[0]?.logprobs === undefined ? {} : { logprobs: deltas.flatMap(({ logprobs }) => logprobs ?? []) }),
  };
}

function joinTexts(deltas: readonly OutputDelta[]): Pick<CompletionOutput, 'text' | 'controls'> {
  let text = '';
  const controls: ControlSpan[] = [];
  for (const delta of deltas) {
    for (const { at, length } of delta.controls ?? []) controls.push({ at: text.length + at, length });
    text += delta.text;
  }
  return controls.length === 0 ? { text } : { text, controls };
}

/** Array.isArray does not narrow readonly arrays. */
const isList = (value: unknown): value is readonly unknown[] => Array.isArray(value);

/** An empty array is an empty list of prompts, not an empty prompt. */
const isPrompt = (value: Prompt | readonly Prompt[]): value is Prompt =>
  typeof value === 'string' || !isList(value) || typeof value[0] === 'number';

const isConversation = (value: ChatMessages | readonly ChatMessages[]): value is ChatMessages =>
  value.length > 0 && !isList(value[0]);

const isText = (prompt: Prompt): prompt is string | RenderedPrompt =>
  typeof prompt === 'string' || prompt instanceof RenderedPrompt;

function readAnswers(output: RequestOutput, options: ChatAnswerOptions): ChatOutput {
  const outputs = output.outputs.map((completion) => {
    const answer = new ChatAnswer(options);
    const finish = { reason: completion.finishReason };
    answer.add({ ...completion, finish });
    const finishReason = answer.finishReason(finish) ?? finish.reason;
    return { ...completion, finishReason, message: answer.message() };
  });
  return { ...output, outputs };
}
