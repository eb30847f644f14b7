import { parseTierSpec } from '../../src/connector/offloading/tier-spec.ts';
import { headerBytes } from '../../src/connector/tier/block-header.ts';
import { withEngine } from '../bench-flags.ts';
import { prefixNotLoaded } from '../errors.ts';
import { RandomTokens } from '../random-tokens.ts';
import { median, rounded } from '../statistics.ts';
import { FirstTokenProbe } from '../subject/first-token-probe.ts';
import { type OffloadingBenchOptions, withTiers } from './offloading-options.ts';
import { whenWritten } from './when-written.ts';

/** The time to the first token after a prefix whose KV is in one tier. */
export interface TierFirstTokenRow {
  readonly kind: 'firstToken';
  readonly tier: string;
  readonly prefixLength: number;
  readonly recomputeMs: number;
  readonly loadMs: number;
  /** `recomputeMs` divided by `loadMs`; the budget is 10. */
  readonly speedup: number;
}

/**
 * The pool has room for one prefix, so each prompt evicts the prompt before it. Prompts are computed and loaded in turn; the
 * row has medians. A secondary tier is measured below a host tier that has room for one prefix, too.
 */
export function measureTierFirstToken(
  options: OffloadingBenchOptions,
  tier: string,
  prefixLength: number,
): Promise<TierFirstTokenRow> {
  const { openEngine, engine, blockBytes, signal, repetitions } = options;
  const { kind } = parseTierSpec(tier);
  const prefixBlocks = Math.floor(prefixLength / engine.blockSize);
  const hostBytes = prefixBlocks * (blockBytes + headerBytes);
  // A prompt whose KV the tier has is loaded also if computing it is faster.
  const connector = withTiers(kind === 'host' ? [tier] : [`host:${hostBytes}`, tier], 'always');
  const small = {
    ...engine,
    // The null block, a block for the token after the prefix, and spare blocks for the next admission.
    kvCacheMemory: (prefixBlocks + 3) * blockBytes,
    kvTransferConfig: connector,
  };
  return withEngine(openEngine, small, signal, async (measured) => {
    const random = new RandomTokens(Date.now(), measured.engine.model.vocabSize);
    const probe = new FirstTokenProbe(measured, signal, `tier.${kind}.storedBlocks`);
    const [recompute, load]: [number[], number[]] = [[], []];
    const compute = async (): Promise<{ prompt: Int32Array; ms: number }> => {
      const prompt = random.take(prefixBlocks * engine.blockSize + 1);
      const { ms } = await probe.first(prompt);
      await probe.saved(prefixBlocks);
      await whenWritten(measured, signal);
      return { prompt, ms };
    };
    let previous = await compute();
    for (let round = 0; round <= repetitions; round++) {
      options.onProgress(
        `first token from ${kind}: ${round === 0 ? 'warming up' : `repetition ${round} of ${repetitions}`}`,
      );
      const next = await compute();
      const loaded = await probe.first(previous.prompt);
      const { loadedTokens = {}, failedLoads: failed = 0 } = loaded.stats;
      const promised = Object.values(loadedTokens).reduce((sum, count) => sum + count, 0);
      // A block that the pool still has is not loaded; a few may be in the small host tier.
      if (failed > 0 || promised < 0.9 * prefixLength) throw prefixNotLoaded({ promised, failed });
      previous = next;
      if (round === 0) continue;
      recompute.push(next.ms);
      load.push(loaded.ms);
    }
    const [recomputeMs, loadMs] = [median(recompute), median(load)];
    return {
      kind: 'firstToken',
      tier: kind,
      prefixLength: prefixBlocks * engine.blockSize,
      recomputeMs: rounded(recomputeMs),
      loadMs: rounded(loadMs),
      speedup: rounded(recomputeMs / loadMs),
    };
  });
}
