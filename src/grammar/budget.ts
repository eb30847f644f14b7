/** How large a grammar may be. The time to compile it grows with these numbers, which do not depend on the machine. */
export interface GrammarLimits {
  /** Different sets of schemas that one value must match. */
  readonly schemas: number;
  readonly states: number;
  /** Transitions of automata that are computed, and other work in units of a few microseconds. */
  readonly steps: number;
}

/** What a client may send: about a second. */
export const grammarLimits: GrammarLimits = { schemas: 20_000, states: 30_000, steps: 200_000 };

/** What is compiled on the thread of the event loop: a few milliseconds. */
export const limitsAtOnce: GrammarLimits = { schemas: 500, states: 2_000, steps: 3_000 };

/** A grammar is larger than one of its limits. */
export class LimitError extends Error {}

/** An automaton would have more states, or need more steps, than it may. Fewer constraints on the same text may be possible. */
export class AutomatonTooLarge extends Error {}

/** The steps of one automaton. */
const automatonStepsMax = 50_000;

/** Counts what a grammar costs until one of its limits is reached. */
export class Budget {
  readonly limits: GrammarLimits;
  #schemas = 0;
  #steps = 0;
  #stepsMax = Infinity;

  constructor(limits: GrammarLimits = grammarLimits) {
    this.limits = limits;
  }

  /** @throws LimitError */
  spendSchema(): void {
    if (++this.#schemas > this.limits.schemas) throw new LimitError(`it has more than ${this.limits.schemas} schemas`);
  }

  /** @throws LimitError */
  spendSteps(steps: number): void {
    this.#steps += steps;
    if (this.#steps > this.limits.steps) throw new LimitError(`it needs more than ${this.limits.steps} steps`);
    if (this.#steps > this.#stepsMax) throw new AutomatonTooLarge();
  }

  /** Limits the steps of one automaton. */
  ofAutomaton<T>(run: () => T): T {
    const outer = this.#stepsMax;
    this.#stepsMax = Math.min(outer, this.#steps + automatonStepsMax);
    try {
      return run();
    } finally {
      this.#stepsMax = outer;
    }
  }

  get steps(): number {
    return this.#steps;
  }

  /** Whether no other thread has higher limits. */
  get isLargest(): boolean {
    return this.limits === grammarLimits;
  }

  /** A part that throws costs nothing, because the grammar may do without it. */
  attempt<T>(run: () => T): T {
    const [schemas, steps] = [this.#schemas, this.#steps];
    try {
      return run();
    } catch (error) {
      this.#schemas = schemas;
      this.#steps = steps;
      throw error;
    }
  }
}
