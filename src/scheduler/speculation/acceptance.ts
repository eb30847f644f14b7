import { MATCH_LENGTH_MAX } from './text-index.ts';

/** What is expected before the first observations, and how many observations it counts as. */
export interface AcceptancePrior {
  probability(length: number): number;
  readonly weight: number;
  /** The prior is forgotten as observations come. Else it always counts. */
  readonly isForgotten: boolean;
}

/**
 * How probable it is that the token after a match is the next token, by the length of the match. Learned from the drafts
 * that steps have verified, and slowly forgotten.
 */
export class Acceptance {
  readonly #prior: AcceptancePrior;
  readonly #priorWeight = new Float64Array(CLASSES);
  readonly #accepted = new Float64Array(CLASSES);
  readonly #verified = new Float64Array(CLASSES);

  constructor(prior: AcceptancePrior) {
    this.#prior = prior;
    this.#priorWeight.fill(prior.weight);
  }

  /** In [0, 1] if all observations were of shares of 1, else perhaps more. */
  probability(length: number): number {
    const at = classOf(length);
    const weight = this.#priorWeight[at]!;
    return (this.#accepted[at]! + weight * this.#prior.probability(length)) / (this.#verified[at]! + weight);
  }

  /**
   * `share`: if the token followed only a share of the earlier occurrences, it is accepted as often as other tokens times this share. So
   * what is learned from it counts less.
   */
  observe(length: number, isAccepted: boolean, share = 1): void {
    const at = classOf(length);
    this.#accepted[at] = KEPT * this.#accepted[at]! + (isAccepted ? 1 : 0);
    this.#verified[at] = KEPT * this.#verified[at]! + share;
    if (this.#prior.isForgotten) this.#priorWeight[at]! *= KEPT;
  }

  /** A match of this length was not tried. So after many of them, one is tried again. */
  forget(length: number): void {
    const at = classOf(length);
    this.#accepted[at]! *= KEPT_UNTRIED;
    this.#verified[at]! *= KEPT_UNTRIED;
    this.#priorWeight[at]! += (1 - KEPT_UNTRIED) * (this.#prior.weight - this.#priorWeight[at]!);
  }
}

/** Lengths 1, 2, 3, 4, and then two classes per doubling. */
function classOf(length: number): number {
  if (length <= 4) return Math.max(length, 1) - 1;
  return Math.min(Math.floor(2 * Math.log2(length)) - 1, CLASSES - 1);
}

const CLASSES = 2 * Math.log2(MATCH_LENGTH_MAX);
/** The share of the knowledge that a further observation keeps. */
const KEPT = 0.95;
const KEPT_UNTRIED = 0.995;

/** Before any observation: long matches are mostly quotations. */
export const typicalAcceptance = (length: number): number => 1 - 0.8 / Math.sqrt(length + 0.5);
