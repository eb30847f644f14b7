import { kernelSizes } from './attention-kernel.ts';
import type { RowRun } from './work-units.ts';

/** Decoding requests whose block tables begin with the same blocks: a tree of prefixes, its leaves in order. */
export interface PrefixTree {
  /** One row each; runs that share a longer prefix are neighbours. */
  readonly runs: readonly RowRun[];
  readonly shared: readonly SharedRanges[];
  /** For each run, the first range that it shares with no other run. */
  readonly aloneFrom: readonly number[];
}

/** `runs[firstRun .. firstRun + runCount - 1]` see all of the ranges [first, end), in the same blocks. */
export interface SharedRanges {
  readonly firstRun: number;
  readonly runCount: number;
  readonly first: number;
  readonly end: number;
}

export interface Sharing {
  readonly trees: readonly PrefixTree[];
  /** The other runs, in their order. */
  readonly alone: readonly RowRun[];
}

/**
 * Finds requests whose shared prefixes can be computed together. Chunks of prompts are not included: each has so many
 * rows that sharing the reads of blocks saves little. Each block table is read once: O(blocks).
 */
export function findSharedPrefixes(
  runs: readonly RowRun[],
  positions: Int32Array,
  tables: Int32Array,
  blockSize: number,
): Sharing {
  if (runs.length < 2 || kernelSizes.range % blockSize !== 0) return { trees: [], alone: runs };
  const search = new Search(positions, tables, kernelSizes.range / blockSize);
  const trees: PrefixTree[] = [];
  const alone: RowRun[] = [];
  for (const group of search.groupsAt(runs, 0)) {
    if (group.length === 1) alone.push(group[0]!);
    else trees.push(search.treeOf(group));
  }
  return { trees, alone };
}

class Search {
  readonly #positions: Int32Array;
  readonly #tables: Int32Array;
  readonly #blocksPerRange: number;

  constructor(positions: Int32Array, tables: Int32Array, blocksPerRange: number) {
    this.#positions = positions;
    this.#tables = tables;
    this.#blocksPerRange = blocksPerRange;
  }

  /** Groups of runs with the same blocks in this range; a run that does not see all of the range is a group of one. */
  groupsAt(runs: readonly RowRun[], range: number): RowRun[][] {
    const groups: RowRun[][] = [];
    const byBlock = new Map<number, RowRun[][]>();
    for (const run of runs) {
      if (!this.#seesWhole(run, range)) {
        groups.push([run]);
        continue;
      }
      const block = this.#tables[run.table + range * this.#blocksPerRange]!;
      const candidates = byBlock.get(block) ?? [];
      const group = candidates.find(([other]) => this.#isEqual(other!, run, range));
      if (group !== undefined) {
        group.push(run);
        continue;
      }
      const fresh = [run];
      groups.push(fresh);
      candidates.push(fresh);
      byBlock.set(block, candidates);
    }
    return groups;
  }

  treeOf(group: readonly RowRun[]): PrefixTree {
    const tree = { runs: [] as RowRun[], shared: [] as SharedRanges[], aloneFrom: [] as number[] };
    this.#grow(tree, group, 0);
    return tree;
  }

  /** The runs of `group` have the same blocks in `range`. */
  #grow(
    tree: { runs: RowRun[]; shared: SharedRanges[]; aloneFrom: number[] },
    group: readonly RowRun[],
    range: number,
  ): void {
    const [first] = group;
    let end = range + 1;
    while (group.every((run) => this.#seesWhole(run, end) && this.#isEqual(first!, run, end))) end++;
    tree.shared.push({ firstRun: tree.runs.length, runCount: group.length, first: range, end });
    for (const part of this.groupsAt(group, end)) {
      if (part.length > 1) {
        this.#grow(tree, part, end);
        continue;
      }
      tree.runs.push(part[0]!);
      tree.aloneFrom.push(end);
    }
  }

  #seesWhole({ rowCount, firstRow }: RowRun, range: number): boolean {
    return rowCount === 1 && this.#positions[firstRow]! + 1 >= (range + 1) * kernelSizes.range;
  }

  #isEqual(a: RowRun, b: RowRun, range: number): boolean {
    const from = range * this.#blocksPerRange;
    for (let block = from; block < from + this.#blocksPerRange; block++)
      if (this.#tables[a.table + block] !== this.#tables[b.table + block]) return false;
    return true;
  }
}
