import { quantile } from '../step-times.ts';

/** The arrival times of tokens, for all turns of one or more runs of a subject. */
export class RunTimes {
  readonly #firstMs: number[] = [];
  readonly #betweenMs: number[] = [];

  /** A turn whose request is sent at `atMs`. */
  beginTurn(atMs: number): TurnTimes {
    return new TurnTimes(atMs, this.#firstMs, this.#betweenMs);
  }

  first(): Percentiles {
    return percentiles(this.#firstMs);
  }

  between(): Percentiles {
    return percentiles(this.#betweenMs);
  }
}

export interface Percentiles {
  readonly p50: number;
  readonly p99: number;
}

function percentiles(values: readonly number[]): Percentiles {
  const sorted = Float64Array.from(values).sort();
  return { p50: quantile(sorted, 0.5), p99: quantile(sorted, 0.99) };
}

export class TurnTimes {
  #lastMs: number;
  #count = 0;
  readonly #first: number[];
  readonly #between: number[];

  constructor(atMs: number, first: number[], between: number[]) {
    this.#lastMs = atMs;
    this.#first = first;
    this.#between = between;
  }

  get tokenCount(): number {
    return this.#count;
  }

  /** Adds tokens that came together: the reader waited for the first of them, and 0 ms for the others. */
  add(count: number, atMs: number): void {
    for (let i = 0; i < count; i++) {
      (this.#count++ === 0 ? this.#first : this.#between).push(atMs - this.#lastMs);
      this.#lastMs = atMs;
    }
  }
}
