import type { BlockKey } from '../block-key.ts';
import type { SchedulerConnectorContext } from '../connector.ts';
import type { Timer } from '../timers.ts';
import { CircuitBreaker, type CircuitBreakerOptions, type Permit } from './circuit-breaker.ts';
import type { LookupAnswers } from './look-up.ts';
import type { Tier } from './tier.ts';
import { countsOfBreaker } from './tier-counters.ts';

/** How long a tier that was told to stop has to say what it knows. */
const abortGraceMs = 50;
/** A key without an answer is left alone for the first span, then for twice as long each time, up to the second. */
const coolDownMs = 1_000;
const coolDownMaxMs = 30_000;
/** Keys that are left alone; the oldest are forgotten. */
const quietMax = 1 << 14;

export interface RunningLookup {
  /** The answers are there by then. */
  readonly deadlineMs: number;
  /** The answers are no longer needed. */
  cancel(): void;
}

/**
 * Asks the tiers of all ranks which blocks they have. Each key is answered by itself: a block is there when all ranks
 * have their part, and not there when one rank lacks its part. A key that a tier cannot answer by the deadline, or at all,
 * stays unknown, and the other answers count.
 *
 * The circuit breaker counts a look-up as failed if a tier has answered no key. A store that hangs for some
 * keys only costs the deadline once per key and cool-down.
 */
export class TierLookups {
  readonly #tiers: readonly Tier[];
  readonly #context: SchedulerConnectorContext;
  readonly #timeoutMs: number;
  readonly #breaker: CircuitBreaker;
  readonly #quiet = new Map<BlockKey, { readonly untilMs: number; readonly coolDownMs: number }>();
  #isClosed: boolean = false;

  constructor(
    tiers: readonly Tier[],
    context: SchedulerConnectorContext,
    timeoutMs: number,
    breaker: CircuitBreakerOptions,
  ) {
    this.#tiers = tiers;
    this.#context = context;
    this.#timeoutMs = timeoutMs;
    this.#breaker = new CircuitBreaker(context.clock, breaker);
  }

  /** Whether the key had no answer lately: it is not worth waiting for. */
  isQuiet(key: BlockKey): boolean {
    const quiet = this.#quiet.get(key);
    return quiet !== undefined && this.#context.clock.nowMs() < quiet.untilMs;
  }

  /** Calls `done` once, later, unless it is cancelled. Undefined: the stores are not asked now. */
  start(keys: readonly BlockKey[], done: (answers: LookupAnswers) => void): RunningLookup | undefined {
    const permit = this.#isClosed ? undefined : this.#breaker.tryAcquire();
    if (permit === undefined) return undefined;
    const { clock, timers } = this.#context;
    const controller = new AbortController();
    const byRank: (LookupAnswers | undefined)[] = this.#tiers.map(() => undefined);
    let open = this.#tiers.length;
    let isOver = false;
    let timer: Timer;
    const end = (): void => {
      if (isOver) return;
      isOver = true;
      timer.cancel();
      done(this.#conclude(keys, byRank, permit));
    };
    // First the tiers say what they know; one that does not even do that is not waited for.
    timer = timers.after(this.#timeoutMs, () => {
      timer = timers.after(abortGraceMs, end);
      controller.abort();
    });
    const ask = async (tier: Tier, rank: number): Promise<void> => {
      try {
        byRank[rank] = await tier.has(keys, controller.signal);
      } catch {
        // Nothing is known from this tier: the breaker hears of it.
      }
      if (--open === 0) end();
    };
    for (const [rank, tier] of this.#tiers.entries()) void ask(tier, rank);
    return {
      deadlineMs: clock.nowMs() + this.#timeoutMs + 2 * abortGraceMs,
      cancel: () => {
        if (isOver) return;
        isOver = true;
        timer.cancel();
        permit.withdraw();
        controller.abort();
      },
    };
  }

  counters(): Readonly<Record<string, number>> {
    return countsOfBreaker('lookup', this.#breaker);
  }

  close(): void {
    this.#isClosed = true;
  }

  #conclude(keys: readonly BlockKey[], byRank: readonly (LookupAnswers | undefined)[], permit: Permit): LookupAnswers {
    const isAnswered = byRank.every((answers) => answers?.some((answer) => answer !== undefined) === true);
    if (isAnswered) permit.succeed();
    else permit.fail();
    return keys.map((key, i) => {
      const answers = byRank.map((ofRank) => ofRank?.[i]);
      const answer = answers.includes(false) ? false : answers.includes(undefined) ? undefined : true;
      if (answer !== undefined) this.#quiet.delete(key);
      // Of a store that has answered nothing the breaker takes care.
      else if (isAnswered) this.#leaveAlone(key);
      return answer;
    });
  }

  #leaveAlone(key: BlockKey): void {
    const before = this.#quiet.get(key);
    this.#quiet.delete(key);
    const span = before === undefined ? coolDownMs : Math.min(before.coolDownMs * 2, coolDownMaxMs);
    this.#quiet.set(key, { untilMs: this.#context.clock.nowMs() + span, coolDownMs: span });
    if (this.#quiet.size <= quietMax) return;
    for (const oldest of this.#quiet.keys()) {
      this.#quiet.delete(oldest);
      return;
    }
  }
}
