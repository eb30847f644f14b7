import type { JsonObject } from '../../base/json.ts';
import type { Prng } from '../../base/prng.ts';
import type { BlockKey } from '../../connector/block-key.ts';

/** One row of the bench: a store, and what goes wrong with it. */
export interface RecoveryScenario {
  readonly name: string;
  /** Absent: nothing is stored. `full`: everything that could be; `empty`: nothing yet; `killed`: what a killed writer left. */
  readonly store?: 'full' | 'empty' | 'killed';
  /** What goes wrong, drawn anew for each run. `stored`: the blocks of the workload's prompts that the store has. */
  readonly faults?: (prng: Prng, stored: readonly BlockKey[]) => PlannedFaults;
  /** Stored bytes are changed: the run gets a copy of the store. */
  readonly spoilsStore?: boolean;
}

export interface PlannedFaults {
  /** For `fault_injection`. */
  readonly rules: readonly JsonObject[];
  /**
   * The blocks that the rules take away: all others must arrive. Absent where time decides what is lost (a deadline, a circuit
   * breaker): then the witness at the store says what arrived.
   */
  readonly lost?: ReadonlySet<BlockKey>;
}

/** Faults one after the other. `probability`: of those that strike by chance. */
export function recoveryScenarios(probability: number): readonly RecoveryScenario[] {
  const some = (prng: Prng, stored: readonly BlockKey[]): BlockKey[] => {
    const struck = stored.filter(() => prng.chance(probability));
    return struck.length > 0 || stored.length === 0 ? struck : [prng.pick(stored)];
  };
  const taking = (fault: string) => (prng: Prng, stored: readonly BlockKey[]) => {
    const keys = some(prng, stored);
    return { rules: [{ fault, keys }], lost: new Set(keys) };
  };
  return [
    { name: 'no store' },
    { name: 'no fault', store: 'full' },
    { name: `missing, p = ${probability}`, store: 'full', faults: taking('missing') },
    { name: `bit flip, p = ${probability}`, store: 'full', faults: taking('bitFlip'), spoilsStore: true },
    {
      name: `latency spike of 200 ms, p = ${probability}`,
      store: 'full',
      faults: (prng, stored) => ({ rules: [{ fault: 'slow', keys: some(prng, stored), delay_ms: 200 }] }),
    },
    {
      name: 'hang, two blocks',
      store: 'full',
      faults: () => ({ rules: [{ fault: 'hung', limit: 2 }] }),
    },
    {
      name: 'store down for 20 loads',
      store: 'full',
      faults: () => ({ rules: [{ fault: 'error', limit: 20 }] }),
    },
    {
      name: 'disk full (injected)',
      store: 'empty',
      faults: () => ({ rules: [{ fault: 'full', on: 'store' }], lost: new Set() }),
    },
    { name: 'kill -9 of a writer', store: 'killed' },
  ];
}
