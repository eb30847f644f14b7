import { assertDefined } from '../../base/assert.ts';
import { KvasirError } from '../../base/errors.ts';
import type { PromptResult, SequenceFailure, SequencePlan, TokenLogprobs } from '../../core/step.ts';
import type { Batch } from '../batch.ts';
import type { HeadRows } from './head-rows.ts';
import type { PromptHeads } from './prompt-heads.ts';
import type { Sampler } from './sampler.ts';

export interface PromptResults {
  readonly prompts: readonly PromptResult[];
  readonly failures: readonly SequenceFailure[];
}

/**
 * The results of the prompt rows of a batch: hidden states for embeddings, or logprobs of the next tokens. A row of logits
 * exists only until its logprobs are known.
 */
export async function promptResults(
  { sequences, promptRows }: Batch,
  hidden: Float32Array,
  heads: Pick<PromptHeads, 'rows' | 'pooled'>,
  sampler: Sampler,
): Promise<PromptResults> {
  const width = hidden.length / promptRows.length;
  const prompts: PromptResult[] = [];
  const failures: SequenceFailure[] = [];
  const toPool: { readonly sequence: number; readonly rows: Float32Array }[] = [];
  for (const [sequence, { plan, promptIndex }] of sequences.entries()) {
    const { prompt } = plan;
    if (prompt === undefined || promptIndex === undefined) continue;
    const rows = hidden.subarray(promptIndex * width, (promptIndex + prompt.end - prompt.start) * width);
    if (prompt.topCount === undefined) {
      if (heads.pooled === undefined) {
        // The next step writes the graph's memory again.
        prompts.push({ sequence, hidden: rows.slice() });
      } else if (prompt.end === plan.tokens.length) toPool.push({ sequence, rows });
      continue;
    }
    try {
      prompts.push({
        sequence,
        logprobs: await logprobsOf(plan, prompt.start, prompt.topCount, {
          ...{ rows, sampler },
          head: assertDefined(heads.rows, 'a model that makes text has an output head'),
        }),
      });
    } catch (error) {
      // Values that overflow F16 end only the request whose prompt causes them.
      if (!(error instanceof KvasirError)) throw error;
      failures.push({ sequence, error });
    }
  }
  if (heads.pooled !== undefined && toPool.length > 0) {
    const vectors = await heads.pooled.of(toPool.map(({ rows }) => rows));
    for (const [i, { sequence }] of toPool.entries()) prompts.push({ sequence, hidden: vectors[i]! });
  }
  return { prompts, failures };
}

interface Rows {
  /** Hidden states of the positions from `start` on. */
  readonly rows: Float32Array;
  readonly head: HeadRows;
  readonly sampler: Sampler;
}

async function logprobsOf(
  { tokens, adapter }: SequencePlan,
  start: number,
  topCount: number,
  { rows, head, sampler }: Rows,
): Promise<TokenLogprobs[]> {
  const logprobs: TokenLogprobs[] = [];
  const visit = (index: number, logits: Float32Array): void => {
    const position = start + index + 1;
    logprobs.push(sampler.logprobsOf(logits, tokens.at(position), topCount, position));
  };
  await head.each(rows, visit, adapter);
  return logprobs;
}
