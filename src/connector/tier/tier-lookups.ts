import type { Timer } from '../../base/timers.ts';
import type { BlockKey } from '../block-key.ts';
import type { SchedulerConnectorContext } from '../connector.ts';
import { hasKvOn } from './blocks-of-rank.ts';
import { CircuitBreaker, type CircuitBreakerOptions, type Permit } from './circuit-breaker.ts';
import type { LookupAnswers } from './look-up.ts';
import type { Tier } from './tier.ts';
import { countsOfBreaker } from './tier-counters.ts';

/** How long a tier may take to answer after the abort. */
const abortGraceMs = 50;
/**
 * A key without an answer is not looked up again for `coolDownMs`, then for twice as long each time, up to the maximum.
 */
const coolDownMs = 1_000;
const coolDownMaxMs = 30_000;
/** How many keys in cool-down are remembered; the oldest are forgotten. */
const coolingKeysMax = 1 << 14;

/** The tier of one rank. */
interface RankTier {
  readonly tier: Tier;
  readonly hasKv: (key: BlockKey) => boolean;
}

export interface RunningLookup {
  /** The answers are known by then. */
  readonly deadlineMs: number;
  /** The answers are no longer needed. */
  cancel(): void;
}

/**
 * Asks the tiers of all ranks which blocks they have. A block is stored if all ranks have their part, and missing if one
 * rank lacks its part. A rank without KV in a block is not asked for it. A key without an answer from a tier by the deadline is unknown; the other answers count.
 *
 * The circuit breaker counts a look-up as failed if it ended at its deadline, or if a tier has answered no key. If a store
 * hangs for some keys only, the look-up waits until the deadline once per key and cool-down. No request waits for the probe
 * of an open breaker.
 */
export class TierLookups {
  readonly #ranks: readonly RankTier[];
  readonly #context: SchedulerConnectorContext;
  readonly #timeoutMs: number;
  readonly #breaker: CircuitBreaker;
  readonly #cooling = new Map<BlockKey, { readonly untilMs: number; readonly coolDownMs: number }>();
  #probe: RunningLookup | undefined;
  #isClosed: boolean = false;

  constructor(
    tiers: readonly Tier[],
    context: SchedulerConnectorContext,
    timeoutMs: number,
    breaker: CircuitBreakerOptions,
  ) {
    this.#ranks = tiers.map((tier, rank) => ({ tier, hasKv: hasKvOn(context.identities[rank]!) }));
    this.#context = context;
    this.#timeoutMs = timeoutMs;
    this.#breaker = new CircuitBreaker(context.clock, breaker);
  }

  /** Whether the key recently had no answer, so that it should not be looked up now. */
  isCoolingDown(key: BlockKey): boolean {
    const cooling = this.#cooling.get(key);
    return cooling !== undefined && this.#context.clock.nowMs() < cooling.untilMs;
  }

  /**
   * Calls `done` once, asynchronously, unless the look-up is cancelled. Undefined: the breaker is open, or this is
   * closed. If the breaker is half open, these keys are its probe, which runs in the background.
   */
  start(keys: readonly BlockKey[], done: (answers: LookupAnswers) => void): RunningLookup | undefined {
    if (this.#isClosed) return undefined;
    const isProbe = this.#breaker.state !== 'closed';
    const permit = this.#breaker.tryAcquire();
    if (permit === undefined) return undefined;
    if (!isProbe) return this.#ask(keys, permit, done);
    this.#probe = this.#ask(keys, permit, () => {
      this.#probe = undefined;
    });
    return undefined;
  }

  counters(): Readonly<Record<string, number>> {
    return countsOfBreaker('lookup', this.#breaker);
  }

  close(): void {
    this.#isClosed = true;
    this.#probe?.cancel();
  }

  #ask(keys: readonly BlockKey[], permit: Permit, done: (answers: LookupAnswers) => void): RunningLookup {
    const { clock, timers } = this.#context;
    const controller = new AbortController();
    const byRank: LookupAnswers[] = this.#ranks.map(({ hasKv }) => keys.map((key) => (hasKv(key) ? undefined : true)));
    /** Ranks that had no key to answer, and ranks that answered one. */
    const answered = new Set<number>();
    let open = this.#ranks.length;
    let isOver = false;
    let isLate = false;
    let timer: Timer;
    const end = (): void => {
      if (isOver) return;
      isOver = true;
      timer.cancel();
      const isAnswered = answered.size === this.#ranks.length;
      if (isAnswered && !isLate) permit.succeed();
      else permit.fail();
      done(this.#conclude(keys, byRank, isAnswered));
    };
    // At the deadline, the tiers return the answers so far. A tier that ignores the abort is not waited for.
    timer = timers.after(this.#timeoutMs, () => {
      isLate = true;
      timer = timers.after(abortGraceMs, end);
      controller.abort();
    });
    const ask = async ({ tier, hasKv }: RankTier, rank: number): Promise<void> => {
      const own = keys.filter(hasKv);
      try {
        const answers = own.length === 0 ? [] : await tier.has(own, controller.signal);
        if (own.length === 0 || answers.some((answer) => answer !== undefined)) answered.add(rank);
        let next = 0;
        byRank[rank] = own.length === keys.length ? answers : keys.map((key) => (hasKv(key) ? answers[next++] : true));
      } catch {
        // This tier has no answers: the breaker counts a failure.
      }
      if (--open === 0) end();
    };
    for (const [rank, tier] of this.#ranks.entries()) void ask(tier, rank);
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

  #conclude(keys: readonly BlockKey[], byRank: readonly LookupAnswers[], isAnswered: boolean): LookupAnswers {
    return keys.map((key, i) => {
      const answers = byRank.map((ofRank) => ofRank[i]);
      const answer = answers.includes(false) ? false : answers.includes(undefined) ? undefined : true;
      if (answer !== undefined) this.#cooling.delete(key);
      // If a store has answered no key, the breaker stops the look-ups.
      else if (isAnswered) this.#startCoolDown(key);
      return answer;
    });
  }

  #startCoolDown(key: BlockKey): void {
    const before = this.#cooling.get(key);
    this.#cooling.delete(key);
    const span = before === undefined ? coolDownMs : Math.min(before.coolDownMs * 2, coolDownMaxMs);
    this.#cooling.set(key, { untilMs: this.#context.clock.nowMs() + span, coolDownMs: span });
    if (this.#cooling.size <= coolingKeysMax) return;
    for (const oldest of this.#cooling.keys()) {
      this.#cooling.delete(oldest);
      return;
    }
  }
}
