import { Counter, Histogram, type Registry } from 'prom-client';
import type { FinishReason } from '../../core/request.ts';
import type { CompletionTimes, EndedCompletion, EngineObserver, StepReport } from '../../engine/observer.ts';

/** Upper bounds in seconds, as in vLLM: of whole requests, of first tokens, and between tokens. */
const requestSeconds = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680];
const firstTokenSeconds = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
];
const interTokenSeconds = [
  0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
];
/** Of the parts of a step. Planning takes microseconds, kernels take up to seconds. */
const stepSeconds = [
  1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10,
];
/** Of the time in which a stream has no token because KV was lost. */
const recoverySeconds = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100];
/** Tokens of a step. */
const stepTokens = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384];
const preemptionCounts = [1, 2, 3, 4, 5, 10, 20];
const completionCounts = [1, 2, 5, 10, 20];

/** 1, 2, 5, 10, 20, ... up to `max`. */
export function tokenCounts(max: number): number[] {
  const bounds: number[] = [];
  for (let power = 1; power <= max; power *= 10)
    for (const digit of [1, 2, 5]) if (digit * power <= max) bounds.push(digit * power);
  return bounds;
}

const finishReasons: readonly FinishReason[] = ['stop', 'length', 'abort', 'error'];

/** What is counted while requests run: histograms of times and lengths, with vLLM's names, and the parts of steps. */
export function completionMetrics(registry: Registry, maxModelLen: number): EngineObserver {
  const histogram = (name: string, help: string, buckets: number[]): Histogram =>
    new Histogram({ name, help, buckets, registers: [registry] });
  const lengths = tokenCounts(maxModelLen);
  const firstToken = histogram('vllm:time_to_first_token_seconds', 'Time to the first token.', firstTokenSeconds);
  const interToken = histogram('vllm:inter_token_latency_seconds', 'Time between tokens.', interTokenSeconds);
  const perToken = histogram(
    'vllm:request_time_per_output_token_seconds',
    'Mean time between the tokens of a request.',
    interTokenSeconds,
  );
  const endToEnd = histogram('vllm:e2e_request_latency_seconds', 'Time from arrival to end.', requestSeconds);
  const queue = histogram('vllm:request_queue_time_seconds', 'Time before the first step.', requestSeconds);
  const inference = histogram('vllm:request_inference_time_seconds', 'Time after the queue.', requestSeconds);
  const prefill = histogram('vllm:request_prefill_time_seconds', 'Time from queue to first token.', requestSeconds);
  const decode = histogram('vllm:request_decode_time_seconds', 'Time from first to last token.', requestSeconds);
  const promptTokens = histogram('vllm:request_prompt_tokens', 'Prompt tokens of a request.', lengths);
  const outputTokens = histogram('vllm:request_generation_tokens', 'Output tokens of a request.', lengths);
  const outputMax = histogram(
    'vllm:request_max_num_generation_tokens',
    'Largest number of output tokens that a request asks for.',
    lengths,
  );
  const maxTokens = histogram('vllm:request_params_max_tokens', 'The parameter max_tokens.', lengths);
  const computed = histogram(
    'vllm:request_prefill_kv_computed_tokens',
    'Prompt tokens of a request that were neither cached nor promised by a connector.',
    lengths,
  );
  const completions = histogram('vllm:request_params_n', 'The parameter n.', completionCounts);
  const preemptions = histogram('vllm:request_num_preemptions', 'Preemptions of a request.', preemptionCounts);
  const recovery = histogram(
    'kvasir:recovery_seconds',
    'Time in which a completion got no token because KV was lost.',
    recoverySeconds,
  );
  const tokensOfStep = histogram('vllm:iteration_tokens_total', 'Tokens of a step.', stepTokens);
  const step = new Histogram({
    name: 'kvasir:step_seconds',
    help: 'Time of a step by part. Text is delivered while kernels run.',
    labelNames: ['part'],
    buckets: stepSeconds,
    registers: [registry],
  });
  const [plan, execute, apply, deliver] = ['plan', 'execute', 'apply', 'deliver'].map((part) => step.labels(part));
  const ended = new Counter({
    name: 'vllm:request_success_total',
    help: 'Completions that ended, by reason.',
    labelNames: ['finished_reason'],
    registers: [registry],
  });
  for (const reason of finishReasons) ended.inc({ finished_reason: reason }, 0);

  return {
    stepEnded(report: StepReport): void {
      plan!.observe(report.planMs / 1e3);
      execute!.observe(report.executeMs / 1e3);
      apply!.observe(report.applyMs / 1e3);
      deliver!.observe(report.deliverMs / 1e3);
      if (report.tokens > 0) tokensOfStep.observe(report.tokens);
    },
    tokensArrived({ times }, { sinceMs }): void {
      if (sinceMs !== undefined) interToken.observe(sinceMs / 1e3);
      else observeSpan(firstToken, times, 'arrivedMs', 'firstTokenMs');
    },
    completionEnded({ request: { params }, index, stats, times, finishReason }: EndedCompletion): void {
      ended.inc({ finished_reason: finishReason });
      observeSpan(endToEnd, times, 'arrivedMs', 'endedMs');
      observeSpan(queue, times, 'arrivedMs', 'scheduledMs');
      observeSpan(inference, times, 'scheduledMs', 'lastTokenMs');
      observeSpan(prefill, times, 'scheduledMs', 'firstTokenMs');
      observeSpan(decode, times, 'firstTokenMs', 'lastTokenMs');
      outputMax.observe(params.maxTokens);
      maxTokens.observe(params.maxTokens);
      if (index === 0) completions.observe(params.n);
      if (stats === undefined) return;
      promptTokens.observe(stats.promptTokens);
      outputTokens.observe(stats.outputTokens);
      computed.observe(stats.promptTokens - stats.cachedTokens);
      preemptions.observe(stats.preemptions);
      const { firstTokenMs, lastTokenMs } = times;
      if (firstTokenMs !== undefined && lastTokenMs !== undefined && stats.outputTokens > 1)
        perToken.observe((lastTokenMs - firstTokenMs) / 1e3 / (stats.outputTokens - 1));
      if (stats.recoveryMs !== undefined) recovery.observe(stats.recoveryMs / 1e3);
    },
  };
}

/** Observes the seconds between two events of a completion, if both are known. */
function observeSpan(
  histogram: Histogram,
  times: CompletionTimes,
  from: keyof CompletionTimes,
  to: keyof CompletionTimes,
): void {
  const start = times[from];
  const end = times[to];
  if (start !== undefined && end !== undefined) histogram.observe((end - start) / 1e3);
}
