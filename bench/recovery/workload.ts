import type { CompletionRequest } from '../../src/cli/proof/completion.ts';
import { RandomTokens } from '../random-tokens.ts';

export const samplingNames = ['greedy', 'seeded'] as const;
export type SamplingName = (typeof samplingNames)[number];

export interface WorkloadOptions {
  readonly seed: number;
  /** The number of requests, which arrive at once, and of their different prefixes. */
  readonly requests: number;
  readonly prefixes: number;
  readonly prefixLength: number;
  readonly promptLength: number;
  readonly generateLength: number;
  readonly vocabSize: number;
}

/** The requests in the order of their arrival. The prompts are equal for both kinds of sampling. */
export function workloadOf(options: WorkloadOptions, name: SamplingName): CompletionRequest[] {
  const random = new RandomTokens(options.seed, options.vocabSize);
  const prefixes = Array.from({ length: options.prefixes }, () => [...random.take(options.prefixLength)]);
  return Array.from({ length: options.requests }, (_, i) => ({
    prompt: [...prefixes[i % prefixes.length]!, ...random.take(options.promptLength)],
    maxTokens: options.generateLength,
    sampling: name === 'greedy' ? { temperature: 0 } : { temperature: 0.8, seed: options.seed + i },
  }));
}

/** Short prompts that share no prefix with the workload or each other: each shows once whether the store is used. */
export function probesOf({ seed, vocabSize }: WorkloadOptions, count: number, length: number): CompletionRequest[] {
  const random = new RandomTokens(seed + 0x9e37, vocabSize);
  return Array.from({ length: count }, () => ({
    prompt: [...random.take(length)],
    maxTokens: 1,
    sampling: { temperature: 0 },
  }));
}
