import type { ClusterOptions } from './cluster.ts';
import { type ClusterFaults, noClusterFaults } from './cluster-faults.ts';
import { longestText, type WorkloadOptions } from './conversations.ts';
import { type Costs, measuredCosts } from './costs.ts';
import type { RouterOptions } from './router.ts';

/** What a row of the table has in common with the others. */
export interface TableSettings {
  readonly conversationsPerReplica: number;
  readonly turnsMax: number;
  readonly thinkSeconds: number;
  readonly systemPrompts: number;
  readonly systemPromptTokens: number;
  readonly poolTokens: number;
  readonly tierLatencyMs: number;
  /** Tokens that the tier holds, for each replica of the cluster. */
  readonly tierTokensPerReplica: number;
  readonly replicaGigabits: number;
  readonly networkDelayMs: number;
  readonly startSeconds: number;
  /** Mean time between two restarts of one replica; half are crashes, half are drains. 0: none. */
  readonly restartSeconds: number;
  readonly loadPolicy: ClusterOptions['loadPolicy'];
  readonly routing: RouterOptions['routing'];
  readonly costs: Costs;
}

export const tableDefaults: TableSettings = {
  conversationsPerReplica: 24,
  turnsMax: 5,
  thinkSeconds: 60,
  systemPrompts: 8,
  systemPromptTokens: 512,
  poolTokens: 12_288,
  tierLatencyMs: 1,
  tierTokensPerReplica: 100_000,
  replicaGigabits: 10,
  networkDelayMs: 0.5,
  startSeconds: 10,
  restartSeconds: 300,
  loadPolicy: 'auto',
  routing: 'prefix',
  costs: measuredCosts,
};

const workloadOf = (settings: TableSettings, replicas: number): WorkloadOptions => ({
  conversations: settings.conversationsPerReplica * replicas,
  turnsMax: settings.turnsMax,
  systemPrompts: settings.systemPrompts,
  systemPromptTokens: settings.systemPromptTokens,
  thinkMs: settings.thinkSeconds * 1000,
  rampMs: settings.thinkSeconds * 2000,
  repeatedShare: 0,
  shorter: 1,
});

/** A smaller pool may have no room for the longest text. */
export const leastPoolTokens = longestText(workloadOf(tableDefaults, 1));

/** Gigabits per second of 0: no tier. */
export function tableOptions(replicas: number, tierGigabits: number, settings: TableSettings): ClusterOptions {
  const perCluster = (2 * settings.restartSeconds) / replicas;
  const restarts: ClusterFaults =
    settings.restartSeconds === 0 ? noClusterFaults : { ...noClusterFaults, crashes: perCluster, drains: perCluster };
  return {
    replicas,
    blockSize: 16,
    poolTokens: settings.poolTokens,
    maxNumBatchedTokens: 512,
    maxNumSeqs: 64,
    costs: settings.costs,
    tier:
      tierGigabits === 0
        ? undefined
        : {
            gigabitsPerSecond: tierGigabits,
            latencyMs: settings.tierLatencyMs,
            tokensMax: settings.tierTokensPerReplica * replicas,
          },
    loadPolicy: settings.loadPolicy,
    routing: settings.routing,
    replicaGigabitsPerSecond: settings.replicaGigabits,
    networkDelayMs: settings.networkDelayMs,
    startMs: settings.startSeconds * 1000,
    workload: workloadOf(settings, replicas),
    faults: restarts,
    faultMsMax: 0,
    calmAfterMs: Infinity,
    checkEvery: 64,
  };
}
