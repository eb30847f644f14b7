import type { KvGroupSpec } from '../../src/core/kv-spec.ts';
import { createGroup } from '../../src/kv/create-group.ts';
import { withEngine } from '../bench-flags.ts';
import { interrupted } from '../errors.ts';
import { RandomTokens } from '../random-tokens.ts';
import type { MeasuredEngine } from '../subject/engine-subject.ts';
import { type OffloadingBenchOptions, withTiers } from './offloading-options.ts';
import { whenWritten } from './when-written.ts';

/** Counts of stored blocks and computed tokens for one `prefix_cache_retention_interval`. The machine's speed does not change them. */
export interface RetentionRow {
  readonly kind: 'retention';
  readonly workload: string;
  /** Undefined: all blocks of windows and states are stored. */
  readonly interval: number | undefined;
  readonly storedBlocks: number;
  readonly storedBytes: number;
  /** Of all prompts. */
  readonly computedTokens: number;
}

const intervals = [undefined, 256, 64, 0] as const;
const longest = 840;

/**
 * One conversation of six turns, and six prompts with 500 of their 600 tokens in common. Before each request, the pool has lost
 * all KV: other requests, which are not stored, have taken its blocks.
 */
export async function measureRetention(
  options: OffloadingBenchOptions,
  groups: readonly KvGroupSpec[],
): Promise<RetentionRow[]> {
  const { engine, blockBytes, openEngine, signal } = options;
  const blocks = groups.reduce((sum, group) => sum + createGroup(group).blocksMax(longest), 0);
  const rows: RetentionRow[] = [];
  for (const run of [converse, shareAPrefix])
    for (const interval of intervals) {
      const { kvConnectorExtraConfig: extra, ...connector } = withTiers(['host:1GiB'], 'always');
      const retention = interval === undefined ? {} : { prefix_cache_retention_interval: interval };
      const small = {
        ...engine,
        // Each prompt needs more blocks than the pool has left.
        kvCacheMemory: (blocks + 4) * blockBytes,
        kvTransferConfig: { ...connector, kvConnectorExtraConfig: { ...extra, ...retention } },
      };
      options.onProgress(`retention: ${interval ?? 'all blocks'}`);
      rows.push(
        await withEngine(openEngine, small, signal, async (measured) => {
          const { workload, computedTokens } = await run(new Requests(measured, signal));
          const { counters } = measured.engine.stats().transfers;
          const storedBlocks = counters['tier.host.storedBlocks'] ?? 0;
          const storedBytes = storedBlocks * blockBytes;
          return { kind: 'retention', workload, interval, storedBlocks, storedBytes, computedTokens } as const;
        }),
      );
    }
  return rows;
}

async function converse(requests: Requests) {
  const history = requests.take(300);
  let computedTokens = 0;
  for (let turn = 0; turn < 6; turn++) {
    const { output, computed } = await requests.answer(history, 40);
    history.push(...output, ...requests.take(60));
    computedTokens += computed;
  }
  return { workload: 'conversation of 6 turns', computedTokens };
}

async function shareAPrefix(requests: Requests) {
  const prefix = requests.take(500);
  let computedTokens = 0;
  for (let i = 0; i < 6; i++)
    computedTokens += (await requests.answer([...prefix, ...requests.take(100)], 10)).computed;
  return { workload: '6 prompts with a prefix', computedTokens };
}

/** Requests one after the other, with the same random tokens in each run. */
class Requests {
  readonly #measured: MeasuredEngine;
  readonly #signal: AbortSignal;
  readonly #random: RandomTokens;
  #fillers = 0;

  constructor(measured: MeasuredEngine, signal: AbortSignal) {
    this.#measured = measured;
    this.#signal = signal;
    this.#random = new RandomTokens(1, measured.engine.model.vocabSize);
  }

  take(count: number): number[] {
    return [...this.#random.take(count)];
  }

  async answer(prompt: readonly number[], maxTokens: number): Promise<{ output: number[]; computed: number }> {
    const { engine } = this.#measured;
    const output: number[] = [];
    let computed = 0;
    const params = { maxTokens, temperature: 0, ignoreEos: true };
    for await (const { tokenIds, stats } of engine.generate(
      { prompt: [...prompt], params },
      { signal: this.#signal },
    )) {
      output.push(...tokenIds);
      computed = stats.computedTokens - (stats.outputTokens - 1);
    }
    if (this.#signal.aborted) throw interrupted();
    await whenWritten(this.#measured, this.#signal);
    await this.#fill();
    return { output, computed };
  }

  async #fill(): Promise<void> {
    const prompt = this.take(longest - 1);
    const cacheSalt = `filler ${this.#fillers++}`;
    const request = { prompt, cacheSalt, params: { maxTokens: 1 }, kvTransferParams: { max_offload_tokens: 0 } };
    for await (const _ of this.#measured.engine.generate(request, { signal: this.#signal }));
    if (this.#signal.aborted) throw interrupted();
  }
}
