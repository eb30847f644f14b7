import type { BlockKey } from '../block-key.ts';
import type { SchedulerConnectorContext } from '../connector.ts';
import type { CircuitBreakerOptions, Permit } from '../tier/circuit-breaker.ts';
import { Guard } from '../tier/guarded-tier.ts';
import type { LookupAnswers } from '../tier/look-up.ts';
import type { Tier } from '../tier/tier.ts';
import { RankAnswers, type RankTier, rankTiers } from './rank-answers.ts';

/** How long a tier may take to answer after the abort. */
const abortGraceMs = 50;
/**
 * A key without an answer is not looked up again for `coolDownMs`, then for twice as long each time, up to the maximum.
 */
const coolDownMs = 1_000;
const coolDownMaxMs = 30_000;
/** How many keys in cool-down are remembered; the oldest are forgotten. */
const coolingKeysMax = 1 << 14;

export interface RunningLookup {
  /** The answers are known by then. */
  readonly deadlineMs: number;
  /** The answers are no longer needed. */
  cancel(): void;
}

/**
 * Asks the tiers of all ranks which blocks they have (`RankAnswers`). A key without an answer from a tier by the deadline is unknown; the
 * other answers count.
 *
 * The circuit breaker counts a look-up as failed if it ended at its deadline, or if a tier has answered no key. If a store
 * hangs for some keys only, the look-up waits until the deadline once per key and cool-down. No request waits for the probe
 * of an open breaker.
 */
export class TierLookups {
  readonly #ranks: readonly RankTier[];
  readonly #context: SchedulerConnectorContext;
  readonly #timeoutMs: number;
  readonly #guard: Guard;
  readonly #cooling = new Map<BlockKey, { readonly untilMs: number; readonly coolDownMs: number }>();
  #probe: RunningLookup | undefined;
  #isClosed: boolean = false;

  constructor(
    tiers: readonly Tier[],
    context: SchedulerConnectorContext,
    timeoutMs: number,
    breaker: CircuitBreakerOptions,
  ) {
    this.#ranks = rankTiers(tiers, context.identities);
    this.#context = context;
    this.#timeoutMs = timeoutMs;
    this.#guard = new Guard(context.clock, context.timers, breaker);
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
    const permit = this.#guard.breaker.tryAcquire();
    if (permit === undefined) return undefined;
    if (!permit.isProbe) return this.#ask(keys, permit, done);
    this.#probe = this.#ask(keys, permit, () => {
      this.#probe = undefined;
    });
    return undefined;
  }

  stats() {
    const { openedCount, openCount } = this.#guard.breaker;
    return { breakerOpened: { lookup: openedCount }, levels: { breakerOpen: { lookup: openCount } } };
  }

  close(): void {
    this.#isClosed = true;
    this.#probe?.cancel();
  }

  #ask(keys: readonly BlockKey[], permit: Permit, done: (answers: LookupAnswers) => void): RunningLookup {
    const answers = new RankAnswers(this.#ranks, keys);
    const askAll = async (signal: AbortSignal): Promise<void> => {
      await answers.ask(signal);
      if (!answers.isAnswered) throw new Error('a tier has answered no key');
    };
    const controller = new AbortController();
    // At the deadline, the tiers return the answers so far. A tier that ignores the abort is not waited for.
    const limits = { signal: controller.signal, timeoutMs: this.#timeoutMs, graceMs: abortGraceMs };
    this.#guard.start(permit, askAll, limits, {
      answered: () => {
        if (!controller.signal.aborted) done(this.#conclude(keys, answers));
      },
    });
    return {
      deadlineMs: this.#context.clock.nowMs() + this.#timeoutMs + 2 * abortGraceMs,
      cancel: () => controller.abort(),
    };
  }

  #conclude(keys: readonly BlockKey[], { all, isAnswered }: RankAnswers): LookupAnswers {
    for (const [i, answer] of all.entries()) {
      if (answer !== undefined) this.#cooling.delete(keys[i]!);
      // If a store has answered no key, the breaker stops the look-ups.
      else if (isAnswered) this.#startCoolDown(keys[i]!);
    }
    return all;
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
