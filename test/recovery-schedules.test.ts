/**
 * I1, I2, I3, I5, I6 and I8 with real weights: hundreds of random schedules of faults, arrivals, aborts and preemptions. All texts, tokens
 * and logprobs equal those of single runs without a store. The computed tokens equal the minimum that an independent reference derives
 * from the blocks that arrived. No block or transfer leaks. Disks, processes and threads are in `recovery-process-schedules.test.ts`.
 *
 * With several KV groups, the minimum depends on the order of requests, so it is compared if they run one after the other.
 */
import { appendFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { writeAdapter } from '../bench/make-model/adapter-maker.ts';
import { assert } from '../src/base/assert.ts';
import { Prng } from '../src/base/prng.ts';
import { neededTokens } from '../src/cli/proof/needed-tokens.ts';
import { keysInGroups } from '../src/cli/proof/stored-blocks.ts';
import { groupOfKey } from '../src/connector/block-key.ts';
import { createGroup } from '../src/kv/create-group.ts';
import { KvCache } from '../src/kv/kv-cache.ts';
import { ExternalKv } from '../src/scheduler/external-kv.ts';
import { isLongOnGpu, needsGpu } from './support/gpu.ts';
import { isLongForm } from './support/long-form.ts';
import type { StoredBlocks } from './support/memory-connector.ts';
import { plant, plantedBugs } from './support/planted-bugs.ts';
import { randomFaults, randomRequests } from './support/random-schedules.ts';
import {
  blockSize,
  type Completion,
  type HarnessRequest,
  ignoredReports,
  RecoveryHarness,
  type RunOptions,
  type RunResult,
  testDevice,
} from './support/recovery-harness.ts';
import {
  gemma4WithExperts,
  longContexts,
  type ModelOptions,
  smallStates,
  temporaryFolder,
  writeTinyModel,
} from './support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

/** `RECOVERY_SEED=12345 npx vitest run test/recovery-schedules.test.ts` repeats one schedule on each model. */
const onlySeed = process.env.RECOVERY_SEED === undefined ? undefined : Number(process.env.RECOVERY_SEED);
/** Workloads of each model. The long form of `.ci/run` runs 2. More schedules: `RECOVERY_WORKLOADS=50`. */
const workloads = Number(process.env.RECOVERY_WORKLOADS ?? 1);
const isShort = !isLongForm && workloads === 1 && onlySeed === undefined;
const schedulesPerWorkload = isShort ? (testDevice === 'gpu' ? 1 : 2) : 10;
/** A file to which each model's counts are appended, one JSON object in a line, for `bench/results`. */
const resultsFile = process.env.RECOVERY_RESULTS;
/** The schedules of workload 12 have the seeds 12000 to 12009. */
const numbers =
  onlySeed === undefined ? Array.from({ length: workloads }, (_, w) => w + 1) : [Math.floor(onlySeed / 1000)];

interface Subject {
  readonly name: string;
  readonly model: () => Promise<string>;
  readonly ranks: number;
  /** The layer with which the second rank begins, if the ranks are unequal. With `KVASIR_TEST_DEVICE=gpu`, the first is on the CPU. */
  readonly secondFrom?: number;
  /** In runs with a store, the model's prediction layer drafts before each step of decodes. */
  readonly predicts?: boolean;
  /** Connectors get copies of blocks, as of a pool in the memory of a device. */
  readonly isStaged?: boolean;
  /** Every second request has a LoRA adapter. */
  readonly hasAdapter?: boolean;
}

const tiny = (options: ModelOptions) => async () => {
  const path = folder.file(`${Object.values(options).join('-')}.gguf`);
  await writeTinyModel(path, options);
  return path;
};
/** Five layers in three KV groups: one with full attention, and two with a window, one of which has an unused place. */
const unequal = { architecture: 'gemma3', type: 'Q8_0', layers: 5 } as const;
const allSubjects: readonly Subject[] = [
  { name: 'the demo model', model: async () => 'models/kvasir-demo.gguf', ranks: 1 },
  {
    name: 'the demo model with a copied pool',
    model: async () => 'models/kvasir-demo.gguf',
    ranks: 1,
    isStaged: true,
  },
  { name: 'a random llama', model: tiny({ architecture: 'llama', type: 'Q4_0' }), ranks: 1 },
  { name: 'a random qwen2', model: tiny({ architecture: 'qwen2', type: 'F16' }), ranks: 1 },
  { name: 'a random qwen3', model: tiny({ architecture: 'qwen3', type: 'Q8_0' }), ranks: 1 },
  { name: 'a random gemma3', model: tiny({ architecture: 'gemma3', type: 'Q8_0' }), ranks: 1 },
  { name: 'a random gemma3 with three groups', model: tiny(unequal), ranks: 1 },
  { name: 'a random gemma4 with three groups', model: tiny({ architecture: 'gemma4', type: 'Q8_0' }), ranks: 1 },
  {
    name: 'a random gemma4 with experts',
    model: tiny({ architecture: 'gemma4', type: 'Q8_0', ...gemma4WithExperts }),
    ranks: 1,
  },
  { name: 'a random gpt-oss', model: tiny({ architecture: 'gpt-oss', type: 'MXFP4' }), ranks: 1 },
  { name: 'a random granitemoe', model: tiny({ architecture: 'granitemoe', type: 'Q8_0' }), ranks: 1 },
  { name: 'a random qwen3vlmoe', model: tiny({ architecture: 'qwen3vlmoe', type: 'Q8_0' }), ranks: 1 },
  {
    name: 'a random granitehybrid',
    model: tiny({ architecture: 'granitehybrid', type: 'Q8_0', layers: 3, ...smallStates }),
    ranks: 1,
  },
  {
    name: 'a random qwen35',
    model: tiny({ architecture: 'qwen35', type: 'Q8_0', layers: 3, ...smallStates }),
    ranks: 1,
  },
  {
    name: 'a random qwen35moe',
    model: tiny({ architecture: 'qwen35moe', type: 'Q8_0', layers: 3, ...smallStates }),
    ranks: 1,
  },
  {
    name: 'a random qwen3next',
    model: tiny({ architecture: 'qwen3next', type: 'Q8_0', layers: 3, ...smallStates }),
    ranks: 1,
  },
  {
    name: 'a random nemotron_h_moe',
    model: tiny({ architecture: 'nemotron_h_moe', type: 'Q8_0', layers: 4, ...smallStates }),
    ranks: 1,
  },
  // The second rank is a network, without K and V and states.
  {
    name: 'a random nemotron_h on two ranks',
    model: tiny({
      architecture: 'nemotron_h',
      type: 'Q8_0',
      ...smallStates,
      layers: 3,
      stateLayers: [0],
      networkLayers: [2],
    }),
    ranks: 2,
  },
  { name: 'a random lfm2', model: tiny({ architecture: 'lfm2', type: 'Q8_0' }), ranks: 1 },
  { name: 'the hybrid model', model: async () => 'models/kvasir-hybrid.gguf', ranks: 1 },
  {
    name: 'the hybrid model with copied pools on two ranks',
    model: async () => 'models/kvasir-hybrid.gguf',
    ranks: 2,
    isStaged: true,
  },
  { name: 'the hybrid model on two ranks', model: async () => 'models/kvasir-hybrid.gguf', ranks: 2 },
  { name: 'the demo model on two ranks', model: async () => 'models/kvasir-demo.gguf', ranks: 2 },
  { name: 'a random qwen3 on two ranks', model: tiny({ architecture: 'qwen3', type: 'Q8_0' }), ranks: 2 },
  {
    name: 'a random qwen3moe on two ranks of 1 and 3 layers',
    model: tiny({ architecture: 'qwen3moe', type: 'Q8_0', layers: 4 }),
    ranks: 2,
    secondFrom: 1,
  },
  { name: 'a random deepseek2', model: tiny({ architecture: 'deepseek2', type: 'Q8_0' }), ranks: 1 },
  { name: 'a random deepseek2 on two ranks', model: tiny({ architecture: 'deepseek2', type: 'F16' }), ranks: 2 },
  {
    name: 'a random glm4moe with drafts',
    model: tiny({ architecture: 'glm4moe', type: 'Q8_0', layers: 2, predictionLayers: 1 }),
    ranks: 1,
    predicts: true,
  },
  {
    name: 'a random deepseek2 with drafts on two ranks',
    model: tiny({ architecture: 'deepseek2', type: 'Q8_0', layers: 2, predictionLayers: 1 }),
    ranks: 2,
    predicts: true,
  },
  {
    name: 'a random llama with an adapter',
    model: tiny({ architecture: 'llama', type: 'Q8_0' }),
    ranks: 1,
    hasAdapter: true,
  },
  {
    name: 'a random qwen3moe with an adapter on two ranks',
    model: tiny({ architecture: 'qwen3moe', type: 'Q8_0', layers: 4 }),
    ranks: 2,
    hasAdapter: true,
  },
  { name: 'a random olmo2', model: tiny({ architecture: 'olmo2', type: 'Q8_0', ...longContexts.olmo2 }), ranks: 1 },
  // smollm3, glm4, glm4moe and phi3 have the KV groups of llama, and lfm2moe those of lfm2.
  {
    name: 'a random mistral3 on two ranks',
    model: tiny({ architecture: 'mistral3', type: 'Q8_0', ...longContexts.mistral3 }),
    ranks: 2,
  },
  { name: 'a random gpt-oss on two ranks', model: tiny({ architecture: 'gpt-oss', type: 'MXFP4' }), ranks: 2 },
  // The first rank has no layer with attention.
  { name: 'a random lfm2 on two ranks', model: tiny({ architecture: 'lfm2', type: 'Q4_0' }), ranks: 2 },
  {
    name: 'a random qwen35moe on two ranks',
    model: tiny({ architecture: 'qwen35moe', type: 'Q8_0', ...smallStates }),
    ranks: 2,
  },
  // The second rank has all layers that share KV, and those whose KV they read.
  {
    name: 'a random gemma4 on two ranks',
    model: tiny({ architecture: 'gemma4', type: 'Q8_0', layers: 8, gemma4: { sharedLayers: 4 } }),
    ranks: 2,
  },
  // The second rank has no layer of the third group.
  { name: 'a random gemma3 on two ranks', model: tiny(unequal), ranks: 2 },
  { name: 'a random gemma3 on two ranks of 4 and 1 layers', model: tiny(unequal), ranks: 2, secondFrom: 4 },
  {
    name: 'the demo model on two unequal ranks',
    model: async () => 'models/kvasir-demo.gguf',
    ranks: 2,
    secondFrom: 1,
  },
];

/** Each kind of KV group and of state, on one rank or on two. */
const shortForm =
  /^the demo model$|three groups|qwen35moe$|hybrid model (on|with)|copied pool$|with drafts$|with an adapter$|(qwen3moe|lfm2) on/;
const isOnDevice = testDevice === 'gpu';
/** `npm run test:gpu`: on software Vulkan one KV group, else each kind of group. */
const deviceForm = isOnDevice && isLongOnGpu() ? /^the (demo|hybrid) model$/ : /^the demo model$/;
const subjects = allSubjects.filter(
  ({ name }) => isLongForm || onlySeed !== undefined || (isOnDevice ? deviceForm : shortForm).test(name),
);

/** What happened in the schedules of all models. */
const total = { failed: 0, preempted: 0, aborted: 0, recomputed: 0, ignored: 0, compared: 0, blocks: 0 };

describe.each(subjects)('$name', isOnDevice ? needsGpu() : {}, ({ name, model, ranks, secondFrom, ...extras }) => {
  const { predicts = false, isStaged = false, hasAdapter = false } = extras;
  it(`gives the same output in ${workloads * schedulesPerWorkload} random schedules of faults`, async () => {
    const startedMs = performance.now();
    const path = await model();
    const adapter = `${path}.lora`;
    if (hasAdapter) await writeAdapter(adapter, path);
    const harness = await RecoveryHarness.open(path, ranks, {
      ...{ secondFrom, predicts, isStaged },
      ...(hasAdapter ? { adapter } : {}),
    });
    /** By KV group. */
    const blocks: number[] = harness.groups.map(() => 0);
    const seen = { failed: 0, preempted: 0, aborted: 0, recomputed: 0, ignored: 0, compared: 0 };
    let requests = 0;
    let drafted = 0;
    try {
      for (const number of numbers) {
        const first = number * 1000;
        const workload = await Workload.prepare(harness, first);
        for (let seed = first; seed < first + schedulesPerWorkload; seed++) {
          if (onlySeed !== undefined && onlySeed !== seed) continue;
          await withSeed(seed, async () => {
            const { result, isCompared, comparedBlocks } = await workload.runSchedule(seed);
            for (const [group, count] of comparedBlocks.entries()) blocks[group] = (blocks[group] ?? 0) + count;
            if (isCompared) seen.compared++;
            requests += result.completions.length;
            drafted += result.stats.draftedTokens;
            seen.failed += result.failedBlocks;
            seen.preempted += result.stats.preemptions;
            seen.aborted += result.stats.aborts;
            seen.recomputed += result.stats.recomputedTokens;
            seen.ignored += ignoredReports(result);
          });
        }
      }
    } finally {
      await harness.close();
    }
    expect(drafted > 0).toBe(predicts);
    if (resultsFile !== undefined) {
      const row = {
        model: name,
        schedules: numbers.length * schedulesPerWorkload,
        firstSeed: numbers[0]! * 1000,
        requests,
      };
      const seconds = Math.round((performance.now() - startedMs) / 1000);
      appendFileSync(resultsFile, `${JSON.stringify({ ...row, ...seen, blocksWithSameBytes: blocks, seconds })}\n`);
    }
    for (const [what, count] of Object.entries({ ...seen, blocks: Math.min(...blocks) }))
      total[what as keyof typeof total] += count;
    // Schedules without effects would show nothing. The schedules of one workload may lack an effect on one model.
    if (onlySeed !== undefined || workloads === 1) return;
    // With several groups, preemptions are rare: a request needs few blocks for its next tokens. With adapters, requests share fewer
    // blocks, so fewer of them run at the same time.
    const { preempted, ...others } = seen;
    if (harness.groups.length === 1 && !hasAdapter) expect(preempted, JSON.stringify(seen)).toBeGreaterThan(0);
    for (const count of Object.values(others)) expect(count, JSON.stringify(seen)).toBeGreaterThan(0);
    for (const count of blocks) expect(count, `blocks with the same bytes: ${blocks.join(', ')}`).toBeGreaterThan(0);
    expect(seen.compared, JSON.stringify(seen)).toBeGreaterThan((workloads * schedulesPerWorkload) / 6);
  });
});

// One schedule may lack some of them, and so may those of two models.
const hasAll = onlySeed === undefined && !isOnDevice ? ['have'] : [];
it.each(hasAll)('the schedules of all models together %s each effect', () => {
  // Whether a request is preempted depends on the time of loads too.
  const { preempted, ...others } = total;
  if (workloads > 1) expect(preempted).toBeGreaterThan(0);
  for (const [what, count] of Object.entries(others)) expect(count, what).toBeGreaterThan(0);
});

// Bugs of the planner are the same on each device.
describe.each(isOnDevice ? [] : ['an engine that recomputes more than necessary'])('%s', () => {
  it.each(plantedBugs)('breaks I3, and no other check, with the bug %s', async (bug) => {
    const harness = await RecoveryHarness.open('models/kvasir-demo.gguf');
    const workload = await Workload.prepare(harness, 1000);
    const removeBug = plant(bug, { KvCache, ExternalKv });
    try {
      const failures: unknown[] = [];
      for (let seed = 1000; seed < 1000 + schedulesPerWorkload; seed++)
        await workload.runSchedule(seed).catch((error: unknown) => failures.push(error));
      expect(failures.length).toBeGreaterThan(0);
      // Only I3 fails: the texts are the same.
      for (const failure of failures) expect(String(failure)).toContain('I3');
    } finally {
      removeBug();
      await harness.close();
    }
  });
});

async function withSeed(seed: number, run: () => Promise<void>): Promise<void> {
  try {
    await run();
  } catch (error) {
    const again = `RECOVERY_SEED=${seed} npx vitest run test/recovery-schedules.test.ts`;
    throw new Error(`schedule ${seed} failed; again: ${again}`, { cause: error });
  }
}

/** Requests, their output without faults, and the KV that an earlier run has stored. */
class Workload {
  readonly #harness: RecoveryHarness;
  readonly #requests: readonly HarnessRequest[];
  readonly #reference: readonly Completion[];
  readonly #stored: StoredBlocks;

  private constructor(
    harness: RecoveryHarness,
    requests: readonly HarnessRequest[],
    reference: RunResult,
    stored: StoredBlocks,
  ) {
    this.#harness = harness;
    this.#requests = requests;
    this.#reference = reference.completions;
    this.#stored = stored;
  }

  static async prepare(harness: RecoveryHarness, seed: number): Promise<Workload> {
    const prng = new Prng(seed);
    const requests = randomRequests(prng, harness.vocabSize).map((request, i) =>
      harness.adapter === undefined || i % 2 === 0 ? request : { ...request, lora: harness.adapter.name },
    );
    const alone: Completion[] = [];
    let reference: RunResult | undefined;
    for (const request of requests) {
      reference = await harness.run({ requests: [request] });
      alone.push(...reference.completions);
    }
    const saver = await harness.run({ requests, store: { mode: 'async' } });
    expectSame(saver.completions, alone);
    return new Workload(harness, requests, { ...reference!, completions: alone }, saver.stored);
  }

  /** `isCompared`: whether the minimum is known and was compared. `comparedBlocks`: blocks whose bytes were compared, by KV group. */
  async runSchedule(
    seed: number,
  ): Promise<{ readonly result: RunResult; readonly isCompared: boolean; readonly comparedBlocks: readonly number[] }> {
    const prng = new Prng(seed);
    const schedule = randomSchedule(prng, this.#requests, this.#harness);
    const store = { ...schedule.store!, stored: randomPart(prng, this.#stored) };
    const result = await this.#harness.run({ ...schedule, store });
    expectSame(result.completions, this.#reference, schedule);
    const comparedBlocks = expectSameBlocks(result.stored, this.#stored);
    const { preemptions, aborts, computedTokens, recomputedTokens } = result.stats;
    // A preempted request recomputes its tokens; a late report of a sync load costs the tokens that depend on the load.
    const isRegular = preemptions === 0 && aborts === 0 && schedule.store?.reports === undefined;
    const hasOneGroup = this.#harness.groups.length === 1;
    if (isRegular && hasOneGroup) expect(recomputedTokens, 'I3').toBeLessThanOrEqual(result.failedBlocks * blockSize);
    // In a small pool, a block may be evicted before the next request that has it arrives.
    const isCompared = isRegular && schedule.blocks === undefined && (hasOneGroup || schedule.isSequential === true);
    const minimum = this.#minimum(result);
    if (!isCompared) return { result, isCompared, comparedBlocks };
    expect(computedTokens, 'I3').toBe(minimum);
    return { result, isCompared, comparedBlocks };
  }

  /** With one group, requests run at the same time, so blocks that one of them has loaded are available to all. */
  #minimum({ arrived, arrivedAtEnd, completions }: RunResult): number {
    const { fingerprint, groups, adapter } = this.#harness;
    const names = (lora: string | undefined) => (lora === undefined ? {} : { adapter: adapter?.digest });
    const requests = this.#requests.map(({ prompt, lora }, i) => ({
      tokenCount: (prompt as number[]).length,
      keys: keysInGroups(prompt as number[], groups, fingerprint, names(lora)),
      outputTokens: completions[i]!.tokens.length,
      available: groups.length === 1 ? arrived : arrivedAtEnd[i]!,
    }));
    return neededTokens(requests, groups);
  }
}

function expectSame(completions: readonly Completion[], reference: readonly Completion[], schedule?: RunOptions): void {
  for (const [i, { text, tokens, logprobs, reason }] of completions.entries()) {
    const wanted = reference[i]!;
    const isCut = reason === 'abort';
    if (schedule?.requests[i]?.abortAfter === undefined && schedule?.closeAfter === undefined)
      expect(reason, `request ${i}`).toBe(wanted.reason);
    const count = isCut ? tokens.length : wanted.tokens.length;
    expect(tokens, `tokens of request ${i}`).toEqual(wanted.tokens.slice(0, count));
    expect(logprobs, `logprobs of request ${i}`).toEqual(wanted.logprobs.slice(0, count));
    if (!isCut) expect(text, `text of request ${i}`).toBe(wanted.text);
  }
}

/** A block that was computed and stored again has the bytes of the block that was stored first. Returns how many, by KV group. */
function expectSameBlocks(again: StoredBlocks, first: StoredBlocks): number[] {
  const compared: number[] = [];
  for (const [rank, blocks] of again.entries())
    for (const [key, bytes] of blocks) {
      const wanted = first[rank]!.get(key);
      if (wanted === undefined) continue;
      const group = groupOfKey(key);
      compared[group] = (compared[group] ?? 0) + 1;
      assert(Buffer.compare(bytes, wanted) === 0, `I2: block ${key} of rank ${rank} has other bytes`);
    }
  return Array.from(compared, (count) => count ?? 0);
}

function randomSchedule(
  prng: Prng,
  requests: readonly HarnessRequest[],
  { identities, groups }: RecoveryHarness,
): RunOptions {
  const hasGroups = groups.length > 1;
  const isSequential = hasGroups && prng.chance(0.7);
  // In a small pool, requests preempt each other.
  const isTight = !isSequential && prng.chance(hasGroups ? 0.6 : 0.4);
  const blocksOf = ({ prompt, params }: HarnessRequest): number => {
    const tokens = (prompt as number[]).length + params!.maxTokens!;
    return groups.reduce((sum, group) => sum + createGroup(group).blocksMax(tokens), 0);
  };
  const largest = Math.max(...requests.map(blocksOf));
  const loadTimeoutMs = prng.between(15, 40);
  return {
    requests: requests.map((request) => ({
      ...request,
      ...(prng.chance(0.4) ? { arriveMs: prng.between(1, 15) } : {}),
      ...(prng.chance(0.08) ? { abortAfter: prng.between(0, 4) } : {}),
    })),
    loadTimeoutMs,
    isSequential,
    // The longest request must fit; there may be few other blocks.
    ...(isTight ? { blocks: 1 + largest + prng.between(1, hasGroups ? 4 : 8) } : {}),
    ...(prng.chance(0.05) ? { closeAfter: prng.between(1, 12) } : {}),
    scheduler: {
      maxNumBatchedTokens: prng.pick([16, 33, 64, 256]),
      maxNumSeqs: prng.pick([2, 16]),
      ...(prng.chance(0.2) ? { longPrefillTokenThreshold: 24 } : {}),
    },
    store: {
      mode: prng.chance(0.5) ? 'sync' : 'async',
      faults: identities.map(() => randomFaults(prng, loadTimeoutMs)),
      ...(prng.chance(0.2) ? { reports: randomReports(prng) } : {}),
      ...(prng.chance(0.1) ? { maxBytes: 200_000 } : {}),
    },
  };
}

const randomReports = (prng: Prng) => ({ seed: prng.uint32(), duplicate: 0.3, late: 0.3, unknown: 0.3 });

/** Usually all stored blocks; sometimes a random part is missing. */
function randomPart(prng: Prng, stored: StoredBlocks): StoredBlocks {
  const kept = prng.pick([1, 1, 0.7]);
  return stored.map((blocks) => new Map([...blocks].filter(() => prng.chance(kept))));
}
