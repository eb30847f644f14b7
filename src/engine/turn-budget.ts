/** About 16 ms on the event loop. */
const COST_PER_TURN = 16_384;

/**
 * Limits the work on texts that the event loop does in one turn, so that a burst of requests does not block it: a turn serves all
 * requests that have arrived. Other work is done on another thread. Costs are about microseconds.
 */
export class TurnBudget {
  /** Of the work of one turn. */
  readonly costMax = COST_PER_TURN;
  #used = 0;

  /** Whether the caller may do this work at once. It then counts until the next turn. */
  take(cost: number): boolean {
    if (this.#used + cost > COST_PER_TURN) return false;
    if (this.#used === 0 && cost > 0) {
      setImmediate(() => {
        this.#used = 0;
      });
    }
    this.#used += cost;
    return true;
  }
}
