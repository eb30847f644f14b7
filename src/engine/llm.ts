import { setImmediate as nextTurn } from 'node:timers/promises';
import { assertDefined } from '../base/assert.ts';
import { engineClosed, invalidParameter, promptEmpty } from '../core/errors.ts';
import type { TokenId } from '../core/ids.ts';
import type { FinishReason, RequestStats } from '../core/request.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import type { TokenLogprobs } from '../core/step.ts';
import type { AsyncEngine, ChatMessage, OutputDelta } from './contract.ts';

/** A text or token ids. */
export type Prompt = string | ArrayLike<number>;

export interface CompletionOutput {
  /** The number of the completion, from 0 to `n - 1`. */
  readonly index: number;
  readonly text: string;
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
  /** One per completion, by index. */
  readonly outputs: readonly CompletionOutput[];
  /** Prompt and cached tokens are those of the first completion; the other counters are sums over all completions. */
  readonly stats: RequestStats;
}

export interface BatchOptions {
  /** When it aborts, the running completions end with finish reason `abort`. */
  readonly signal?: AbortSignal;
  /** Only requests with equal salts share cached prefixes. */
  readonly cacheSalt?: string;
}

export interface ChatOptions extends BatchOptions {
  /** Whether the template adds the start of the assistant's turn at the end. Default true. */
  readonly addGenerationPrompt?: boolean;
  /** Further inputs of the template (`enable_thinking`, ...). */
  readonly variables?: Readonly<Record<string, unknown>>;
}

/** The largest number of completions in the engine at a time: enough to fill its steps, far below its queue's limit. */
const inFlightMax = 256;

/**
 * Offline inference: takes prompts and returns finished completions in the order of the prompts. The engine's steps
 * compute all of them together. The model is loaded at the first use.
 *
 * The default of `maxTokens` is the rest of the model's length (vLLM: 16).
 *
 * ```ts
 * await using llm = new LLM({ model: 'model.gguf' });
 * const [output] = await llm.generate('Once upon a time', { maxTokens: 32, temperature: 0 });
 * console.log(output.outputs[0].text);
 * ```
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
    const engine = await this.engine();
    const list: readonly Prompt[] = isPrompt(prompts) ? [prompts] : prompts;
    if (list.includes('')) throw promptEmpty();
    return runBatch(
      engine,
      list.map((prompt) => ({ prompt })),
      params,
      options,
    );
  }

  /** Like `generate`, for one conversation or several; the model's chat template renders each. */
  async chat(
    conversations: readonly ChatMessage[] | readonly (readonly ChatMessage[])[],
    params: SamplingOptions | readonly SamplingOptions[] = {},
    { addGenerationPrompt = true, variables, ...options }: ChatOptions = {},
  ): Promise<RequestOutput[]> {
    const engine = await this.engine();
    const template = { addGenerationPrompt, ...(variables === undefined ? {} : { variables }) };
    const requests: BatchRequest[] = [];
    for (const messages of isConversation(conversations) ? [conversations] : conversations) {
      const prompt = await engine.renderChat(messages, template);
      // The template itself writes BOS and other control tokens.
      requests.push({ prompt, encode: { addSpecial: false, parseSpecial: true } });
    }
    return runBatch(engine, requests, params, options);
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

interface BatchRequest {
  readonly prompt: Prompt;
  readonly encode?: { readonly addSpecial: boolean; readonly parseSpecial: boolean };
}

/** Characters that are tokenized between two turns of the event loop, if many short prompts start together. */
const TEXT_LENGTH_PER_TURN = 65_536;

type Params = SamplingOptions;

async function runBatch(
  engine: AsyncEngine,
  requests: readonly BatchRequest[],
  params: Params | readonly Params[],
  { signal, cacheSalt }: BatchOptions,
): Promise<RequestOutput[]> {
  const paramsOf = perRequest(params, requests.length);
  const stop = new AbortController();
  const onAbort = (): void => stop.abort();
  if (signal?.aborted === true) stop.abort();
  signal?.addEventListener('abort', onAbort, { once: true });

  const outputs: RequestOutput[] = [];
  let failure: { readonly error: unknown } | undefined;
  let next = 0;
  let textLength = 0;
  const salt = cacheSalt === undefined ? {} : { cacheSalt };
  const begin = async (index: number) => {
    const { prompt, encode = {} } = requests[index]!;
    const tokens = typeof prompt === 'string' ? await tokensOf(engine, prompt, encode, stop.signal) : prompt;
    if (typeof prompt === 'string') textLength += prompt.length;
    if (textLength > TEXT_LENGTH_PER_TURN) {
      textLength = 0;
      await nextTurn();
    }
    const stream = engine.generate({ prompt: tokens ?? prompt, params: paramsOf(index), ...encode, ...salt }, stop);
    return { prompt, tokens: tokens ?? [], stream };
  };
  // Requests start one after the other, because requests without a seed draw their seeds in the order of their starts.
  let begun: Promise<unknown> = Promise.resolve();
  const runInTurn = async (): Promise<void> => {
    while (next < requests.length && failure === undefined) {
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
  const completionsMax = requests.reduce((most, _, index) => Math.max(most, Number(paramsOf(index).n) || 1), 1);
  const lanes = Math.min(requests.length, Math.max(1, Math.floor(inFlightMax / completionsMax)));
  await Promise.all(Array.from({ length: lanes }, runInTurn));
  signal?.removeEventListener('abort', onAbort);
  if (failure !== undefined) throw (failure as { readonly error: unknown }).error;
  return outputs;
}

/** Undefined if the signal aborts before a long text is tokenized. */
async function tokensOf(
  engine: AsyncEngine,
  text: string,
  encode: Partial<BatchRequest['encode']>,
  signal: AbortSignal,
): Promise<ArrayLike<number> | undefined> {
  try {
    return await engine.tokenizePrompt(text, { ...encode, signal });
  } catch (error) {
    if (signal.aborted) return undefined;
    throw error;
  }
}

interface BegunRequest {
  readonly prompt: Prompt;
  readonly tokens: ArrayLike<number>;
  readonly stream: AsyncIterable<OutputDelta>;
}

function perRequest(params: Params | readonly Params[], count: number): (index: number) => Params {
  if (!isList(params)) return () => params;
  if (params.length !== count) {
    const expected = `one set of parameters for each of the ${count} prompts`;
    throw invalidParameter({ parameter: 'params', expected, actual: `${params.length}` });
  }
  return (index) => params[index]!;
}

async function collectOutput({ prompt, tokens, stream }: BegunRequest): Promise<RequestOutput> {
  const completions: OutputDelta[][] = [];
  for await (const delta of stream) {
    completions[delta.index] ??= [];
    completions[delta.index]!.push(delta);
  }
  const totals = completions.map((deltas) => deltas.at(-1)!.stats);
  const sum = (counter: 'outputTokens' | 'computedTokens' | 'recomputedTokens' | 'preemptions') =>
    totals.reduce((total, stats) => total + stats[counter], 0);
  return {
    ...(typeof prompt === 'string' ? { prompt } : {}),
    promptTokenIds: Array.from(tokens),
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

function joinDeltas(deltas: readonly OutputDelta[], index: number): CompletionOutput {
  const { reason, stopReason } = assertDefined(deltas.at(-1)?.finish, 'a stream ends with the end of its completions');
  return {
    index,
    text: deltas.map(({ text }) => text).join(''),
    tokenIds: deltas.flatMap(({ tokenIds }) => tokenIds),
    finishReason: reason,
    ...(stopReason === undefined ? {} : { stopReason }),
    ...(deltas[0]?.logprobs === undefined ? {} : { logprobs: deltas.flatMap(({ logprobs }) => logprobs ?? []) }),
  };
}

/** Array.isArray does not narrow readonly arrays. */
const isList = (value: unknown): value is readonly unknown[] => Array.isArray(value);

/** An empty array is an empty list of prompts, not an empty prompt. */
const isPrompt = (value: Prompt | readonly Prompt[]): value is Prompt =>
  typeof value === 'string' || !isList(value) || typeof value[0] === 'number';

const isConversation = (
  value: readonly ChatMessage[] | readonly (readonly ChatMessage[])[],
): value is readonly ChatMessage[] => value.length > 0 && !isList(value[0]);
