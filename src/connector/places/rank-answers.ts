import { AssertionError } from '../../base/assert.ts';
import { type Deadline, withDeadline } from '../../base/deadlines.ts';
import type { BlockKey } from '../block-key.ts';
import type { KvIdentity } from '../connector.ts';
import { hasKvOn } from '../tier/blocks-of-rank.ts';
import type { LookupAnswers } from '../tier/look-up.ts';
import type { Tier } from '../tier/tier.ts';

/** The tier of one rank, and the blocks in which the rank has KV. */
export interface RankTier {
  readonly tier: Tier;
  readonly hasKv: (key: BlockKey) => boolean;
}

/** `tiers`: one per rank. */
export const rankTiers = (tiers: readonly Tier[], identities: readonly KvIdentity[]): readonly RankTier[] =>
  tiers.map((tier, rank) => ({ tier, hasKv: hasKvOn(identities[rank]!) }));

/**
 * The answers of the tiers of all ranks for some blocks. A block is stored if all ranks have their part, and missing if one rank lacks
 * its part. A rank without KV in a block is not asked for it. Answers that are not there yet, or were an error, are unknown.
 */
export class RankAnswers {
  readonly #ranks: readonly RankTier[];
  readonly #keys: readonly BlockKey[];
  readonly #byRank: LookupAnswers[];
  /** Ranks that had no key to answer, and ranks that answered one. */
  readonly #answered = new Set<number>();

  constructor(ranks: readonly RankTier[], keys: readonly BlockKey[]) {
    this.#ranks = ranks;
    this.#keys = keys;
    this.#byRank = ranks.map(({ hasKv }) => keys.map((key) => (hasKv(key) ? undefined : true)));
  }

  /** Asks all ranks once. Rejects only because of a bug. Resolves after the abort if the tiers obey it. */
  async ask(signal: AbortSignal): Promise<void> {
    await Promise.all(this.#ranks.map((of, rank) => this.#ask(of, rank, signal)));
  }

  /** The answers at the deadline, or when all ranks have answered. A tier that ignores the abort is not waited for. */
  async within(deadline: Deadline): Promise<LookupAnswers> {
    try {
      await withDeadline(deadline, (signal) => this.ask(signal));
    } catch (error) {
      if (error instanceof AssertionError) throw error;
    }
    return this.all;
  }

  /** Whether each rank has answered. */
  get isAnswered(): boolean {
    return this.#answered.size === this.#ranks.length;
  }

  /** As far as they are known. */
  get all(): LookupAnswers {
    return this.#keys.map((_, i) => {
      const ofRanks = this.#byRank.map((ofRank) => ofRank[i]);
      return ofRanks.includes(false) ? false : ofRanks.includes(undefined) ? undefined : true;
    });
  }

  async #ask({ tier, hasKv }: RankTier, rank: number, signal: AbortSignal): Promise<void> {
    const own = this.#keys.filter(hasKv);
    try {
      const answers = own.length === 0 ? [] : await tier.has(own, signal);
      if (own.length === 0 || answers.some((answer) => answer !== undefined)) this.#answered.add(rank);
      let next = 0;
      this.#byRank[rank] = this.#keys.map((key) => (hasKv(key) ? answers[next++] : true));
    } catch (error) {
      // Otherwise this rank has no answers.
      if (error instanceof AssertionError) throw error;
    }
  }
}
