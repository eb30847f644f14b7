import type { Prng } from '../../src/base/prng.ts';
import type { SimulatedTime } from './simulated-time.ts';

/**
 * One direction of a connection between two processes. Messages arrive in order, each after `delayMs` and a random part of it more. During a
 * partition they are on the way until its end, because the sender repeats them.
 */
export class Link {
  readonly #time: SimulatedTime;
  readonly #prng: Prng;
  readonly #delayMs: number;
  /** Rounding may change the order of timers, but not the order of messages. */
  readonly #onTheWay: (() => void)[] = [];
  #partitionEndsMs = 0;
  #lastMs = 0;

  constructor(time: SimulatedTime, prng: Prng, delayMs: number) {
    this.#time = time;
    this.#prng = prng;
    this.#delayMs = delayMs;
  }

  send(deliver: () => void): void {
    const nowMs = this.#time.nowMs();
    const sentMs = Math.max(nowMs, this.#partitionEndsMs);
    this.#lastMs = Math.max(sentMs + this.#delayMs * (1 + this.#prng.unit()), this.#lastMs);
    this.#onTheWay.push(deliver);
    this.#time.after(this.#lastMs - nowMs, () => this.#onTheWay.shift()!());
  }

  /** Messages that are sent from now on arrive after the partition. */
  partition(endsMs: number): void {
    this.#partitionEndsMs = Math.max(this.#partitionEndsMs, endsMs);
  }
}
