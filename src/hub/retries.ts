import { setTimeout as sleep } from 'node:timers/promises';
import { KvasirError } from '../base/errors.ts';

export interface RetryOptions {
  /** Failures in a row, without a byte between them, after which a call fails. */
  readonly attemptsMax?: number;
  /** The wait after the first failure. Doubles with each failure. */
  readonly delayMs?: number;
  readonly delayMaxMs?: number;
  /** The time without any bytes after which a call counts as failed. */
  readonly silenceMs?: number;
}

/** Which calls of the hub are repeated, and when. */
export class Retries {
  readonly attemptsMax: number;
  readonly #delayMs: number;
  readonly #delayMaxMs: number;
  readonly #silenceMs: number;

  constructor({ attemptsMax = 5, delayMs = 1_000, delayMaxMs = 30_000, silenceMs = 30_000 }: RetryOptions = {}) {
    this.attemptsMax = attemptsMax;
    this.#delayMs = delayMs;
    this.#delayMaxMs = delayMaxMs;
    this.#silenceMs = silenceMs;
  }

  /** Repeats a call that fails for a reason that may pass. */
  async run<T>(signal: AbortSignal | undefined, call: () => Promise<T>): Promise<T> {
    for (let failures = 1; ; failures++) {
      try {
        return await call();
      } catch (error) {
        signal?.throwIfAborted();
        if (!canPass(error) || failures >= this.attemptsMax) throw error;
        await this.wait(failures, error, signal);
      }
    }
  }

  /** Waits before the next attempt: as long as the hub asks for, else longer after each failure. */
  async wait(failures: number, error: unknown, signal?: AbortSignal): Promise<void> {
    const asked = error instanceof KvasirError ? Number(error.fields.retryAfter) * 1000 : Number.NaN;
    const delayMs = Number.isFinite(asked) ? asked : this.#delayMs * 2 ** (failures - 1);
    await sleep(Math.min(delayMs, this.#delayMaxMs), undefined, { ...(signal === undefined ? {} : { signal }) });
  }

  /** A deadline that each byte extends. */
  silence(signal?: AbortSignal): Silence {
    return new Silence(this.#silenceMs, signal);
  }
}

/** Whether the same call may succeed later. */
export function canPass(error: unknown): boolean {
  if (!(error instanceof KvasirError)) return true;
  const { status } = error.fields;
  return typeof status === 'number' ? status === 408 || status === 429 || status >= 500 : error.retryable;
}

class Silence {
  readonly #controller = new AbortController();
  readonly #timer: NodeJS.Timeout;
  readonly signal: AbortSignal;

  constructor(limitMs: number, signal: AbortSignal | undefined) {
    const reason = new Error(`no bytes for ${limitMs / 1000} s`);
    this.#timer = setTimeout(() => this.#controller.abort(reason), limitMs).unref();
    this.signal = signal === undefined ? this.#controller.signal : AbortSignal.any([this.#controller.signal, signal]);
  }

  async *watch(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    try {
      for await (const chunk of chunks) {
        this.#timer.refresh();
        yield chunk;
      }
    } finally {
      this.end();
    }
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}
