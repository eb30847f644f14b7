import type { BlockKey } from '../../connector/block-key.ts';
import { compareBlock, type StoredCrcs } from '../proof/stored-blocks.ts';
import type { StageAnswer, StageCompletion } from './stage-run.ts';
import { unifiedDiff } from './unified-diff.ts';

/** One line of the table. Tokens are summed over the stage's prompts. */
export interface StageRow {
  readonly name: string;
  readonly loaded: number;
  readonly failed: number;
  /** All tokens that the stage computed, and what the reference says it had to (`needed-tokens.ts`). */
  readonly computed: number;
  readonly minimum: number;
  /** Of the computed tokens, those beyond what had to be computed without the loss: as the engine says, and as the reference does. */
  readonly recomputed: number;
  readonly repairMinimum: number;
  /** Median over the prompts. */
  readonly firstTokenMs: number;
  /** Blocks that were lost, and how many of them came out of the recomputation with the CRC of what was lost. */
  readonly blocksFailed: number;
  readonly blocksEqual: number;
  readonly isTextEqual: boolean;
  readonly seconds: number;
  readonly events: readonly string[];
}

export interface StageFacts {
  readonly name: string;
  readonly answer: StageAnswer;
  readonly completions: readonly StageCompletion[];
  readonly reference: readonly StageCompletion[];
  readonly blockSize: number;
  readonly ranks: number;
  readonly failedKeys: ReadonlySet<BlockKey>;
  readonly minimum: number;
  readonly repairMinimum: number;
  /** CRCs of what the prefill stage stored, and of what this stage did. */
  readonly stored: StoredCrcs;
  readonly computed: StoredCrcs;
  readonly seconds: number;
}

export function rowOf(facts: StageFacts): StageRow {
  const { completions, reference, blockSize, failedKeys } = facts;
  const sum = (of: (completion: StageCompletion) => number): number =>
    completions.reduce((total, completion) => total + of(completion), 0);
  const failed = sum(({ failedBlocks }) => failedBlocks) * blockSize;
  const equal = [...failedKeys].filter((key) => compareBlock(key, facts.ranks, facts.stored, facts.computed).isEqual);
  return {
    name: facts.name,
    loaded: sum(({ promisedTokens }) => promisedTokens) - failed,
    failed,
    computed: sum(({ computedTokens }) => computedTokens),
    minimum: facts.minimum,
    recomputed: sum(({ recomputedTokens }) => recomputedTokens),
    repairMinimum: facts.repairMinimum,
    firstTokenMs: medianOf(completions.map(({ firstTokenMs }) => firstTokenMs)),
    blocksFailed: failedKeys.size,
    blocksEqual: equal.length,
    isTextEqual: completions.every((completion, i) => isSame(completion, reference[i])),
    seconds: facts.seconds,
    events: facts.answer.events,
  };
}

/** Text, tokens, and the bits of the logprobs. */
function isSame(a: StageCompletion, b: StageCompletion | undefined): boolean {
  return (
    b !== undefined && JSON.stringify([a.text, a.tokens, a.logprobs]) === JSON.stringify([b.text, b.tokens, b.logprobs])
  );
}

function medianOf(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1]! + sorted[sorted.length >> 1]!) / 2;
}

/** Whether a stage has shown what it is there to show: every fault was met, and nobody would have noticed. */
export const isProven = (row: StageRow): boolean =>
  row.isTextEqual &&
  row.computed === row.minimum &&
  row.recomputed === row.repairMinimum &&
  row.blocksEqual === row.blocksFailed &&
  row.failed > 0 === row.blocksFailed > 0;

/** Differences between a stage's texts and those that it should have written; empty when there are none. */
export function differencesOf({ name, completions, reference }: StageFacts): string {
  return completions
    .map((completion, i) => {
      const expected = reference[i];
      if (isSame(completion, expected)) return '';
      const diff = unifiedDiff(
        { name: `prompt ${i + 1}, without a fault`, text: expected?.text ?? '' },
        { name: `prompt ${i + 1}, ${name}`, text: completion.text },
      );
      const isTextEqual = completion.text === expected?.text;
      return isTextEqual ? `${diff}(the texts are equal; tokens or logprobs are not)\n` : diff;
    })
    .join('');
}
