import { assert } from '../base/assert.ts';
import type { FinishReason } from '../core/request.ts';
import type { OutputDelta } from './contract.ts';

/**
 * The result of one `generate` call: the deltas of its completions in the order of the steps.
 *
 * The engine never waits for a reader: unread deltas are kept, at most the request's tokens. The stream ends after the
 * last delta of each completion, after an error, or when the reader calls `return` (as leaving a `for await` loop does).
 */
export class OutputStream implements AsyncIterableIterator<OutputDelta> {
  #unread: OutputDelta[] = [];
  #readCount = 0;
  #readers: PromiseWithResolvers[] = [];
  #openCompletions: number;
  #error: unknown;
  readonly #onEnd: () => void;

  /** `onEnd` is called once, at the end of the stream for any reason. */
  constructor(completions: number, onEnd: () => void) {
    this.#openCompletions = completions;
    this.#onEnd = onEnd;
  }

  /** A stream whose first `next` rejects. */
  static failed(error: unknown): OutputStream {
    const stream = new OutputStream(0, () => {});
    stream.#error = error;
    return stream;
  }

  /** A stream of completions that ended before they began. */
  static ended(completions: number, reason: FinishReason): OutputStream {
    const stream = new OutputStream(completions, () => {});
    const stats = {
      promptTokens: 0,
      cachedTokens: 0,
      outputTokens: 0,
      computedTokens: 0,
      recomputedTokens: 0,
      preemptions: 0,
    };
    for (let index = 0; index < completions; index++) {
      stream.push({ index, text: '', tokenIds: [], finish: { reason }, stats });
    }
    return stream;
  }

  push(delta: OutputDelta): void {
    assert(this.#openCompletions > 0, 'no delta is pushed after the end');
    if (delta.finish !== undefined) this.#openCompletions--;
    const reader = this.#readers.shift();
    if (reader === undefined) this.#unread.push(delta);
    else reader.resolve({ value: delta, done: false });
    if (this.#openCompletions === 0) this.#end();
  }

  next(): Promise<IteratorResult<OutputDelta, undefined>> {
    if (this.#error !== undefined) {
      const error = this.#error;
      this.#error = undefined;
      return Promise.reject(error);
    }
    const delta = this.#unread[this.#readCount];
    if (delta !== undefined) {
      this.#readCount++;
      if (this.#readCount === this.#unread.length) this.#forgetRead();
      return Promise.resolve({ value: delta, done: false });
    }
    if (this.#openCompletions === 0) return Promise.resolve(done);
    return new Promise((resolve) => this.#readers.push({ resolve }));
  }

  return(): Promise<IteratorResult<OutputDelta, undefined>> {
    this.#forgetRead();
    this.#error = undefined;
    if (this.#openCompletions > 0) {
      this.#openCompletions = 0;
      this.#end();
    }
    return Promise.resolve(done);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #forgetRead(): void {
    this.#unread = [];
    this.#readCount = 0;
  }

  #end(): void {
    for (const reader of this.#readers) reader.resolve(done);
    this.#readers = [];
    this.#onEnd();
  }
}

interface PromiseWithResolvers {
  resolve(result: IteratorResult<OutputDelta, undefined>): void;
}

const done = { value: undefined, done: true } as const;
