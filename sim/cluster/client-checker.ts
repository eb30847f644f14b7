import { assert } from '../../src/base/assert.ts';
import type { RequestStats } from '../../src/core/request.ts';
import type { TurnText } from './conversations.ts';

interface OpenTurn {
  readonly turn: TurnText;
  readonly sentMs: number;
  received: number;
}

/** What the clients have seen. Token counts are of prompts. */
export interface ClientTotals {
  readonly finished: number;
  readonly promptTokens: number;
  /** Tokens that some server had computed before, unless the cache is cold: the most that a cache can save. */
  readonly knownTokens: number;
  /** Tokens that were in the pool of the replica, and tokens that it has loaded from the tier. */
  readonly poolTokens: number;
  readonly tierTokens: number;
  readonly firstTokenMs: readonly number[];
}

/**
 * Receives what the router sends to clients, and compares it with the reference (I2): each token once, in order, then one end. At the end of the
 * world, no request may be open (I8).
 */
export class ClientChecker {
  readonly #open = new Map<string, OpenTurn>();
  readonly #firstTokenMs: number[] = [];
  #finished = 0;
  #promptTokens = 0;
  #knownTokens = 0;
  #poolTokens = 0;
  #tierTokens = 0;

  get openIds(): readonly string[] {
    return [...this.#open.keys()];
  }

  get totals(): ClientTotals {
    return {
      finished: this.#finished,
      promptTokens: this.#promptTokens,
      knownTokens: this.#knownTokens,
      poolTokens: this.#poolTokens,
      tierTokens: this.#tierTokens,
      firstTokenMs: this.#firstTokenMs,
    };
  }

  sent(turn: TurnText, nowMs: number): void {
    this.#open.set(turn.id, { turn, sentMs: nowMs, received: 0 });
  }

  left(id: string): void {
    this.#open.delete(id);
  }

  token(id: string, token: number, nowMs: number): void {
    const open = this.#openOf(id);
    const wanted = open.turn.expected[open.received];
    if (token !== wanted)
      assert(false, `I2: token ${open.received} of ${id} is ${token}, but the reference has ${wanted}`);
    if (open.received++ === 0) this.#firstTokenMs.push(nowMs - open.sentMs);
  }

  ended(id: string, stats: RequestStats): TurnText {
    const { turn, received } = this.#openOf(id);
    if (received !== turn.expected.length)
      assert(false, `I2: ${id} ended after ${received} of ${turn.expected.length} tokens`);
    this.#open.delete(id);
    const loaded = Object.values(stats.loadedTokens ?? {}).reduce((sum, count) => sum + count, 0);
    this.#finished++;
    this.#promptTokens += turn.prompt.length;
    this.#knownTokens += turn.knownTokens;
    this.#poolTokens += stats.cachedTokens - (stats.externalTokens ?? 0);
    this.#tierTokens += Math.min(loaded, turn.prompt.length);
    return turn;
  }

  #openOf(id: string): OpenTurn {
    const open = this.#open.get(id);
    assert(open !== undefined, `I2: the client of ${id} receives more after the end of its answer`);
    return open;
  }
}
