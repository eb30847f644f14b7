import { type CompletionRequest, complete, settleAll } from '../../../src/cli/proof/completion.ts';
import type { Answers } from './subject.ts';

/** Longer than any answer takes, so that a program that hangs ends as an error. */
const answerTimeoutMs = 600_000;

/** All requests at once, over `/v1/completions`; undefined for a request that did not end as it should. */
export async function answersOf(
  origin: string,
  requests: readonly CompletionRequest[],
  signal: AbortSignal,
  onToken?: () => void,
): Promise<Answers> {
  const options = {
    origin: () => Promise.resolve(origin),
    signal: AbortSignal.any([signal, AbortSignal.timeout(answerTimeoutMs)]),
    onTokens: (count: number) => (count > 0 ? onToken?.() : undefined),
  };
  const outcomes = await settleAll(requests, false, (request) => complete(request, options));
  signal.throwIfAborted();
  return outcomes.map((outcome, i) => {
    if (outcome.status === 'rejected' || outcome.value.finishReason !== 'length') return undefined;
    const { tokens, logprobs, usage } = outcome.value;
    // vLLM counts only the tokens that were not computed.
    const computedTokens = usage.computedTokens || requests[i]!.prompt.length - usage.cachedTokens;
    return { tokens, logprobs, computedTokens };
  });
}
