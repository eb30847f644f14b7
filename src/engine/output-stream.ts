import { assert } from '../base/assert.ts';
import type { FinishReason } from '../core/request.ts';
import type { TokenLogprobs } from '../core/step.ts';
import type { OutputDelta } from './contract.ts';
import { unreadOverLimit } from './errors.ts';

/**
 * The result of one `generate` call: the deltas of its completions in the order of the steps.
 *
 * The engine never waits for a reader: unread deltas are kept, at most the request's tokens. If they need more memory than the
 * request allows, its completions are aborted. The stream ends after the last delta of each completion, after an error, or when
 * the reader calls `return` (as leaving a `for await` loop does).
 */
export class OutputStream implements AsyncIterableIterator<OutputDelta> {
  #unread: OutputDelta[] = [];
  #readCount = 0;
  /** Memory of the deltas in `#unread` that are not read. */
  #unreadBytes = 0;
  readonly #unreadMaxBytes: number;
  #readers: PromiseWithResolvers[] = [];
  #openCompletions: number;
  #error: unknown;
  readonly #onEnd: () => void;

  /** `onEnd` is called once, at the end of the stream for any reason. */
  constructor(completions: number, onEnd: () => void, unreadMaxBytes = Infinity) {
    this.#openCompletions = completions;
    this.#onEnd = onEnd;
    this.#unreadMaxBytes = unreadMaxBytes;
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
    if (reader === undefined) this.#keep(delta);
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
      this.#unreadBytes -= bytesOf(delta);
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
    this.#unreadBytes = 0;
  }

  #keep(delta: OutputDelta): void {
    this.#unread.push(delta);
    this.#unreadBytes += bytesOf(delta);
    // Later: the engine delivers the update that this delta belongs to, and ends its completion itself.
    if (this.#unreadBytes > this.#unreadMaxBytes) queueMicrotask(() => this.#giveUp());
  }

  /** The reader gets the error at its next read. */
  #giveUp(): void {
    if (this.#unreadBytes <= this.#unreadMaxBytes) return;
    this.#forgetRead();
    this.#error = unreadOverLimit({ limitBytes: this.#unreadMaxBytes });
    if (this.#openCompletions === 0) return;
    this.#openCompletions = 0;
    this.#end();
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

/** What V8 needs for a delta, about: objects have 8 bytes for each field and 24 more. */
const BYTES_PER_DELTA = 512;
const BYTES_PER_ENTRY = 96;
const BYTES_PER_TOP = 64;

function bytesOf({ text, tokenIds, logprobs, promptLogprobs }: OutputDelta): number {
  return (
    BYTES_PER_DELTA + 2 * text.length + 8 * tokenIds.length + bytesOfEntries(logprobs) + bytesOfEntries(promptLogprobs)
  );
}

function bytesOfEntries(entries: readonly TokenLogprobs[] = []): number {
  let bytes = 0;
  for (const { top } of entries) bytes += BYTES_PER_ENTRY + BYTES_PER_TOP * top.length;
  return bytes;
}
