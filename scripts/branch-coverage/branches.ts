/**
 * Branches of scripts, from V8's counts. A branch is a range with a count of its own: of an if, ?:, ??, &&, a loop, a case or a function.
 * V8 does not count an `if` without `else` that is always true, or optional chaining.
 */

export interface FunctionRanges {
  readonly ranges: readonly Range[];
}

interface Range {
  readonly startOffset: number;
  readonly endOffset: number;
  readonly count: number;
}

/** A script in one process. */
export interface RunScript {
  readonly path: string;
  readonly code: string;
  readonly functions: readonly FunctionRanges[];
}

export interface Branches {
  /** All branches without code that runs only when an assertion fails. */
  readonly count: number;
  readonly assertions: number;
  readonly unreached: readonly UnreachedBranch[];
}

export interface UnreachedBranch {
  /** The offset of the branch's first code, not of the space before it. */
  readonly offset: number;
  readonly text: string;
}

/** Whether a branch is code that runs only when an assertion fails. */
export type IsAssertion = (text: string) => boolean;

export const isFailedAssertion: IsAssertion = (text) =>
  /^[\s{]*(?:default:\s*return )?(?:assert\(false|assertNever\(|fail\w*\()/.test(text);

/** The branches of one script, which several processes have run. A branch is reached if it ran in one of them. */
export function branchesOf(runs: readonly RunScript[], isAssertion: IsAssertion): Branches {
  const { code } = runs[0]!;
  const counts = runs.map(({ functions }) => functions.flatMap(({ ranges }) => ranges));
  const all = new Map(counts.flat().map((range) => [`${range.startOffset} ${range.endOffset}`, range]));
  const unreached: UnreachedBranch[] = [];
  let assertions = 0;
  for (const range of all.values()) {
    const text = code.slice(range.startOffset, range.endOffset);
    // Ranges without code do not count as unreached.
    if (/^[\s{}]*$/.test(text) || counts.some((ranges) => countOf(range, ranges) > 0)) continue;
    if (isAssertion(text)) assertions++;
    else {
      const offset = range.startOffset + /^[\s{?:]*/.exec(text)![0].length;
      unreached.push({ offset, text: text.replace(/\s+/g, ' ').slice(0, 100) });
    }
  }
  return { count: all.size - assertions, assertions, unreached };
}

/** V8 leaves out a range with the count of the range around it, so the smallest range that contains this one has its count. */
function countOf({ startOffset, endOffset }: Range, ranges: readonly Range[]): number {
  let smallest: Range | undefined;
  for (const range of ranges) {
    if (range.startOffset > startOffset || range.endOffset < endOffset) continue;
    if (smallest === undefined || range.endOffset - range.startOffset <= smallest.endOffset - smallest.startOffset)
      smallest = range;
  }
  return smallest?.count ?? 0;
}
