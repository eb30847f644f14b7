import { type BlockKey, groupOfKey } from '../../connector/block-key.ts';
import type { Completion, CompletionUsage } from '../proof/completion.ts';
import { longestBlock, type ReferenceGroup } from '../proof/needed-tokens.ts';
import { isEqualOn, type StoredCrcs } from '../proof/stored-blocks.ts';
import { unifiedDiff } from './unified-diff.ts';

/** One line of the table. Tokens are summed over the stage's prompts. */
export interface StageRow {
  readonly name: string;
  readonly loaded: number;
  readonly failed: number;
  /** All tokens that the stage computed, and the minimum of the reference (`needed-tokens.ts`). */
  readonly computed: number;
  readonly minimum: number;
  /** The tokens computed because of failed loads or preemptions: counted by the engine, and by the reference. */
  readonly recomputed: number;
  readonly repairMinimum: number;
  readonly preemptions: number;
  /** The stage must preempt requests, which load their KV from a tier. */
  readonly mustPreempt: boolean;
  /**
   * How many tokens more than the minimum the stage may compute: less than a block for each request that was preempted before its
   * first output token. It is not known how many tokens of its prompt were computed then.
   */
  readonly allowance: number;
  /** Median over the prompts. */
  readonly firstTokenMs: number;
  /** Blocks that failed, and how many of them have the CRC of the original bytes after recomputing. */
  readonly blocksFailed: number;
  readonly blocksEqual: number;
  /** By KV group; one group if all layers have full attention. */
  readonly groups: readonly GroupRow[];
  readonly isTextEqual: boolean;
  readonly seconds: number;
  readonly events: readonly string[];
}

/** What failed in one KV group. */
export interface GroupRow {
  readonly kind: ReferenceGroup['kind'];
  /** With kind `window`. */
  readonly window?: number | undefined;
  /** Tokens of the blocks that failed, and of those that were recomputed with the CRC of the original bytes. */
  readonly lost: number;
  readonly recomputed: number;
}

export interface StageFacts {
  readonly name: string;
  readonly completions: readonly Completion[];
  readonly reference: readonly Completion[];
  readonly groups: readonly ReferenceGroup[];
  /** The blocks that fail, with the ranks on which they fail. On other ranks they are loaded, and host memory has them. */
  readonly failing: ReadonlyMap<BlockKey, readonly number[]>;
  readonly minimum: number;
  readonly repairMinimum: number;
  /** The number of preemptions; only of a stage that must preempt requests, which must load their KV from a tier. */
  readonly preemptions?: number;
  /** The CRCs of the blocks that the prefill stage stored, and of those that this stage stored. */
  readonly stored: StoredCrcs;
  readonly computed: StoredCrcs;
  readonly seconds: number;
  /** Warnings of the server. */
  readonly events: readonly string[];
}

export function rowOf(facts: StageFacts): StageRow {
  const { completions, reference, groups, failing, preemptions = 0 } = facts;
  const failedKeys = new Set(failing.keys());
  const mustPreempt = facts.preemptions !== undefined;
  const sum = (of: (usage: CompletionUsage) => number): number =>
    completions.reduce((total, { usage }) => total + of(usage), 0);
  const tokensOf = (keys: Iterable<BlockKey>): number =>
    [...keys].reduce((total, key) => total + groups[groupOfKey(key)]!.blockSize, 0);
  const failedBlocks = sum(({ failedLoads }) => failedLoads);
  // Every failed block is one that the stage lets fail, unless the machine was too busy.
  const failed = failedBlocks === failedKeys.size ? tokensOf(failedKeys) : failedBlocks * groups[0]!.blockSize;
  const equal = [...failing].flatMap(([key, ranks]) =>
    isEqualOn(ranks, key, facts.stored, facts.computed) ? [key] : [],
  );
  const groupRows = groups.map(({ kind, window }, group): GroupRow => {
    const ofGroup = (keys: Iterable<BlockKey>): number =>
      tokensOf([...keys].filter((key) => groupOfKey(key) === group));
    return { kind, window, lost: ofGroup(failedKeys), recomputed: ofGroup(equal) };
  });
  return {
    name: facts.name,
    loaded:
      groups.length === 1 && preemptions === 0
        ? sum(({ externalTokens }) => externalTokens) - failed
        : sum(({ loadedTokens }) => loadedTokens),
    failed,
    computed: sum(({ computedTokens }) => computedTokens),
    minimum: facts.minimum,
    recomputed: sum(({ recomputedTokens }) => recomputedTokens),
    repairMinimum: facts.repairMinimum,
    preemptions,
    mustPreempt,
    allowance: mustPreempt
      ? completions.filter(({ usage }) => usage.repairedAfter.includes(0)).length * longestBlock(groups)
      : 0,
    firstTokenMs: medianOf(completions.map(({ firstTokenMs }) => firstTokenMs)),
    blocksFailed: failedKeys.size,
    blocksEqual: equal.length,
    groups: groupRows,
    isTextEqual: completions.every(({ answer }, i) => answer === reference[i]?.answer),
    seconds: facts.seconds,
    events: facts.events,
  };
}

function medianOf(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1]! + sorted[sorted.length >> 1]!) / 2;
}

/** Whether a stage succeeded: its faults and preemptions happened, the output is equal, and only the minimum was computed. */
export const isProven = (row: StageRow): boolean =>
  row.isTextEqual &&
  row.computed >= row.minimum &&
  row.computed <= row.minimum + row.allowance &&
  row.recomputed >= row.repairMinimum &&
  row.recomputed <= row.repairMinimum + row.allowance &&
  row.blocksEqual === row.blocksFailed &&
  row.failed > 0 === row.blocksFailed > 0 &&
  (!row.mustPreempt || (row.preemptions > 0 && row.loaded > 0));

/** Differences between the texts of a stage and the expected texts; empty if there are none. */
export function differencesOf({ name, completions, reference }: StageFacts): string {
  return completions
    .map((completion, i) => {
      const expected = reference[i];
      if (completion.answer === expected?.answer) return '';
      const diff = unifiedDiff(
        { name: `prompt ${i + 1}, without a fault`, text: expected?.text ?? '' },
        { name: `prompt ${i + 1}, ${name}`, text: completion.text },
      );
      const isTextEqual = completion.text === expected?.text;
      return isTextEqual ? `${diff}(the texts are equal; tokens or logprobs are not)\n` : diff;
    })
    .join('');
}
