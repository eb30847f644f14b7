/** So many look-ups in a row find nothing before a request does not wait. */
const missesMin = 16;
/** More misses count as so many. So prompts whose computing takes 100 times as long as a look-up always wait. */
const missesMax = 99;
/** Of the durations of look-ups, the newest has this part of the mean. */
const newestPart = 1 / 8;

/**
 * Decides whether an idle engine waits for a look-up. While the look-up runs, the engine could already compute. If the last n
 * look-ups found nothing, the next one finds something with a probability of about 1 / (n + 1). So waiting is worth its time if
 *
 *     computing the blocks / (n + 1)  >=  the duration of a look-up
 *
 * With a look-up of 5 ms, a prompt that computes in 100 ms does not wait after 20 look-ups without a hit, and a prompt that
 * computes in 0.5 s always waits. One hit makes all requests wait again.
 */
export class LookupWorth {
  /** Look-ups in a row that found nothing. */
  #misses = 0;
  #meanMs = 0;

  /** The answers of a look-up are known. `waitedMs`: its duration, if the engine was idle at its start. */
  ended(isFound: boolean, waitedMs?: number): void {
    this.#misses = isFound ? 0 : Math.min(this.#misses + 1, missesMax);
    if (waitedMs === undefined) return;
    this.#meanMs = this.#meanMs === 0 ? waitedMs : this.#meanMs + (waitedMs - this.#meanMs) * newestPart;
  }

  /** `computeMs`: what computing the blocks takes. Undefined: not known. */
  isWorthWaiting(computeMs: number | undefined): boolean {
    if (this.#misses < missesMin || computeMs === undefined) return true;
    return computeMs / (this.#misses + 1) >= this.#meanMs;
  }
}
