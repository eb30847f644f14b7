import type { SamplingOptions } from '../../core/sampling.ts';
import type { AsyncEngine } from '../../engine/contract.ts';
import { interrupted } from './errors.ts';
import { RandomTokens } from './random-tokens.ts';

/** Requests that arrive at once, some of them with a common beginning. */
export interface WorkloadShape {
  readonly seed: number;
  readonly requests: number;
  /** How many different beginnings they have. */
  readonly prefixes: number;
  readonly prefixLength: number;
  readonly promptLength: number;
  readonly generateLength: number;
}

export interface WorkloadRequest {
  readonly prompt: readonly number[];
  readonly params: SamplingOptions;
}

export interface Outcome {
  /** Text, tokens and logprobs, bit for bit. */
  readonly answer: string;
  readonly outputTokens: number;
  readonly isLost: boolean;
  readonly firstTokenMs: number;
}

export function workloadOf(shape: WorkloadShape, vocabSize: number): WorkloadRequest[] {
  const random = new RandomTokens(shape.seed, vocabSize);
  const prefixes = Array.from({ length: shape.prefixes }, () => [...random.take(shape.prefixLength)]);
  return Array.from({ length: shape.requests }, (_, i) => ({
    prompt: [...prefixes[i % prefixes.length]!, ...random.take(shape.promptLength)],
    params: {
      maxTokens: shape.generateLength,
      ignoreEos: true,
      logprobs: 0,
      // Greedy and seeded sampling by turns, so that each prefix has both.
      ...(Math.floor(i / prefixes.length) % 2 === 0 ? { temperature: 0 } : { temperature: 0.8, seed: shape.seed + i }),
    },
  }));
}

export const completeAll = (
  engine: AsyncEngine,
  workload: readonly WorkloadRequest[],
  signal: AbortSignal,
): Promise<Outcome[]> => Promise.all(workload.map((request) => completeOne(engine, request, signal)));

async function completeOne(engine: AsyncEngine, request: WorkloadRequest, signal: AbortSignal): Promise<Outcome> {
  const started = performance.now();
  let firstTokenMs = Number.NaN;
  let text = '';
  let reason: string | undefined;
  const tokens: number[] = [];
  const logprobs: number[] = [];
  for await (const delta of engine.generate(request, { signal })) {
    if (delta.tokenIds.length > 0 && tokens.length === 0) firstTokenMs = performance.now() - started;
    text += delta.text;
    tokens.push(...delta.tokenIds);
    for (const { logprob } of delta.logprobs ?? []) logprobs.push(logprob);
    reason = delta.finish?.reason ?? reason;
  }
  if (signal.aborted) throw interrupted();
  const isLost = reason !== 'length' && reason !== 'stop';
  const answer = JSON.stringify([text, tokens, logprobs]);
  return { answer, outputTokens: tokens.length, isLost, firstTokenMs };
}
