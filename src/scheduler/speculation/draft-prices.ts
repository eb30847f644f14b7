import type { RequestState } from '../request-state.ts';
import type { StepLoad } from '../step-load.ts';
import { canGain, chooseDrafts, type DraftChances } from './choose-drafts.ts';
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
  /** Since the last step with drafts. */
  #stepsWithoutDrafts = 0;
  #priceOfOne: { readonly decodes: number; readonly price: number; uses: number } | undefined;
  /** Steps with drafts. */
  #measured = 0;
  /** The price of more drafts is not known: a step has at most twice as many as a measured step. */
  #draftsMax = DRAFTS_AT_FIRST;
  /** Milliseconds of drafting since the last step. */
  #draftingMs = 0;

  /** Called after each step, before `verified`. */
  observe(load: StepLoad, measuredMs: number | undefined): void {
    let ms = measuredMs;
    if (load.decodes > 0 && load.promptTokens === 0) {
      if (load.draftTokens > 0 || this.#draftingMs > 0) ms = this.#observeDrafts(load, ms);
      this.#budget.stepEnded();
      if (load.draftTokens === 0) {
        this.#plainSteps++;
        this.#stepsWithDrafts = 0;
      } else {
        this.#stepsTooExpensive = 0;
        this.#stepsWithDrafts++;
        this.#measured++;
      }
    }
    this.#draftingMs = 0;
    const isMeasured = this.#cost.observe(load, this.#isToLearn(load) ? ms : undefined);
    if (isMeasured) this.#draftsMax = Math.max(this.#draftsMax, DRAFTS_GROWTH * load.draftTokens);
  }

  /** Long after the last drafts, the model of steps without drafts is good, and most steps need not pay for learning from them. */
  #isToLearn({ draftTokens }: StepLoad): boolean {
    if (draftTokens > 0) this.#stepsWithoutDrafts = 0;
    else this.#stepsWithoutDrafts++;
    return this.#stepsWithoutDrafts < LEARNING_STEPS || this.#stepsWithoutDrafts % LEARNING_INTERVAL === 0;
  }

  /** A step with drafts, or drafting before it. Returns its duration without pauses of the process. */
  #observeDrafts(load: StepLoad, measuredMs: number | undefined): number | undefined {
    const { decodes, draftTokens } = load;
    const plainMs = this.#cost.msOf({ ...load, drafts: 0 });
    if (draftTokens === 0) {
      this.#budget.spentOnDrafting(this.#draftingMs / plainMs);
      return measuredMs;
    }
    const expectedMs = this.#cost.msOf({ ...load, drafts: draftTokens });
    // A pause is no property of drafts, and there may be too few steps with drafts to find that out later.
    const ms = measuredMs === undefined ? undefined : Math.min(measuredMs, PAUSE_RATIO * expectedMs);
    // A step that seems to cost almost nothing is noise, or the step without drafts is predicted too long.
    const lostMs = Math.max((ms ?? expectedMs) - plainMs, (expectedMs - plainMs) / 2, 0);
    const lost = (lostMs + this.#draftingMs) / plainMs;
    this.#budget.spentOnDrafts(lost, draftTokens, decodes);
    return ms;
  }

  /** For each request with drafts in the last step. `tokens`: output tokens that the step gave to it. */
  verified(state: RequestState, drafted: number, tokens: number): void {
    this.#budget.verified(state, drafted, tokens);
  }

  /** A draft model took this time before the next step. */
  spent(ms: number): void {
    this.#draftingMs += ms;
  }

  /** How many drafts of each request the step has. `proposals`: parallel to `decodes`. */
  choose(decodes: readonly RequestState[], proposals: readonly DraftChances[], rowsMax: number): number[] {
    if (this.isPlainStepDue) return proposals.map(() => 0);
    const priceOfOne = this.#knownPriceOfOne(decodes.length);
    if (priceOfOne !== undefined && !canGain(proposals, decodes.length, priceOfOne)) return proposals.map(() => 0);
    const drafted = decodes.filter((_, i) => proposals[i]!.chances.length > 0);
    const { msOf, typicalMsOf, gainMinMs } = this.of(drafted, decodes);
    const step = { decodes: decodes.length, rowsMax: Math.min(rowsMax, this.#draftsMax), gainMinMs };
    this.#priceOfOne = { decodes: decodes.length, price: msOf(1) / msOf(0), uses: 0 };
    const counts = chooseDrafts(proposals, { ...step, msOf });
    if (counts.every(isZero) && !chooseDrafts(proposals, { ...step, msOf: typicalMsOf }).every(isZero)) this.notTried();
    return counts;
  }

  /** Of a step with this many decodes and one draft, in steps without drafts. Undefined if it must be computed again. */
  #knownPriceOfOne(decodes: number): number | undefined {
    const known = this.#priceOfOne;
    if (known?.decodes !== decodes || ++known.uses >= PRICE_USES) return undefined;
    return known.price;
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
    const known = KNOWN_AFTER ** (this.#stepsTooExpensive * Math.max(KNOWN_BY / Math.max(this.#measured, 1), 1));
    const typicalMsOf = (drafts: number): number => this.#cost.typicalMsOf(rowsWith(drafts));
    // What was measured long ago, perhaps while the machine was busy, may be wrong.
    const believed = (ms: number, typicalMs: number): number => known * ms + (1 - known) * Math.min(ms, typicalMs);
    return {
      msOf: (drafts: number): number => {
        const ms = this.#cost.msOf(rowsWith(drafts));
        return known === 1 ? ms : believed(ms, typicalMsOf(drafts));
      },
      believed,
      typicalMsOf,
      gainMinMs: this.#budget.gainRequired(drafted) * this.#cost.msOf(rowsWith(0)),
    };
  }
}

const isZero = (count: number): boolean => count === 0;

/** The share of a price that is still believed after a step without drafts, if so many steps with drafts were measured, or more. */
const KNOWN_AFTER = 0.98;
const KNOWN_BY = 4;
/** A step with drafts counts as at most this multiple of its predicted duration. */
const PAUSE_RATIO = 2;
/** The price of one draft is computed in one of so many steps. */
const PRICE_USES = 8;
const LEARNING_STEPS = 128;
const LEARNING_INTERVAL = 8;
const FIRST_PLAIN_STEPS = 2;
const DRAFTS_AT_FIRST = 2;
const DRAFTS_GROWTH = 2;
const STEPS_WITH_DRAFTS_MAX = 64;
