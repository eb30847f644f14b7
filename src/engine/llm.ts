import { setImmediate as nextTurn } from 'node:timers/promises';
import { assertDefined } from '../base/assert.ts';
import { engineClosed, invalidParameter, promptEmpty } from '../core/errors.ts';
import type { TokenId } from '../core/ids.ts';
import type { FinishReason, RequestStats } from '../core/request.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import type { TokenLogprobs } from '../core/step.ts';
import type { AsyncEngine, ChatMessage, OutputDelta } from './contract.ts';

/** A text, or tokens as they are. */
export type Prompt = string | ArrayLike<number>;

export interface CompletionOutput {
  /** Which of the `n` completions. */
  readonly index: number;
  readonly text: string;
  readonly tokenIds: readonly TokenId[];
  readonly finishReason: FinishReason;
  /** The stop string or stop token that ended it, when the caller named one and it did. */
  readonly stopReason?: string | number;
  /** Parallel to `tokenIds`, when asked for. */
  readonly logprobs?: readonly TokenLogprobs[];
}

/** Plain data: `JSON.parse(JSON.stringify(output))` equals the output, except a logprob of minus infinity (null in JSON). */
export interface RequestOutput {
  /** The text that was given, or that the chat template made; absent for a prompt of tokens. */
  readonly prompt?: string;
  readonly promptTokenIds: readonly number[];
  /** One per completion, by index. */
  readonly outputs: readonly CompletionOutput[];
  /** Prompt and cached tokens are those of the first completion, the other counters are sums over all. */
  readonly stats: RequestStats;
}

export interface BatchOptions {
  /** Ends what is not finished with finish reason `abort`. */
  readonly signal?: AbortSignal;
  /** Requests share cached prefixes only with requests of an equal salt. */
  readonly cacheSalt?: string;
}

export interface ChatOptions extends BatchOptions {
  /** Whether the template opens the assistant's turn at the end. Default true. */
  readonly addGenerationPrompt?: boolean;
  /** What else the template may read (`enable_thinking`, ...). */
  readonly variables?: Readonly<Record<string, unknown>>;
}

/** Completions that are with the engine at once at most; enough to fill its steps, far below its queue's limit. */
const inFlightMax = 256;

/**
 * Offline inference: prompts in, finished texts out, in the order of the prompts; all of them share the engine's steps.
 * The model is loaded at the first use.
 *
 * `maxTokens` is, unlike in vLLM (16), by default whatever is left of the model's length.
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
   * The engine below, loaded now unless it was: for streams (`engine.generate`), tokens and statistics.
   * @throws whatever loading throws; the next use tries again.
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
   * One output per prompt. `params` are for all prompts, or an array with one entry per prompt.
   * @throws KvasirError of the first bad request; the others are then aborted.
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

  /** Like `generate`, for one conversation or several: each is rendered by the model's chat template. */
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
      // The template has written BOS and the like itself.
      requests.push({ prompt, encode: { addSpecial: false, parseSpecial: true } });
    }
    return runBatch(engine, requests, params, options);
  }

  /** Aborts what still runs and frees the model. Idempotent. */
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

/** Characters that are tokenized between two turns of the event loop, when many short prompts begin together. */
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
  // One after the other, because requests without a seed get theirs in the order in which they begin.
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
  // A bad `n` is the engine's to refuse; here it only must not break the arithmetic.
  const completionsMax = requests.reduce((most, _, index) => Math.max(most, Number(paramsOf(index).n) || 1), 1);
  const lanes = Math.min(requests.length, Math.max(1, Math.floor(inFlightMax / completionsMax)));
  await Promise.all(Array.from({ length: lanes }, runInTurn));
  signal?.removeEventListener('abort', onAbort);
  if (failure !== undefined) throw (failure as { readonly error: unknown }).error;
  return outputs;
}

/** Undefined when the signal aborts before the tokens of a long text are there. */
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

/** An empty array is no prompt but no prompts. */
const isPrompt = (value: Prompt | readonly Prompt[]): value is Prompt =>
  typeof value === 'string' || !isList(value) || typeof value[0] === 'number';

const isConversation = (
  value: readonly ChatMessage[] | readonly (readonly ChatMessage[])[],
): value is readonly ChatMessage[] => value.length > 0 && !isList(value[0]);
