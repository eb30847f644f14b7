import type { StepLoad } from '../pace.ts';
import type { RequestState } from '../request-state.ts';
import { chooseDrafts, type DraftChances } from './choose-drafts.ts';
import { DraftBudget } from './draft-budget.ts';
import { DraftCost, type DraftRows } from './draft-cost.ts';

/** What drafts cost in a step of these decodes, and which of them are worth it. Every kind of speculator has one. */
export class DraftPrices {
  readonly #cost = new DraftCost();
  readonly #budget = new DraftBudget();
  #plainSteps = 0;
  /** Since the last step without drafts. */
  #stepsWithDrafts = 0;
  /** Since the last step with drafts: the steps for which drafts were too expensive. */
  #stepsTooExpensive = 0;
  /** Milliseconds for guesses since the last step. */
  #guessMs = 0;

  /** Called after each step, before `verified`. */
  observe(load: StepLoad, measuredMs: number | undefined): void {
    let ms = measuredMs;
    if (load.decodes > 0 && load.promptTokens === 0) {
      if (load.draftTokens > 0 || this.#stepsWithDrafts > 0 || this.#guessMs > 0) ms = this.#observeDrafts(load, ms);
      this.#budget.stepEnded();
      if (load.draftTokens === 0) {
        this.#plainSteps++;
        this.#stepsWithDrafts = 0;
      } else {
        this.#stepsTooExpensive = 0;
        this.#stepsWithDrafts++;
      }
    }
    this.#guessMs = 0;
    this.#cost.observe(load, ms);
  }

  /** A step with drafts or guesses, or after a step with drafts. Returns its duration without pauses of the process. */
  #observeDrafts(load: StepLoad, measuredMs: number | undefined): number | undefined {
    const { decodes, draftTokens } = load;
    const plainMs = this.#cost.plainMs(load);
    const expectedMs = this.#cost.msOf({ ...load, drafts: draftTokens });
    // A pause is no property of drafts, and there may be too few steps with drafts to find that out later.
    const ms =
      draftTokens > 0 && measuredMs !== undefined ? Math.min(measuredMs, PAUSE_RATIO * expectedMs) : measuredMs;
    const lost = ((ms ?? expectedMs) + this.#guessMs - plainMs) / plainMs;
    if (draftTokens > 0) this.#budget.spentOnDrafts(lost, draftTokens, decodes);
    else this.#budget.spentAfterDrafts(lost);
    return ms;
  }

  /** For each request with drafts in the last step. `tokens`: output tokens that the step gave to it. */
  verified(state: RequestState, drafted: number, tokens: number): void {
    this.#budget.verified(state, drafted, tokens);
  }

  /** A draft model took this time before the next step. */
  spent(ms: number): void {
    this.#guessMs += ms;
  }

  /** How many drafts of each request the step has. `proposals`: parallel to `decodes`. */
  choose(decodes: readonly RequestState[], proposals: readonly DraftChances[], rowsMax: number): number[] {
    if (this.isPlainStepDue) return proposals.map(() => 0);
    const drafted = decodes.filter((_, i) => proposals[i]!.chances.length > 0);
    const { msOf, typicalMsOf, gainMinMs } = this.of(drafted, decodes);
    const step = { decodes: decodes.length, rowsMax, gainMinMs };
    const counts = chooseDrafts(proposals, { ...step, msOf });
    if (counts.every(isZero) && !chooseDrafts(proposals, { ...step, msOf: typicalMsOf }).every(isZero)) this.notTried();
    return counts;
  }

  /** On a typical machine, there would be drafts. So after many such steps, prices are measured again. */
  notTried(): void {
    this.#stepsTooExpensive++;
  }

  /** Steps without drafts must be measured too, at first and from time to time, because drafts are compared with them. */
  get isPlainStepDue(): boolean {
    if (this.#plainSteps < FIRST_PLAIN_STEPS) return true;
    return this.#stepsWithDrafts >= Math.min(2 * this.#plainSteps, STEPS_WITH_DRAFTS_MAX);
  }

  /** The price of a step with so many drafts, and how much they must gain, in milliseconds of decoding. */
  of(drafted: readonly RequestState[], decodes: readonly RequestState[]) {
    let decodeContext = 0;
    for (const { tokens } of decodes) decodeContext += tokens.length;
    const perDraft = decodeContext / decodes.length;
    const rowsWith = (drafts: number): DraftRows => ({
      decodes: decodes.length,
      decodeContext,
      drafts,
      draftContext: drafts * perDraft,
    });
    const known = KNOWN_AFTER ** this.#stepsTooExpensive;
    const typicalMsOf = (drafts: number): number => this.#cost.typicalPriceOf(rowsWith(drafts));
    // What was measured long ago, perhaps while the machine was busy, may be wrong.
    const believed = (ms: number, typicalMs: number): number => known * ms + (1 - known) * Math.min(ms, typicalMs);
    return {
      msOf: (drafts: number): number => {
        const ms = this.#cost.priceOf(rowsWith(drafts));
        return known === 1 ? ms : believed(ms, typicalMsOf(drafts));
      },
      believed,
      typicalMsOf,
      gainMinMs: this.#budget.debtOf(drafted) * this.#cost.plainMs(rowsWith(0)),
    };
  }
}

const isZero = (count: number): boolean => count === 0;

/** The share of a price that is still believed after a step without drafts. */
const KNOWN_AFTER = 0.98;
/** A step with drafts counts as at most this multiple of its predicted duration. */
const PAUSE_RATIO = 2;
const FIRST_PLAIN_STEPS = 2;
const STEPS_WITH_DRAFTS_MAX = 64;
