import type { OutputDelta } from '../../src/engine/contract.ts';
import { interrupted } from '../errors.ts';
import { rounded } from '../statistics.ts';
import type { MeasuredEngine } from '../subject/engine-subject.ts';
import { fillWorkload, type Turn, type Workload, workloadShape } from '../subject/workload.ts';
import type { OffloadingBenchOptions } from './offloading-options.ts';
import { compare, type TierThroughputRow } from './throughput.ts';

export interface ConversationLengths {
  readonly conversations: number;
  readonly turns: number;
  readonly promptLength: number;
  readonly generateLength: number;
}

/** Where the time of the conversations goes, by engine. */
export interface ConversationProfile {
  /** Until the first token of each turn, and from there to its last token. */
  readonly firstTokenSeconds: number;
  readonly decodeSeconds: number;
  /** Tokens of prompts that were computed, and tokens that were loaded from any tier. */
  readonly computedTokens: number;
  readonly loadedTokens: number;
}

export interface ConversationsRow extends TierThroughputRow {
  readonly kind: 'conversations';
  /** Of the last repetition. */
  readonly profiles: Readonly<Record<string, ConversationProfile>>;
}

/** Without tiers, a run of all turns takes minutes. */
const warmUpTurns = 2;

/**
 * Conversations in turn, whose KV together is three times the pool: when a conversation goes on, the pool has evicted its
 * KV. The budget of the ratio is 3. An engine with a pool that holds all KV runs the same conversations. It computes only new tokens
 * and loads none, so no tiers can be faster.
 */
export async function measureConversations(
  options: OffloadingBenchOptions,
  { conversations, turns, promptLength, generateLength }: ConversationLengths,
): Promise<ConversationsRow> {
  const { engine, blockBytes, signal } = options;
  const shape = workloadShape('multi-turn', conversations, { promptLength, generateLength, turns });
  const warmUpShape = workloadShape('multi-turn', conversations, { promptLength, generateLength, turns: warmUpTurns });
  const total = conversations * turns * (promptLength + generateLength);
  const poolOf = (tokens: number) => (Math.ceil(tokens / engine.blockSize) + 1) * blockBytes;
  const profiles: Record<string, ConversationProfile> = {};
  // The warm-up's KV is evicted first. A turn ends within a block.
  const largePool = poolOf(total + conversations * engine.blockSize);
  const row = await compare(
    options,
    { ...engine, kvCacheMemory: poolOf(total / 3) },
    {
      kind: 'conversations',
      what: `${conversations} conversations of ${turns} turns, KV 3 times the pool`,
      tokens: total,
      others: { largePool: { ...engine, kvCacheMemory: largePool } },
      run: (random, isWarmUp) => {
        const workload = fillWorkload(isWarmUp ? warmUpShape : shape, random);
        return async (each, name) => {
          const profile = await converseInTurn(each, workload, signal);
          profiles[name] = profile;
          return profile.firstTokenSeconds + profile.decodeSeconds;
        };
      },
    },
  );
  return { ...row, kind: 'conversations', profiles };
}

/** One turn after the other: the n-th turn of every conversation, then the next turns. */
async function converseInTurn(
  { engine }: MeasuredEngine,
  { conversations }: Workload,
  signal: AbortSignal,
): Promise<ConversationProfile> {
  const histories = conversations.map((): number[] => []);
  let [firstTokenMs, decodeMs, computedTokens, loadedTokens] = [0, 0, 0, 0];
  const turns = conversations[0]!.length;
  for (let at = 0; at < turns; at++)
    for (const [i, conversation] of conversations.entries()) {
      const { prompt, generateLength } = conversation[at] as Turn;
      const history = histories[i]!;
      history.push(...prompt);
      const startedMs = performance.now();
      let firstMs = startedMs;
      let last: OutputDelta | undefined;
      const params = { maxTokens: generateLength, temperature: 0, ignoreEos: true };
      for await (const delta of engine.generate({ prompt: history, params }, { signal })) {
        if (last === undefined) firstMs = performance.now();
        last = delta;
        history.push(...delta.tokenIds);
      }
      if (signal.aborted) throw interrupted();
      firstTokenMs += firstMs - startedMs;
      decodeMs += performance.now() - firstMs;
      const { stats } = last!;
      // All output tokens but the last one are computed, too.
      computedTokens += stats.computedTokens - (stats.outputTokens - 1);
      for (const count of Object.values(stats.loadedTokens ?? {})) loadedTokens += count;
    }
  return {
    firstTokenSeconds: rounded(firstTokenMs / 1000),
    decodeSeconds: rounded(decodeMs / 1000),
    computedTokens,
    loadedTokens,
  };
}
