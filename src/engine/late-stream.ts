import type { OutputDelta } from './contract.ts';
import type { OutputStream } from './output-stream.ts';

/** The stream of a request whose prompt is still being tokenized. It forwards to the stream that `start` resolves to. */
export class LateStream implements AsyncIterableIterator<OutputDelta> {
  readonly #start: Promise<OutputStream>;
  readonly #giveUp: () => void;

  /** `start` must not reject. `giveUp` is called when the reader closes the stream, before or after the start. */
  constructor(start: Promise<OutputStream>, giveUp: () => void) {
    this.#start = start;
    this.#giveUp = giveUp;
  }

  async next(): Promise<IteratorResult<OutputDelta, undefined>> {
    return (await this.#start).next();
  }

  async return(): Promise<IteratorResult<OutputDelta, undefined>> {
    this.#giveUp();
    return (await this.#start).return();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
