import type { JsonObject } from '../../base/json.ts';
import { readGguf } from '../../ggml/gguf.ts';
import { readModelConfig } from '../../ggml/model-config.ts';
import { wholeModel } from '../../runner/contract.ts';
import { kvLayout } from '../../runner/kv-groups.ts';
import { blockBytes, kvTypes } from '../../runner/kv-memory.ts';
import { type Completion, type CompletionRequest, completeAll } from '../proof/completion.ts';
import { defaultHostBytes, type FilledStore, tierSettings } from '../proof/filled-store.ts';
import { neededTokens, type ReferenceGroup } from '../proof/needed-tokens.ts';
import { withServer } from '../proof/server-process.ts';
import { BlockStore, keysInGroups } from '../proof/stored-blocks.ts';
import type { StageFacts } from './report.ts';
import type { ModelFacts, ScenarioOptions } from './scenario.ts';
import { maxTokens, type SamplingName, samplings } from './stages.ts';

/** What the stages with tiers need of the stages before. */
export interface TierScenarioOptions extends ScenarioOptions, ModelFacts {
  readonly filled: FilledStore;
  /** The completions of the prefill stage. */
  readonly expected: Readonly<Record<SamplingName, readonly Completion[]>>;
  newPath(what: string): string;
}

/** With several KV groups, how many blocks of output tokens each request of the stage with preemptions gets. */
const outputBlocks = 8;
/** If blocks have more tokens, the stage with preemptions would need very long outputs. */
export const preemptedBlockSizeMax = 32;

/** The stages that keep KV in the tiers of `OffloadingConnector`. */
export class TierScenario {
  readonly #options: TierScenarioOptions;

  constructor(options: TierScenarioOptions) {
    this.#options = options;
  }

  /**
   * All prompts run at once with both samplings, and share no KV. The pool has too few blocks for their output tokens, so
   * requests are preempted. Their KV was stored in host memory before it was overwritten, and they load it when they continue.
   *
   * With several KV groups, a pool with room for the prompts has spare blocks too: windows and states release blocks. So the
   * outputs are longer than in the prefill stage, and a first server without preemptions generates the reference.
   */
  async preempted(name: string): Promise<StageFacts> {
    const started = performance.now();
    const { groups, prompts, filled, expected } = this.#options;
    const isLonger = groups.length > 1;
    const requests = Object.values(samplings).flatMap((sampling, s) =>
      prompts.map((prompt, p) => ({
        prompt,
        maxTokens: isLonger ? outputBlocks * groups[0]!.blockSize : maxTokens,
        sampling: { ...sampling, cache_salt: `${p}-${s}` },
      })),
    );
    const reference = isLonger
      ? (await this.#run(undefined, requests, { isSequential: false })).completions
      : [...expected.greedy, ...expected.seeded];
    // All prompts are computed in few steps, so that all requests generate at the same time.
    const flags = [
      ...['--kv-cache-memory', `${await this.#tinyPool()}`, '--target-inter-token-latency', '0'],
      ...['--max-num-batched-tokens', isLonger ? '1024' : '4096'],
    ];
    const { preemptions, ...run } = await this.#run(undefined, requests, { isSequential: false, flags });
    const repairMinimum = run.completions.reduce(
      (sum, completion, i) => sum + this.#afterPreemptions(requests[i]!, completion),
      0,
    );
    const alone = requests.reduce((sum, request) => sum + filled.neededTokens([request], new Set()), 0);
    return {
      ...this.#facts(name, started),
      ...run,
      preemptions,
      reference,
      minimum: repairMinimum + alone,
      repairMinimum,
    };
  }

  /**
   * The smallest number of tokens that the request computes again after its preemptions, if it loads all its full blocks. In
   * this stage, only a preempted request loads or recomputes tokens.
   */
  #afterPreemptions({ prompt }: CompletionRequest, { tokens, usage }: Completion): number {
    const { groups } = this.#options;
    return usage.repairedAfter.reduce((sum, count) => {
      if (count === 0) return sum;
      const before = [...prompt, ...tokens.slice(0, count)];
      // The KV of the last token was not computed before the preemption.
      const keys = keysInGroups(before.slice(0, -1), groups, 'the request');
      const request = { tokenCount: before.length, keys, outputTokens: 1, available: new Set(keys.flat()) };
      return sum + neededTokens([request], groups) - 1;
    }, 0);
  }

  /** A server computes the prompts and ends. The next one has an empty host memory, and finds the KV on the disk. */
  async restarted(name: string): Promise<StageFacts> {
    const started = performance.now();
    const { prompts, filled, expected, groups } = this.#options;
    const disk = new BlockStore(this.#options.newPath('disk'));
    const requests = prompts.map((prompt) => ({ prompt, maxTokens, sampling: samplings.greedy }));
    const isSequential = groups.length > 1;
    await this.#run(disk.path, requests, { isSequential });
    const available = await disk.keys();
    const { completions, events } = await this.#run(disk.path, requests, { isSequential });
    return {
      ...this.#facts(name, started),
      completions,
      events,
      reference: expected.greedy,
      minimum: filled.neededTokens(requests, available),
    };
  }

  #facts(name: string, started: number) {
    return {
      name,
      groups: this.#options.groups,
      failing: new Map<never, never>(),
      repairMinimum: 0,
      stored: new Map<never, never>(),
      computed: new Map<never, never>(),
      seconds: (performance.now() - started) / 1000,
    };
  }

  #run(
    disk: string | undefined,
    requests: readonly CompletionRequest[],
    { isSequential, flags = [] }: { readonly isSequential: boolean; readonly flags?: readonly string[] },
  ) {
    const { start, signal } = this.#options;
    const connector: JsonObject = {
      kv_connector: 'OffloadingConnector',
      kv_role: 'kv_both',
      kv_connector_extra_config: { ...alwaysLoad, ...tierSettings(defaultHostBytes, disk) },
    };
    const starting = start(['--kv-transfer-config', JSON.stringify(connector), ...flags]);
    return withServer(starting, async ({ origin, warnings }) => ({
      completions: await completeAll(origin, requests, { signal, isSequential }),
      preemptions: await preemptionsOf(origin, signal),
      events: warnings,
    }));
  }

  /** Bytes of a pool for all prompts, in which there is no block left for most of their output tokens. */
  async #tinyPool(): Promise<number> {
    const { model, blockSize, prompts, groups } = this.#options;
    const config = readModelConfig(await readGguf(model));
    const counts = prompts.flatMap(({ length }) => groups.map((group) => blocksAfter(length, group)));
    const total = 2 * counts.reduce((sum, count) => sum + count, 0);
    const count = (kind: ReferenceGroup['kind']): number => groups.filter((group) => group.kind === kind).length;
    // For each request, half of the blocks of its output tokens; for the last request, the states of an admission; block 0.
    const spare = groups.length === 1 ? 1 : (count('full') * outputBlocks) / 2;
    const poolBlocks = total + 2 * prompts.length * spare + 2 * count('state') + 1;
    return poolBlocks * blockBytes(kvLayout(config, wholeModel(config.layerCount), { blockSize, kvType: kvTypes.f16 }));
  }
}

/**
 * The small model of the demo computes so fast that loading does not pay on every machine, and on a busy machine loads take
 * long; the demo shows loads.
 */
const alwaysLoad = { kv_load_policy: 'always', lookup_timeout_seconds: 30, load_timeout_seconds: 30 };

async function preemptionsOf(origin: string, signal: AbortSignal): Promise<number> {
  const text = await (await fetch(`${origin}/metrics`, { signal })).text();
  return Number(/^vllm:num_preemptions_total(?:\{.*\})? (\d+)/m.exec(text)?.[1]);
}

/** The blocks of a group that a request has when its prompt is computed. */
function blocksAfter(tokenCount: number, { kind, blockSize, window = Infinity }: ReferenceGroup): number {
  if (kind === 'state') return 1;
  return Math.min(Math.ceil(tokenCount / blockSize), Math.ceil((window - 1) / blockSize) + 1);
}
