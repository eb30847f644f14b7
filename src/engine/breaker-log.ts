import type { EngineEvent } from './contract.ts';

type Counters = Readonly<Record<string, number>>;

/**
 * Reports when the circuit breaker of a tier opens, and when it is closed again. A tier fails quietly otherwise: requests
 * compute again what it would have had.
 */
export class BreakerLog {
  readonly #onEvent: ((event: EngineEvent) => void) | undefined;
  /** Names of the levels of open breakers: `now.<tier>.breakerOpen.<call>`. */
  #open: ReadonlySet<string> = new Set();
  #checkedMs = -Infinity;

  constructor(onEvent: ((event: EngineEvent) => void) | undefined) {
    this.#onEvent = onEvent;
  }

  /** Called after each step. Reads the counters at most once a second, because there are many. */
  update(nowMs: number, counters: () => Counters): void {
    if (this.#onEvent === undefined || nowMs < this.#checkedMs + intervalMs) return;
    this.#checkedMs = nowMs;
    const counts = counters();
    const open = new Set(Object.keys(counts).filter((name) => breaker.test(name) && counts[name]! > 0));
    for (const name of open) if (!this.#open.has(name)) this.#report(name, counts, true);
    for (const name of this.#open) if (!open.has(name)) this.#report(name, counts, false);
    this.#open = open;
  }

  #report(name: string, counts: Counters, isOpen: boolean): void {
    const [, tier = '', call = ''] = breaker.exec(name) ?? [];
    const failures = failuresOf(`tier.${tier}.${call}Failed.`, counts);
    const of = tier === '' ? 'The KV store' : `The tier ${tier}`;
    const message = isOpen
      ? `${of} fails: it gets no ${plurals[call]} until a probe succeeds. KV that it would have had is computed again.`
      : `${of} works again: it gets ${plurals[call]}.`;
    const fields = { ...(tier === '' ? {} : { tier }), ...(isOpen && failures !== '' ? { failures } : {}) };
    this.#onEvent?.({ level: 'warn', message, fields });
  }
}

/** Failures since the start by reason, such as `timedOut 5`. */
function failuresOf(prefix: string, counts: Counters): string {
  const names = Object.keys(counts).filter((name) => name.startsWith(prefix) && counts[name]! > 0);
  return names.map((name) => `${name.slice(prefix.length)} ${counts[name]}`).join(', ');
}

const intervalMs = 1000;
const breaker = /^now\.(?:(.+)\.)?breakerOpen\.(lookup|load|store|save)$/;
const plurals: Readonly<Record<string, string>> = {
  lookup: 'look-ups',
  load: 'loads',
  store: 'stores',
  save: 'saves',
};
