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
 * A step whose graph needs as much memory as any: the longest sequence with a chunk of its last tokens, and as many others with one token as
 * may be sampled. It can be allocated, and not computed: all tokens are written to one block.
 */
export function largestStep(
  groups: readonly KvGroupSpec[],
  { rowsMax, sequencesMax, tokensMax, blockCount }: StepLimits,
): StepPlan {
  const others = Math.min(sequencesMax, rowsMax) - 1;
  const length = Math.min(tokensMax, (blockCount - 1) * Math.min(...groups.map(({ blockSize }) => blockSize)));
  const rows = Math.min(rowsMax - others, length);
  const sequenceOf = (start: number, end: number): SequencePlan => ({
    requestId: requestId('largest step'),
    tokens: new TokenBuffer(new Int32Array(end)),
    spans: [{ start: tokenCount(start), end: tokenCount(end) }],
    blockTables: groups.map(({ blockSize }) => {
      const ids = new Int32Array(Math.ceil(end / blockSize)).fill(1);
      return { ids, length: ids.length };
    }),
    // Only a sampler reads its fields.
    sample: {} as never,
  });
  return {
    stepId: stepId(0),
    tokenCount: tokenCount(rows + others),
    released: [],
    sequences: [sequenceOf(length - rows, length), ...Array.from({ length: others }, () => sequenceOf(0, 1))],
  };
}
