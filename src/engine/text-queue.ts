import { assert } from '../base/assert.ts';
import { unlessAborted } from '../base/unless-aborted.ts';
import { tooManyTokens } from '../core/errors.ts';
import type { Tokenizer } from '../tokenizer/contract.ts';
import type { PromptText } from './chat/rendered-prompt.ts';
import { tokenizeCost } from './prompt-limits.ts';
import { TurnBudget } from './turn-budget.ts';

/** Most tokens are shorter. A beginning can have more tokens than in the whole text, so the limit is twice the model's length. */
const TOKEN_LENGTH_LIKELY_MAX = 16;

/**
 * Tokenizes prompts: short ones at once, long ones in the background. The latter count as waiting requests: `drain` waits for them, and
 * `close` aborts them.
 */
export class TextQueue {
  readonly #tokenizer: Tokenizer;
  readonly #open = new Map<AbortController, number>();
  readonly #maxModelLen: number;
  readonly #onEnd: () => void;
  readonly #turn = new TurnBudget();

  /** `onEnd` is called after each text. */
  constructor(tokenizer: Tokenizer, maxModelLen: number, onEnd: () => void) {
    this.#maxModelLen = maxModelLen;
    this.#tokenizer = tokenizer;
    this.#onEnd = onEnd;
  }

  /** Completions that wait for their prompt's tokens. */
  get completions(): number {
    let sum = 0;
    for (const completions of this.#open.values()) sum += completions;
    return sum;
  }

  /** Undefined: the text is too long for this turn of the event loop. */
  runAtOnce({ text, options }: PromptText): Int32Array | undefined {
    return this.#turn.take(tokenizeCost(text)) ? this.#tokenizer.encode(text, options) : undefined;
  }

  /**
   * Rejects with the reason of `signal` or of `abortAll`. `take` gets the tokens before the text leaves the queue, so
   * the request counts as waiting without interruption.
   */
  async run<T>(
    { completions, ...text }: LongText,
    signal: AbortSignal | undefined,
    take: (tokens: Int32Array) => T,
  ): Promise<T> {
    return this.hold(completions, signal, (stop) => this.#encode(text, stop), take);
  }

  /** The same for other work that a request waits for. */
  async hold<W, T>(
    completions: number,
    signal: AbortSignal | undefined,
    work: (signal: AbortSignal) => Promise<W>,
    take: (result: W) => T,
  ): Promise<T> {
    const controller = new AbortController();
    const onAbort = (): void => controller.abort(signal?.reason);
    if (signal?.aborted === true) onAbort();
    signal?.addEventListener('abort', onAbort, { once: true });
    assert(completions > 0, `a request for ${completions} completions`);
    this.#open.set(controller, completions);
    try {
      const result = await unlessAborted(work(controller.signal), controller.signal);
      // The signal may have been aborted after the last token. The engine has then ended its requests, or closed.
      controller.signal.throwIfAborted();
      return take(result);
    } finally {
      signal?.removeEventListener('abort', onAbort);
      assert(this.#open.delete(controller), 'a text leaves the queue once');
      this.#onEnd();
    }
  }

  async #encode({ text, options, isCut }: Omit<LongText, 'completions'>, signal: AbortSignal): Promise<Int32Array> {
    const encode = (part: string) => this.#tokenizer.encodeInBackground(part, options, signal);
    if (isCut === true) return encode(text);
    // If the text is far too long, its beginning is enough to refuse it.
    const likelyMax = this.#maxModelLen * TOKEN_LENGTH_LIKELY_MAX;
    if (text.length > likelyMax) {
      // Half of them at least: the cut can change tokens before it.
      const promptTokens = Math.floor((await encode(text.slice(0, likelyMax))).length / 2);
      const maxModelLen = this.#maxModelLen;
      if (promptTokens > maxModelLen) throw tooManyTokens({ promptTokens, isLeast: true, maxModelLen });
    }
    return encode(text);
  }

  abortAll(reason: unknown): void {
    for (const controller of [...this.#open.keys()]) controller.abort(reason);
  }
}

export interface LongText extends PromptText {
  readonly completions: number;
  /** See `TokenizePromptOptions.isCut`. */
  readonly isCut?: boolean | undefined;
}
