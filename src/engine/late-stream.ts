import type { OutputDelta } from './contract.ts';

/** The stream of a request whose prompt or grammar is not ready yet. It forwards to the stream that `start` resolves to. */
export class LateStream implements AsyncIterableIterator<OutputDelta> {
  readonly #start: Promise<AsyncIterableIterator<OutputDelta, undefined>>;
  readonly #giveUp: () => void;

  /** `start` must not reject. `giveUp` is called when the reader closes the stream, before or after the start. */
  constructor(start: Promise<AsyncIterableIterator<OutputDelta, undefined>>, giveUp: () => void) {
    this.#start = start;
    this.#giveUp = giveUp;
  }

  async next(): Promise<IteratorResult<OutputDelta, undefined>> {
    return (await this.#start).next();
  }

  async return(): Promise<IteratorResult<OutputDelta, undefined>> {
    this.#giveUp();
    const stream = await this.#start;
    return (await stream.return?.()) ?? { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
