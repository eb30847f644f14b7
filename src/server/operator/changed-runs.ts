/**
 * The runs of cells that differ: `[first cell, length, cell, ...]`. Equal neighbours are one run. `before` undefined: all
 * cells. The null block is left out.
 */
export function changedRuns(before: Uint8Array | undefined, after: Uint8Array): number[] {
  const runs: number[] = [];
  for (let at = 1; at < after.length; ) {
    const cell = after[at]!;
    if (before?.[at] === cell) {
      at++;
      continue;
    }
    const start = at;
    while (at < after.length && after[at] === cell && before?.[at] !== cell) at++;
    runs.push(start, at - start, cell);
  }
  return runs;
}
