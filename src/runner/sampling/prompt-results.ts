import { KvasirError } from '../../base/errors.ts';
import type { PromptResult, SequenceFailure, SequencePlan, TokenLogprobs } from '../../core/step.ts';
import type { Batch } from '../batch.ts';
import type { HeadRows } from './head-rows.ts';
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
  { head, sampler }: { readonly head: HeadRows; readonly sampler: Sampler },
): Promise<PromptResults> {
  const width = hidden.length / promptRows.length;
  const prompts: PromptResult[] = [];
  const failures: SequenceFailure[] = [];
  for (const [sequence, { plan, promptIndex }] of sequences.entries()) {
    const { prompt } = plan;
    if (prompt === undefined || promptIndex === undefined) continue;
    const rows = hidden.subarray(promptIndex * width, (promptIndex + prompt.end - prompt.start) * width);
    if (prompt.topCount === undefined) {
      // The next step writes the graph's memory again.
      prompts.push({ sequence, hidden: rows.slice() });
      continue;
    }
    try {
      prompts.push({
        sequence,
        logprobs: await logprobsOf(plan, prompt.start, prompt.topCount, { rows, head, sampler }),
      });
    } catch (error) {
      // Values that overflow F16 end only the request whose prompt causes them.
      if (!(error instanceof KvasirError)) throw error;
      failures.push({ sequence, error });
    }
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
  { tokens }: SequencePlan,
  start: number,
  topCount: number,
  { rows, head, sampler }: Rows,
): Promise<TokenLogprobs[]> {
  const logprobs: TokenLogprobs[] = [];
  await head.each(rows, (index, logits) => {
    const position = start + index + 1;
    logprobs.push(sampler.logprobsOf(logits, tokens.at(position), topCount, position));
  });
  return logprobs;
}
