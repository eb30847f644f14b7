import { assert } from '../src/base/assert.ts';
import type { RequestId } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import { hasMoreLayers, spansOfTokens } from '../src/core/step.ts';
import type { ScheduledStep } from '../src/scheduler/contract.ts';

/**
 * I3 for offloading, if the tier keeps every block that it is offered and no block becomes invalid. Then a request
 * computes no token twice whose blocks it has filled in all groups. It was preempted meanwhile, perhaps often. Either the
 * pool still has such a block, or the tier. The checker sees only plans. It counts the tokens of each request.
 *
 * For models whose groups all keep all blocks: in other groups, blocks are released that no later token reads.
 */
export class ResumeChecker {
  readonly #spec: KvCacheSpec;
  readonly #isChecked: boolean;
  /** The tokens that each request has computed. */
  readonly #computed = new Map<RequestId, Set<number>>();

  constructor(spec: KvCacheSpec) {
    this.#spec = spec;
    this.#isChecked = spec.groups.every(({ kind }) => kind === 'full');
  }

  planned({ sequences }: ScheduledStep): void {
    if (!this.#isChecked) return;
    for (const sequence of sequences) {
      const { requestId, tokens } = sequence;
      if (hasMoreLayers(sequence, this.#spec)) continue;
      const spans = spansOfTokens(sequence, tokens.length);
      const before = this.#computed.get(requestId);
      for (const { start, end } of spans)
        for (let token: number = start; token < end && before !== undefined; token++)
          // The last token is computed in any case, for its logits.
          if (token < tokens.length - 1 && this.#isFilled(before, token))
            assert(false, `I3: ${requestId} computes token ${token} again, though the tier was offered its blocks`);
      const computed = before ?? new Set();
      this.#computed.set(requestId, computed);
      for (const { start, end } of spans) for (let token: number = start; token < end; token++) computed.add(token);
    }
  }

  /** Whether the request has computed all tokens of the token's blocks. */
  #isFilled(computed: ReadonlySet<number>, token: number): boolean {
    for (const { blockSize } of this.#spec.groups) {
      const first = token - (token % blockSize);
      for (let other = first; other < first + blockSize; other++) if (!computed.has(other)) return false;
    }
    return true;
  }
}
