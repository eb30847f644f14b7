/** A request with a proposed draft. */
export interface DraftChances {
  /** The probability that the first `i + 1` drafts are all accepted; never increases. */
  readonly chances: readonly number[];
}

/**
 * How many drafts of each request a step computes: those that give the most tokens per millisecond. `decodes`: tokens
 * that the step gives in any case. `msOf(drafts)`: the predicted duration with so many more rows.
 *
 * The rows with the best chances come first. Each number of rows is tried, because the duration is no smooth function
 * of the rows: kernels compute several rows at a time.
 */
export function chooseDrafts(
  proposals: readonly DraftChances[],
  decodes: number,
  rowsMax: number,
  msOf: (drafts: number) => number,
): number[] {
  const rows = proposals.flatMap(({ chances }, request) => chances.map((chance) => ({ request, chance })));
  // A stable sort keeps the rows of a request in order.
  rows.sort((a, b) => b.chance - a.chance);
  let tokens = decodes;
  let best = decodes / msOf(0);
  let taken = 0;
  for (let count = 1; count <= Math.min(rows.length, rowsMax); count++) {
    tokens += rows[count - 1]!.chance;
    const rate = tokens / msOf(count);
    if (rate <= best) continue;
    best = rate;
    taken = count;
  }
  const drafts = proposals.map(() => 0);
  for (let i = 0; i < taken; i++) drafts[rows[i]!.request]!++;
  return drafts;
}
