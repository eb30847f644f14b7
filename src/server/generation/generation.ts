import { setImmediate as nextTurn } from 'node:timers/promises';
import { byName } from '../../base/by-name.ts';
import type { Clock } from '../../base/clock.ts';
import { withoutUndefined } from '../../base/field-reader.ts';
import { promptEmpty, tooManyTokens } from '../../core/errors.ts';
import type { RequestStats } from '../../core/request.ts';
import type { ChatAnswerOptions } from '../../engine/chat/chat-answer.ts';
import type { ModelFormats } from '../../engine/chat/conversation.ts';
import { prepareChat } from '../../engine/chat/prepare-chat.ts';
import type { RenderedPrompt } from '../../engine/chat/rendered-prompt.ts';
import type { AsyncEngine, OutputDelta } from '../../engine/contract.ts';
import { type AnsweredDelta, wholeOrError } from '../../engine/early-end.ts';
import type { TraceHeaders } from '../../engine/observer.ts';
import { reusedTokens } from '../../engine/stats.ts';
import type { RequestMeter } from '../http/request-log.ts';
import { mergeStreams } from './merge-streams.ts';
import type { RequestUsage } from './renderer.ts';
import type { ParsedChat, ParsedCompletion, ParsedGeneration } from './request.ts';
import { unreadMaxBytes } from './request-needs.ts';

/** One tokenized prompt of a request. */
export interface Prompt {
  readonly tokens: Int32Array;
  /** The largest number of output tokens: of the request or the endpoint, and at most the rest of the context. */
  readonly maxTokens: number;
}

export interface PromptsToPrepare {
  readonly prompts: readonly (string | RenderedPrompt | Int32Array)[];
  /** The default of the endpoint. */
  readonly maxTokensDefault: number;
}

/**
 * Turns texts into tokens and limits outputs to the rest of the context. Yields to the event loop between prompts, so that a long
 * list does not delay the streams.
 */
export async function preparePrompts(
  engine: AsyncEngine,
  parsed: ParsedGeneration,
  { prompts, maxTokensDefault }: PromptsToPrepare,
  signal: AbortSignal,
): Promise<Prompt[]> {
  const prepared: Prompt[] = [];
  for (const prompt of prompts) {
    if (prepared.length > 0) await nextTurn();
    const tokens =
      prompt instanceof Int32Array ? prompt : await tokenizeText(engine, prompt, parsed.addSpecial, signal);
    if (tokens.length === 0) throw promptEmpty();
    const { maxModelLen } = engine.model;
    const room = maxModelLen - tokens.length;
    const { maxTokens = 1 } = parsed.params;
    if (room < (parsed.isStrict ? maxTokens : Math.min(maxTokens, Math.max(1, parsed.params.minTokens ?? 0)))) {
      const asked = room < 1 && !parsed.isStrict ? undefined : parsed.params.maxTokens;
      throw tooManyTokens({ promptTokens: tokens.length, maxTokens: asked, maxModelLen });
    }
    prepared.push({ tokens, maxTokens: Math.min(parsed.params.maxTokens ?? maxTokensDefault, room) });
  }
  return prepared;
}

/** A request whose prompts are tokens. */
export interface PreparedGeneration {
  readonly parsed: ParsedChat | ParsedCompletion;
  readonly prompts: readonly Prompt[];
  /** Of a chat: how its answer is read. */
  readonly answers?: ChatAnswerOptions;
}

/** A chat as a generation. Without a limit, the answer may be as long as the rest of the context. */
export async function prepareAnswer(
  engine: AsyncEngine,
  asked: ParsedChat,
  formats: ModelFormats,
  signal: AbortSignal,
): Promise<{ readonly parsed: ParsedChat; readonly prompts: readonly Prompt[]; readonly answers: ChatAnswerOptions }> {
  const { prompt, answers, ...prepared } = await prepareChat(engine, asked, formats, signal);
  const parsed = { ...asked, ...prepared };
  const toPrepare = { prompts: [prompt], maxTokensDefault: engine.model.maxModelLen };
  return { parsed, answers, prompts: await preparePrompts(engine, parsed, toPrepare, signal) };
}

/** Names of control tokens in a prompt become control tokens: the client could send their ids too. */
export function tokenizeText(
  engine: AsyncEngine,
  text: string | RenderedPrompt,
  addSpecial: boolean,
  signal?: AbortSignal,
): Promise<Int32Array> {
  return engine.tokenizePrompt(text, { addSpecial, parseSpecial: true, ...(signal === undefined ? {} : { signal }) });
}

export interface GenerationOptions {
  readonly parsed: ParsedGeneration;
  readonly id: string;
  readonly promptsAtOnce: number;
  readonly tenant: string | undefined;
  readonly traceHeaders?: TraceHeaders;
}

/**
 * Runs all prompts of a request, at most `promptsAtOnce` at a time, and yields their deltas in the order of the steps. Choices are
 * numbered as by OpenAI: first all choices of the first prompt, then those of the second, ... An error of one prompt aborts
 * the others. So does the end of the engine; a client that is gone ends the deltas.
 */
export async function* generateAll(
  engine: AsyncEngine,
  prompts: readonly Prompt[],
  { parsed, id, promptsAtOnce, tenant, traceHeaders }: GenerationOptions,
  controller: AbortController,
): AsyncGenerator<AnsweredDelta, void, void> {
  const { cacheSalt, priority, kvTransferParams, grammar } = parsed;
  const n = parsed.params.n ?? 1;
  const begin = (i: number): AsyncIterator<OutputDelta> => {
    const prompt = prompts[i]!;
    const request = {
      prompt: prompt.tokens,
      params: { ...parsed.params, maxTokens: prompt.maxTokens },
      requestId: prompts.length === 1 ? id : `${id}-${i}`,
      unreadMaxBytes,
      ...withoutUndefined({ tenant, cacheSalt, priority, kvTransferParams, grammar, traceHeaders }),
    };
    return engine.generate(request, { signal: controller.signal });
  };
  try {
    const streams = prompts.map((_, i) => () => begin(i));
    for await (const { source, value } of mergeStreams(streams, promptsAtOnce)) {
      // The client is gone: its request has no answer.
      if (controller.signal.aborted) return;
      const delta = wholeOrError(value, controller.signal);
      yield source === 0 ? delta : { ...delta, index: source * n + delta.index };
    }
  } catch (error) {
    controller.abort();
    throw error;
  }
}

/** Counts what a request used, for its response and its log line. */
export class GenerationMeter implements RequestUsage, RequestMeter {
  readonly promptTokens: number;
  readonly #n: number;
  readonly #choices: (OutputDelta | undefined)[];
  readonly #clock: Clock;
  readonly #startMs: number;
  #firstTokenMs: number | undefined;

  constructor(prompts: readonly Prompt[], n: number, clock: Clock, startMs: number) {
    this.promptTokens = prompts.reduce((sum, prompt) => sum + prompt.tokens.length, 0);
    this.#n = n;
    this.#choices = new Array<undefined>(prompts.length * n).fill(undefined);
    this.#clock = clock;
    this.#startMs = startMs;
  }

  add(delta: OutputDelta): void {
    if (delta.tokenIds.length > 0) this.#firstTokenMs ??= this.#clock.nowMs();
    this.#choices[delta.index] = delta;
  }

  /** Draft tokens that were verified, over all completions. */
  get draftedTokens(): number {
    return this.#sum(({ draftedTokens = 0 }) => draftedTokens);
  }

  get acceptedTokens(): number {
    return this.#sum(({ acceptedTokens = 0 }) => acceptedTokens);
  }

  get outputTokens(): number {
    return this.#sum(({ outputTokens }) => outputTokens);
  }

  /** A prompt counts once for all its completions: the tokens that the first completion reused. */
  get cachedTokens(): number {
    return this.#sum(reusedTokens, this.#n);
  }

  /** A prompt counts once: the tokens that a connector promised to the first completion. */
  get externalTokens(): number {
    return this.#sum(({ externalTokens = 0 }) => externalTokens, this.#n);
  }

  /** Over all completions. */
  get recomputedTokens(): number {
    return this.#sum(({ recomputedTokens }) => recomputedTokens);
  }

  get failedLoads(): number {
    return this.#sum(({ failedLoads = 0 }) => failedLoads);
  }

  /** Over all completions, by tier. */
  get loadedTokens(): Readonly<Record<string, number>> {
    const sum: Record<string, number> = byName();
    for (const last of this.#choices)
      for (const [place, tokens] of Object.entries(last?.stats.loadedTokens ?? {}))
        sum[place] = (sum[place] ?? 0) + tokens;
    return sum;
  }

  /** Milliseconds since the request arrived. */
  get elapsedMs(): number {
    return this.#clock.nowMs() - this.#startMs;
  }

  /** Undefined before the first token. */
  get timeToFirstTokenMs(): number | undefined {
    return this.#firstTokenMs === undefined ? undefined : this.#firstTokenMs - this.#startMs;
  }

  /** The finish reasons of all choices, such as `stop,length`. `otherwise`: of a choice that has not ended. */
  finishReasons(otherwise: 'running' | 'aborted'): string {
    return this.#choices.map((last) => last?.finish?.reason ?? otherwise).join(',');
  }

  /** The sum over every choice, or over every `stride`-th choice. */
  #sum(count: (stats: RequestStats) => number, stride = 1): number {
    return this.#choices.reduce(
      (sum, last, i) => sum + (last !== undefined && i % stride === 0 ? count(last.stats) : 0),
      0,
    );
  }
}
