import type { JsonObject, JsonValue } from '../../base/json.ts';
import type { BlockKey } from '../../connector/block-key.ts';
import type { ReferenceGroup } from '../proof/needed-tokens.ts';

/** The prompts of vLLM's example `kv_load_failure_recovery`: two pairs with shared prefixes. */
export const promptTexts: readonly string[] = [
  `${'Hi '.repeat(1000)}Hello, my name is`,
  `${'Hi '.repeat(1000)}The capital of France is`,
  `${'Hey '.repeat(500)}Your name is`,
  `${'Hey '.repeat(500)}The capital of China is`,
];

/** The limits of that example: a step has at most 64 tokens, so recomputing takes several steps. */
export const limits = ['--max-num-batched-tokens', '64', '--max-num-seqs', '16'] as const;

export const maxTokens = 32;
export const samplings = {
  greedy: { temperature: 0 },
  seeded: { temperature: 0.8, seed: 42 },
} as const satisfies Record<string, JsonObject>;
export type SamplingName = keyof typeof samplings;

/** By KV group, the keys of a prompt's blocks that requests load. */
export type PromptKeys = readonly (readonly BlockKey[])[];

/** A server that loads the blocks of the prefill stage. Without `fault`, its store works. */
export interface DecodeStage {
  readonly name: string;
  readonly ranks: 1 | 2;
  readonly sampling: SamplingName;
  readonly mode: 'sync' | 'async';
  readonly fault?: StageFault;
}

export interface StageFault {
  readonly kind: 'missing' | 'bitFlip' | 'hung';
  /** The blocks that fail, by rank. A block that fails on one rank is invalid on all ranks. */
  choose(prompts: readonly PromptKeys[], groups: readonly ReferenceGroup[]): readonly (readonly BlockKey[])[];
}

/** The smallest number of full blocks in a prompt for which the fault of every stage has a block. */
export const blocksMin = 6;

/** Of the first KV group, which has full attention if the model has any. */
const keyAt = ([keys]: PromptKeys, part: number): BlockKey => keys![Math.floor(keys!.length * part)]!;
const tailFrom = ([keys]: PromptKeys, part: number): readonly BlockKey[] =>
  keys!.slice(Math.floor(keys!.length * part));

const lastThirds: StageFault = {
  kind: 'missing',
  choose: ([first, , third]) => [[...tailFrom(first!, 2 / 3), ...tailFrom(third!, 2 / 3)]],
};
const one = { ranks: 1, sampling: 'greedy' } as const;

/** Every block of the first prompt, in all groups. Other prompts lose those that they share with it. */
const allOfFirst: StageFault = { kind: 'missing', choose: ([first]) => [first!.flat()] };

export const decodeStages: readonly DecodeStage[] = [
  { ...one, name: 'decode', mode: 'sync' },
  { ...one, name: 'failed load, sync', mode: 'sync', fault: lastThirds },
  { ...one, name: 'failed load, async', mode: 'async', fault: lastThirds },
  { ...one, name: 'no block loads, sync', mode: 'sync', fault: allOfFirst },
  { ...one, name: 'no block loads, async', mode: 'async', fault: allOfFirst },
  {
    ...one,
    name: 'corrupt bytes',
    mode: 'async',
    fault: {
      kind: 'bitFlip',
      choose: ([first, second, third]) => [[keyAt(first!, 0), keyAt(second!, 0.5), keyAt(third!, 0.9)]],
    },
  },
  {
    ...one,
    name: 'a hole in the middle',
    mode: 'sync',
    fault: { kind: 'missing', choose: ([first]) => [[keyAt(first!, 0.5)]] },
  },
  {
    ...one,
    name: 'hung store',
    mode: 'async',
    fault: { kind: 'hung', choose: ([first, , , fourth]) => [[keyAt(first!, 0.3), keyAt(fourth!, 0.7)]] },
  },
  { name: 'seeded, temperature 0.8', ranks: 1, sampling: 'seeded', mode: 'async', fault: lastThirds },
  {
    name: 'two ranks, other blocks',
    ranks: 2,
    sampling: 'greedy',
    mode: 'async',
    fault: {
      kind: 'missing',
      choose: ([first, , third]) => [[keyAt(first!, 0.2), keyAt(third!, 0.5)], [keyAt(first!, 0.6)]],
    },
  },
];

/** The last blocks of two prompts fail in every group of one kind, and no block of other groups. */
const lastBlocks = (kind: ReferenceGroup['kind']): StageFault => ({
  kind: 'missing',
  choose: ([first, , third], groups) => [
    [...groups.entries()].flatMap(([group, { kind: ofGroup }]) =>
      ofGroup === kind ? [first![group]!.at(-1)!, third![group]!.at(-1)!] : [],
    ),
  ],
});

/** Only for models with layers of this kind. */
const groupStages: readonly (DecodeStage & { readonly of: ReferenceGroup['kind'] })[] = [
  { ...one, of: 'window', name: 'the last window', mode: 'async', fault: lastBlocks('window') },
  { ...one, of: 'state', name: 'the last state, sync', mode: 'sync', fault: lastBlocks('state') },
  { ...one, of: 'state', name: 'the last state, async', mode: 'async', fault: lastBlocks('state') },
];

/** The stages for a model with these KV groups. */
export const stagesFor = (groups: readonly ReferenceGroup[]): readonly DecodeStage[] => [
  ...decodeStages,
  ...groupStages.filter(({ of }) => groups.some(({ kind }) => kind === of)),
];

/** Servers that keep KV in the tiers of `OffloadingConnector`. */
export type TierStage =
  /** The pool is too small for all requests: some are preempted, and load their KV from host memory. */
  | { readonly name: string; readonly kind: 'preempted' }
  /** A server ends, and the next one with the same tiers loads from the disk what it stored. */
  | { readonly name: string; readonly kind: 'restarted' };

export const tierStages: readonly TierStage[] = [
  { name: 'preempted, host memory', kind: 'preempted' },
  { name: 'restarted, disk tier', kind: 'restarted' },
];

/** The names of all stages of models of any kind. */
export const stageNames: readonly string[] = [...decodeStages, ...groupStages, ...tierStages].map(({ name }) => name);

/** The connector's fault plans: one per rank, with the keys of the blocks. */
export function faultPlans(kind: StageFault['kind'], failedKeys: readonly (readonly BlockKey[])[]): JsonValue {
  return failedKeys.map((keys): JsonObject => ({ seed: 1, rules: [{ fault: kind, on: 'load', keys: [...keys] }] }));
}
