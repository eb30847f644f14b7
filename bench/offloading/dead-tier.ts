import type { OffloadingBenchOptions } from './offloading-options.ts';
import { SilentServer } from './silent-server.ts';
import { compare, type Lengths, measureCost, pairsPerRepetition, type TierThroughputRow } from './throughput.ts';

/** Requests of the warm-up: more than the failures that open a circuit breaker. */
const warmUpRequests = 6;
const hostBytes = '2GiB';

/**
 * What a tier costs that is down: host memory and, below it, a Redis server that accepts connections and never answers,
 * beside no tier at all. The warm-up opens the circuit breaker. The budget of both ratios is 0.97.
 */
export async function measureDeadTier(
  options: OffloadingBenchOptions,
  lengths: Lengths,
): Promise<readonly TierThroughputRow[]> {
  const server = await SilentServer.start();
  try {
    const dead = { ...options, tiers: [`host:${hostBytes}`, `redis://127.0.0.1:${server.port}`] };
    const cost = await measureCost(dead, lengths);
    const what = `${lengths.requests} requests, a tier is down`;
    return [{ ...cost, kind: 'deadTier', what }, await measureFirstToken(dead, lengths.promptLength)];
  } finally {
    await server.stop();
  }
}

/** Prompts one after the other, in tokens per second until the first token. */
function measureFirstToken(options: OffloadingBenchOptions, promptLength: number): Promise<TierThroughputRow> {
  const { engine, signal } = options;
  return compare(options, engine, {
    kind: 'deadTier',
    what: `first token of ${promptLength}, a tier is down`,
    tokens: promptLength,
    pairs: pairsPerRepetition,
    run: (random, isWarmUp) => {
      const prompts = Array.from({ length: isWarmUp ? warmUpRequests : 1 }, () => random.take(promptLength));
      return async (each) => {
        const startedMs = performance.now();
        for (const prompt of prompts) {
          const params = { maxTokens: 1, temperature: 0, ignoreEos: true };
          for await (const _ of each.engine.generate({ prompt, params }, { signal }));
        }
        return (performance.now() - startedMs) / 1000;
      };
    },
  });
}
