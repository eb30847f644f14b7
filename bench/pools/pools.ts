import { rounded } from '../statistics.ts';
import { runScenario } from './pool-run.ts';
import { poolScenario, type ScenarioKind } from './pool-scenario.ts';

export interface PoolRow {
  readonly what: string;
  /** Mean over the scenarios, in ms. */
  readonly meanMs: number;
  /** Geometric mean of the ratios of these times to those with a pool that never fills up and stores that load at once. */
  readonly toUnlimited: number;
  /** Computed tokens, relative to those with an unlimited pool. */
  readonly tokens: number;
  readonly preemptions: number;
}

export interface PoolsOptions {
  readonly seeds: number;
  readonly onProgress: (text: string) => void;
}

/** Blocks of a pool that never fills up. */
const unlimited = 20_000;

const small = { blocks: [27, 110], maxNumSeqs: [4, 8, 16] } as const;

/** Steps whose time does not depend on their tokens, as on a GPU, and steps whose time depends on them, as on a CPU. */
const kinds: readonly ScenarioKind[] = (['gpu', 'cpu'] as const).flatMap((cost) => [
  { name: `27-110 blocks, ${cost}`, ...small, endsEarly: false, cost },
  { name: `27-110 blocks, ends before max_tokens, ${cost}`, ...small, endsEarly: true, cost },
  { name: `27-110 blocks, a store, ${cost}`, ...small, endsEarly: true, cost, storedShare: 0.6 },
  { name: `two slots, a store, ${cost}`, blocks: [60, 600], maxNumSeqs: [2], endsEarly: true, cost, storedShare: 0.6 },
]);

/** How much longer requests take with few blocks or few running slots: a row for each kind of scenario. */
export function measurePools({ seeds, onProgress }: PoolsOptions): PoolRow[] {
  return kinds.map((kind) => {
    onProgress(kind.name);
    let meanMs = 0;
    let logRatio = 0;
    let preemptions = 0;
    const tokens = { limited: 0, unlimited: 0 };
    for (let seed = 1; seed <= seeds; seed++) {
      const scenario = poolScenario(kind, seed);
      const run = runScenario(scenario, kind.storedShare !== undefined);
      const best = runScenario(
        { ...scenario, blocks: unlimited, loadMs: 0, loadBlockMs: 0 },
        kind.storedShare !== undefined,
      );
      meanMs += run.meanMs / seeds;
      logRatio += Math.log(run.meanMs / best.meanMs) / seeds;
      preemptions += run.preemptions;
      tokens.limited += run.computedTokens;
      tokens.unlimited += best.computedTokens;
    }
    return {
      what: kind.name,
      meanMs: rounded(meanMs),
      toUnlimited: rounded(Math.exp(logRatio)),
      tokens: rounded(tokens.limited / tokens.unlimited),
      preemptions,
    };
  });
}
