import { Prng } from '../../src/base/prng.ts';
import type { ClusterOptions } from './cluster.ts';
import { noClusterFaults, randomClusterFaults, withoutClusterFaults } from './cluster-faults.ts';
import { longestText } from './conversations.ts';
import { measuredCosts } from './costs.ts';
import type { StackShape } from './stack-shelf.ts';

export interface SceneParts {
  /** Faults that are off. */
  readonly off: ReadonlySet<string>;
  /** Only the first conversations; undefined: all. */
  readonly conversations: number | undefined;
}

/** A small cluster with short texts, small pools and every kind of fault. */
export function randomCluster(seed: number, { off, conversations }: SceneParts): ClusterOptions {
  const prng = new Prng(seed + 2 ** 40);
  const workload = {
    conversations: prng.between(4, 24),
    turnsMax: prng.between(1, 5),
    systemPrompts: prng.between(1, 3),
    systemPromptTokens: prng.pick([0, 20, 64]),
    thinkMs: prng.pick([100, 2000]),
    rampMs: prng.pick([0, 5000]),
    repeatedShare: prng.pick([0, 0.5]),
    shorter: prng.pick([8, 16, 32]),
  };
  const blockSize = prng.pick([4, 8, 16]);
  const poolTokens = longestText(workload) * prng.pick([1, 1, 2, 8]) + blockSize;
  const tier = {
    gigabitsPerSecond: prng.pick([0.1, 1, 10]),
    latencyMs: prng.pick([0.1, 1, 20]),
    tokensMax: prng.pick([500, 5000, 100_000]),
  };
  // A generator of its own, so that worlds with one tier are as before.
  const tierCount = new Prng(seed + 2 ** 41).pick([1, 2, 3]);
  const stackPrng = new Prng(seed + 2 ** 42);
  const stack = stackPrng.chance(0.6) ? randomStack(stackPrng) : undefined;
  // Nothing is lost, so each block of host memory must be written.
  const isLossless = stack !== undefined && stackPrng.chance(0.15);
  const drawn = randomClusterFaults(prng, prng.pick([1, 4]));
  const options: ClusterOptions = {
    replicas: prng.between(1, 5),
    blockSize,
    poolTokens,
    maxNumBatchedTokens: prng.pick([16, 64, 512]),
    maxNumSeqs: prng.pick([2, 8, 32]),
    costs: measuredCosts,
    tier: prng.chance(0.9) ? (isLossless ? { ...tier, tokensMax: 1_000_000 } : tier) : undefined,
    tierCount,
    stack,
    loadPolicy: prng.pick(['always', 'auto'] as const),
    routing: prng.pick(['prefix', 'load'] as const),
    replicaGigabitsPerSecond: 10,
    networkDelayMs: prng.pick([0.1, 1, 50]),
    startMs: prng.pick([200, 3000]),
    workload,
    faults: withoutClusterFaults(isLossless ? { ...drawn, ...noLosses } : drawn, off),
    faultMsMax: prng.pick([300, 3000, 15_000]),
    calmAfterMs: 60_000,
    checkEvery: 1,
  };
  if (conversations === undefined || conversations >= workload.conversations) return options;
  return { ...options, workload: { ...workload, conversations } };
}

const { pauses: _, partitions: __, leaves: ___, ...noLosses } = noClusterFaults;

function randomStack(prng: Prng): StackShape {
  return {
    hostBlocks: prng.pick([4, 20, 200, 2000]),
    quotaBlocks: prng.chance(0.3) ? prng.pick([2, 10, 100]) : undefined,
    evictionPolicy: prng.pick(['lru', 'arc'] as const),
    ttlSeconds: prng.chance(0.2) ? prng.pick([1, 20]) : undefined,
    queueBlocks: prng.pick([1, 8, 1000]),
    busyWriteShare: prng.pick([0.01, 0.2, 1]),
    isBusy: prng.chance(0.5),
    leaseSeconds: prng.pick([0.2, 5, 30]),
    remoteDecodeShare: prng.pick([0, 0.2, 0.7]),
  };
}
