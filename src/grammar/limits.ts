/** How large a compiled grammar may be. The time to compile it grows with these numbers. */
export interface GrammarLimits {
  /** Schemas are visited once for each place that uses them; more places are refused. */
  readonly schemas: number;
  readonly states: number;
}

/** What a client may send: about 50 ms. */
export const grammarLimits: GrammarLimits = { schemas: 20_000, states: 30_000 };

/** What is compiled on the thread of the event loop: a few milliseconds. */
export const limitsAtOnce: GrammarLimits = { schemas: 500, states: 2_000 };
