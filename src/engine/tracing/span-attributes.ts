import type { Attributes } from '@opentelemetry/api';
import { byEntries, ownValue } from '../../base/by-name.ts';
import type { RequestStats } from '../../core/request.ts';
import type { CompletionTimes, EndedCompletion } from '../observer.ts';

/** The attributes of a completion: vLLM's, and those of its KV. Times are seconds, as in vLLM. */
export function completionAttributes(completion: EndedCompletion, modelName: string): Attributes {
  const { request, index, finishReason, stats } = completion;
  const { params } = request;
  return {
    'gen_ai.request.id': nameOf(request.id),
    'gen_ai.request.n': params.n,
    'gen_ai.request.max_tokens': params.maxTokens,
    'gen_ai.request.temperature': params.temperature,
    'gen_ai.request.top_p': params.topP,
    'gen_ai.response.model': modelName,
    'gen_ai.response.finish_reasons': [finishReason],
    'gen_ai.usage.prompt_tokens': request.promptTokens.length,
    'gen_ai.usage.completion_tokens': stats?.outputTokens ?? 0,
    'kvasir.completion.index': index,
    ...latencies(completion.times),
    ...kvAttributes(stats),
  };
}

/** Of the answer: without the number that the engine appends for each completion. */
const nameOf = (id: string): string => id.slice(0, id.lastIndexOf('#'));

function latencies({ arrivedMs, scheduledMs, firstTokenMs, lastTokenMs, endedMs }: CompletionTimes): Attributes {
  return {
    ...seconds('gen_ai.latency.e2e', arrivedMs, endedMs),
    ...seconds('gen_ai.latency.time_in_queue', arrivedMs, scheduledMs),
    ...seconds('gen_ai.latency.time_to_first_token', arrivedMs, firstTokenMs),
    ...seconds('gen_ai.latency.time_in_model_prefill', scheduledMs, firstTokenMs),
    ...seconds('gen_ai.latency.time_in_model_decode', firstTokenMs, lastTokenMs),
    ...seconds('gen_ai.latency.time_in_model_inference', scheduledMs, lastTokenMs),
  };
}

const seconds = (name: string, fromMs: number | undefined, toMs: number | undefined): Attributes =>
  fromMs === undefined || toMs === undefined ? {} : { [name]: (toMs - fromMs) / 1e3 };

/** Counters of the request that are not zero. */
function kvAttributes(stats: RequestStats | undefined): Attributes {
  if (stats === undefined) return {};
  return withoutZeros({
    'kvasir.cached_tokens': stats.cachedTokens,
    'kvasir.external_tokens': stats.externalTokens,
    'kvasir.computed_tokens': stats.computedTokens,
    'kvasir.recomputed_tokens': stats.recomputedTokens,
    'kvasir.failed_loads': stats.failedLoads,
    'kvasir.preemptions': stats.preemptions,
    'kvasir.recovery_time': stats.recoveryMs === undefined ? 0 : stats.recoveryMs / 1e3,
    'kvasir.accepted_draft_tokens': stats.acceptedTokens,
    ...loadedTokens(stats),
  });
}

/** What a phase changed. */
export function phaseAttributes(before: RequestStats | undefined, after: RequestStats | undefined): Attributes {
  if (after === undefined) return {};
  const earlier = loadedTokens(before);
  const loaded = Object.entries(loadedTokens(after)).map(([name, tokens]) => [
    name,
    tokens - (ownValue(earlier, name) ?? 0),
  ]);
  return withoutZeros({
    'kvasir.computed_tokens': after.computedTokens - (before?.computedTokens ?? 0),
    'kvasir.failed_loads': (after.failedLoads ?? 0) - (before?.failedLoads ?? 0),
    ...(Object.fromEntries(loaded) as Record<string, number>),
  });
}

const loadedTokens = (stats: RequestStats | undefined): Record<string, number> =>
  byEntries(
    Object.entries(stats?.loadedTokens ?? {}).map(([place, tokens]) => [`kvasir.loaded_tokens.${place}`, tokens]),
  );

const withoutZeros = (counters: Readonly<Record<string, number | undefined>>): Attributes =>
  byEntries(Object.entries(counters).filter(([, value]) => value !== undefined && value > 0));
