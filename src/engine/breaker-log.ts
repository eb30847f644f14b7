import { ownValue } from '../base/by-name.ts';
import type { ConnectorStats } from '../connector/connector-stats.ts';
import type { EngineEvent } from './contract.ts';

/**
 * Reports when the circuit breaker of a tier opens, and when it is closed again. A tier fails quietly otherwise: requests
 * compute again what it would have had.
 */
export class BreakerLog {
  readonly #onEvent: ((event: EngineEvent) => void) | undefined;
  #open: ReadonlyMap<string, OpenBreaker> = new Map();
  #checkedMs = -Infinity;

  constructor(onEvent: ((event: EngineEvent) => void) | undefined) {
    this.#onEvent = onEvent;
  }

  /** Called after each step. Reads the statistics at most once a second, because there are many. */
  update(nowMs: number, read: () => ConnectorStats): void {
    if (this.#onEvent === undefined || nowMs < this.#checkedMs + intervalMs) return;
    this.#checkedMs = nowMs;
    const open = new Map(openBreakersOf(read()).map((breaker) => [`${breaker.tier} ${breaker.call}`, breaker]));
    for (const [name, breaker] of open) if (!this.#open.has(name)) this.#report(breaker, true);
    for (const [name, breaker] of this.#open) if (!open.has(name)) this.#report(breaker, false);
    this.#open = open;
  }

  #report({ tier, call, failed }: OpenBreaker, isOpen: boolean): void {
    const failures = Object.entries(failed).map(([reason, count]) => `${reason} ${count}`);
    const of = tier === undefined ? 'The KV store' : `The tier ${tier}`;
    const message = isOpen
      ? `${of} fails: it gets no ${plurals[call]} until a probe succeeds. KV that it would have had is computed again.`
      : `${of} works again: it gets ${plurals[call]}.`;
    const fields = {
      ...(tier === undefined ? {} : { tier }),
      ...(isOpen && failures.length > 0 ? { failures: failures.join(', ') } : {}),
    };
    this.#onEvent?.({ level: 'warn', message, fields });
  }
}

interface OpenBreaker {
  /** Undefined: the only tier. */
  readonly tier: string | undefined;
  readonly call: keyof typeof plurals;
  /** Failures of these calls since the start, by reason. */
  readonly failed: Readonly<Record<string, number>>;
}

function openBreakersOf({ tiers = {}, levels = {} }: ConnectorStats): OpenBreaker[] {
  const ofOnly = calls.filter((call) => (levels.breakerOpen?.[call] ?? 0) > 0);
  const ofSeveral = Object.entries(levels.tiers ?? {}).flatMap(([tier, { breakerOpen }]) =>
    calls
      .filter((call) => (breakerOpen?.[call] ?? 0) > 0)
      .map((call): OpenBreaker => {
        const { loadFailed = {}, storeFailed = {} } = ownValue(tiers, tier) ?? {};
        return { tier, call, failed: call === 'load' ? loadFailed : call === 'store' ? storeFailed : {} };
      }),
  );
  return [...ofOnly.map((call): OpenBreaker => ({ tier: undefined, call, failed: {} })), ...ofSeveral];
}

const intervalMs = 1000;
const plurals = { lookup: 'look-ups', load: 'loads', store: 'stores', save: 'saves' } as const;
const calls = ['lookup', 'load', 'store', 'save'] as const;
