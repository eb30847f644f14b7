import type { SamplingOptions } from '../../core/sampling.ts';
import type { AsyncEngine, ChatMessage } from '../../engine/contract.ts';
import { wholeOrError } from '../../engine/early-end.ts';
import { tokenizeText } from '../../server/generation/generation.ts';
import { contentText } from '../../tools/template-messages.ts';

/** What an answer cost. */
export interface AnswerStats {
  readonly promptTokens: number;
  /** Tokens of the prompt whose KV was in the cache. */
  readonly cachedTokens: number;
  readonly outputTokens: number;
  /** `stopped`: by the signal. `length`: at the limit of its length. */
  readonly end: 'complete' | 'stopped' | 'length';
}

/** A conversation with a model: messages, and answers that are streamed. The KV of earlier turns is found in the prefix cache. */
export class Conversation {
  readonly #engine: AsyncEngine;
  readonly #params: SamplingOptions;
  #system: string | undefined;
  #messages: ChatMessage[] = [];

  constructor(engine: AsyncEngine, params: SamplingOptions, system: string | undefined) {
    this.#engine = engine;
    this.#params = params;
    this.#system = system;
  }

  get messages(): readonly ChatMessage[] {
    const opening = this.#system === undefined ? [] : [{ role: 'system', content: this.#system }];
    return [...opening, ...this.#messages];
  }

  get system(): string | undefined {
    return this.#system;
  }

  /** Begins again, with this system message. */
  restart(system = this.#system): void {
    this.#system = system;
    this.#messages = [];
  }

  /** Removes the last question and its answer, and returns the question; undefined if there is none. */
  takeBack(): string | undefined {
    while (this.#messages.length > 0) {
      const { role, content } = this.#messages.pop()!;
      if (role === 'user') return contentText(content);
    }
    return undefined;
  }

  /**
   * Asks, and passes the answer's text on as it comes. If the signal is aborted, the answer ends there and stays in the
   * conversation. If the engine refuses the question, the conversation is as before.
   */
  async ask(question: string, onText: (text: string) => void, signal: AbortSignal): Promise<AnswerStats> {
    const before = this.#messages;
    this.#messages = [...before, { role: 'user', content: question }];
    try {
      return await this.#answer(onText, signal);
    } catch (error) {
      this.#messages = before;
      throw error;
    }
  }

  async #answer(onText: (text: string) => void, signal: AbortSignal): Promise<AnswerStats> {
    const { text } = await this.#engine.renderChat(this.messages, { addGenerationPrompt: true, signal });
    const prompt = await tokenizeText(this.#engine, text, false, signal);
    let answer = '';
    let stats = { promptTokens: prompt.length, cachedTokens: 0, outputTokens: 0 };
    let reason: string | undefined;
    const params = { ...this.#params, maxTokens: this.#lengthAfter(prompt.length) };
    for await (const delta of this.#engine.generate({ prompt, params }, { signal })) {
      // What the user has stopped is kept.
      if (!signal.aborted) wholeOrError(delta, signal);
      answer += delta.text;
      if (delta.text !== '') onText(delta.text);
      ({ reason } = delta.finish ?? { reason });
      stats = delta.stats;
    }
    this.#messages = [...this.#messages, { role: 'assistant', content: answer }];
    const { promptTokens, cachedTokens, outputTokens } = stats;
    const end = reason === 'abort' ? 'stopped' : reason === 'length' ? 'length' : 'complete';
    return { promptTokens, cachedTokens, outputTokens, end };
  }

  /** The rest of the context, if the user set no limit or a higher one. */
  #lengthAfter(promptTokens: number): number {
    const { maxTokens = Number.POSITIVE_INFINITY } = this.#params;
    return Math.max(1, Math.min(maxTokens, this.#engine.model.maxModelLen - promptTokens));
  }
}
