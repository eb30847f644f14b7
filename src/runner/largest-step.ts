import { requestId, stepId, tokenCount } from '../core/ids.ts';
import type { KvGroupSpec } from '../core/kv-spec.ts';
import type { SequencePlan, StepPlan } from '../core/step.ts';
import { TokenBuffer } from '../core/tokens.ts';

export interface StepLimits {
  /** Tokens of a step. */
  readonly rowsMax: number;
  readonly sequencesMax: number;
  /** Of a sequence. */
  readonly tokensMax: number;
  /** Blocks of the pool, the null block included. */
  readonly blockCount: number;
}

/**
 * A step whose graph needs at least as much memory as any: the longest sequence with the largest chunk of its last tokens, and beside it as
 * many others of its length as may be sampled. It can be allocated, and not computed: all tokens are written to one block.
 */
export function largestStep(
  groups: readonly KvGroupSpec[],
  { rowsMax, sequencesMax, tokensMax, blockCount }: StepLimits,
): StepPlan {
  const others = Math.min(sequencesMax, rowsMax) - 1;
  const length = Math.min(tokensMax, (blockCount - 1) * Math.min(...groups.map(({ blockSize }) => blockSize)));
  const rows = Math.min(rowsMax, length);
  const tokens = new TokenBuffer(new Int32Array(length));
  const blockTables = groups.map(({ blockSize }) => {
    const ids = new Int32Array(Math.ceil(length / blockSize)).fill(1);
    return { ids, length: ids.length };
  });
  const lastTokens = (count: number): SequencePlan => ({
    requestId: requestId('largest step'),
    tokens,
    spans: [{ start: tokenCount(length - count), end: tokenCount(length) }],
    blockTables,
    // Only a sampler reads its fields.
    sample: {} as never,
  });
  return {
    stepId: stepId(0),
    tokenCount: tokenCount(rows + others),
    released: [],
    sequences: [lastTokens(rows), ...Array.from({ length: others }, () => lastTokens(1))],
  };
}
