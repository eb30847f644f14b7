import type { EngineOptions } from '../../src/engine/options.ts';
import { withEngine } from '../bench-flags.ts';
import { prefixNotLoaded } from '../errors.ts';
import { RandomTokens } from '../random-tokens.ts';
import { median, rounded } from '../statistics.ts';
import { FirstTokenProbe } from '../subject/first-token-probe.ts';
import type { OffloadingBenchOptions } from './offloading-options.ts';
import { throttledModule } from './throttled-connector.ts';

/** The time to the first token after a prefix in a tier that is about as fast as computing. */
export interface RaceRow {
  readonly kind: 'race';
  readonly prefixLength: number;
  readonly computeMs: number;
  /** All blocks are loaded. */
  readonly loadMs: number;
  /** The first blocks are computed while the last blocks are loaded. */
  readonly raceMs: number;
  readonly loadedInRace: number;
  /** The faster of computing and loading, divided by the race. At most 2. */
  readonly speedup: number;
}

/** Loads before the costs are known, and some more that the learned costs change. */
const WARM_UP_ROUNDS = 6;

/** Each engine has room for one prefix in its pool. The tier is host memory, slowed down to the speed of computing. */
export async function measureRace(options: OffloadingBenchOptions, prefixLength: number): Promise<RaceRow> {
  const { engine, blockBytes, repetitions } = options;
  const blocks = Math.floor(prefixLength / engine.blockSize);
  const small = { ...engine, kvCacheMemory: (blocks + 3) * blockBytes };
  const base = { prefixBlocks: blocks, rounds: repetitions };
  const compute = await measure(options, small, { ...base, name: 'computing', isLoaded: false });
  const blockMs = compute.ms / blocks;
  const withPolicy = (policy: 'auto' | 'always') => ({
    ...small,
    kvTransferConfig: {
      kvConnector: 'ThrottledConnector',
      kvRole: 'kv_both',
      kvConnectorModulePath: throttledModule,
      kvLoadFailurePolicy: 'recompute',
      kvConnectorExtraConfig: {
        tiers: [`host:${Math.ceil(1.5 * 2 ** 20 + 4 * blocks * blockBytes)}`],
        kv_load_policy: policy,
        // A load is as slow as computing, and may take longer than the default.
        load_timeout_seconds: 600,
        throttle_block_ms: blockMs,
      },
    } as const,
  });
  const load = await measure(options, withPolicy('always'), { ...base, name: 'loading', isLoaded: true });
  const race = await measure(options, withPolicy('auto'), { ...base, name: 'both', isLoaded: true });
  return {
    kind: 'race',
    prefixLength: blocks * engine.blockSize,
    computeMs: rounded(compute.ms),
    loadMs: rounded(load.ms),
    raceMs: rounded(race.ms),
    loadedInRace: race.loadedTokens,
    speedup: rounded(Math.min(compute.ms, load.ms) / race.ms),
  };
}

interface Measured {
  readonly ms: number;
  readonly loadedTokens: number;
}

function measure(
  { openEngine, signal, onProgress }: OffloadingBenchOptions,
  engine: EngineOptions & { readonly blockSize: number },
  { prefixBlocks, rounds, name, isLoaded }: { prefixBlocks: number; rounds: number; name: string; isLoaded: boolean },
): Promise<Measured> {
  return withEngine(openEngine, engine, signal, async (opened) => {
    const random = new RandomTokens(Date.now(), opened.engine.model.vocabSize);
    const probe = new FirstTokenProbe(opened, signal, 'tier.host.storedBlocks');
    const newPrompt = async (): Promise<Int32Array> => {
      const prompt = random.take(prefixBlocks * engine.blockSize + 1);
      await probe.first(prompt);
      if (isLoaded) await probe.saved(prefixBlocks);
      return prompt;
    };
    const results: Measured[] = [];
    let previous = await newPrompt();
    for (let round = -WARM_UP_ROUNDS; round < rounds; round++) {
      onProgress(`${name}: ${round < 0 ? 'warming up' : `repetition ${round + 1} of ${rounds}`}`);
      // The new prompt evicts the previous one from the pool.
      const next = await newPrompt();
      const { ms, stats } = await probe.first(previous);
      const { loadedTokens: byPlace = {}, failedLoads: failed = 0 } = stats;
      const loadedTokens = Object.values(byPlace).reduce((sum, count) => sum + count, 0);
      if (failed > 0 || loadedTokens > 0 !== isLoaded) throw prefixNotLoaded({ promised: loadedTokens, failed });
      previous = next;
      if (round >= 0) results.push({ ms, loadedTokens });
    }
    return {
      ms: median(results.map(({ ms }) => ms)),
      loadedTokens: rounded(median(results.map(({ loadedTokens }) => loadedTokens))),
    };
  });
}
