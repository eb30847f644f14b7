import type { TokenCount } from '../core/ids.ts';
import type { Span } from '../core/step.ts';

/**
 * The spans of one request in the step that is planned or in flight. Each step writes them into the same array and objects,
 * because a new array for each token would be most of what a step of decodes allocates.
 */
export class ScheduledSpans {
  readonly #spans: Writable<Span>[] = [];
  #count = 0;

  /** The same array in each step; complete after `finish`. */
  get all(): readonly Span[] {
    return this.#spans;
  }

  begin(): void {
    this.#count = 0;
  }

  push(start: number, end: number): void {
    const span = this.#spans[this.#count];
    if (span === undefined) this.#spans.push({ start: start as TokenCount, end: end as TokenCount });
    else {
      span.start = start as TokenCount;
      span.end = end as TokenCount;
    }
    this.#count++;
  }

  /** Removes the spans that only an earlier step wrote. */
  finish(): readonly Span[] {
    if (this.#spans.length !== this.#count) this.#spans.length = this.#count;
    return this.#spans;
  }
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };
