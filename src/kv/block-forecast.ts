import { type BlockId, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import type { KvParts } from './kv-parts.ts';
import type { KvRequest } from './kv-request.ts';

/** How many steps a forecast covers at most. With more, fewer requests are preempted, but fewer are admitted. */
export const FORECAST_STEPS = 8;

/**
 * How many blocks admitted requests will need in addition to those that they have, if each computes one token per step.
 * Within the forecast, a request needs at most one for each group. Blocks of requests that certainly end count as
 * available from the step after their last token on.
 *
 *   step                         0  1  2  3  4  5  6  7
 *   request a fills a block        +1
 *   request b ends                       -3
 *   request c fills a block                     +1
 *   sum                          0  1  1 -2 -2 -1 -1 -1     peak: 1
 */
export class BlockForecast {
  readonly #parts: KvParts;
  /** By step: blocks that are needed from this step on, minus blocks that become available. */
  readonly #changes: Int32Array;
  #toEnd = 0;

  constructor(parts: KvParts) {
    this.#parts = parts;
    const sizes = parts.spec.groups.map(({ blockSize }) => blockSize);
    this.#changes = new Int32Array(Math.min(FORECAST_STEPS, ...sizes));
  }

  clear(): void {
    this.#changes.fill(0);
    this.#toEnd = 0;
  }

  /** The largest number of blocks that are needed at one time within the steps of the forecast. */
  peak(): number {
    let sum = 0;
    let peak = 0;
    for (let step = 0; step < this.#changes.length; step++) {
      sum += this.#changes[step]!;
      if (sum > peak) peak = sum;
    }
    return peak;
  }

  /** Blocks that are needed if no request ends before all others have their last token. */
  get toEnd(): number {
    return this.#toEnd;
  }

  /**
   * Adds a request that has blocks, or will have blocks for all its tokens. `tokensMax`: the largest number of output
   * tokens that it may still get. Also counts blocks that become available when it ends. O(groups), and O(blocks) if it
   * ends within the forecast.
   */
  add(request: KvRequest, tokensMax: number): void {
    this.addGrowth(request, tokensMax, 1);
    // If step 0 does not compute its last token, it is not known in which step it ends.
    if (tokensMax < this.#changes.length && request.tokensLeft() === 0)
      this.#changes[tokensMax]! -= this.#ownBlocks(request);
  }

  /** As `add`, without the request's end. `times`: -1 takes it back. */
  addGrowth(request: KvRequest, tokensMax: number, times: 1 | -1): void {
    const { groups, spec } = this.#parts;
    const { length } = request.tokens;
    for (let group = groupIndex(0); group < groups.length; group++) {
      const { blockSize } = spec.groups[group]!;
      const blocks = request.admitted ? request.tables[group]!.length : Math.ceil(length / blockSize);
      // Other groups release a block for each block that they allocate, one step later.
      const most = groups[group]!.allocatesAll ? Infinity : 1;
      this.#toEnd += times * Math.min(Math.max(Math.ceil((length + tokensMax - 1) / blockSize) - blocks, 0), most);
      const end = Math.min(tokensMax, this.#changes.length);
      // Step `s` computes the token at position `length - 1 + s`.
      let step = Math.max(blocks * blockSize - length + 1, 0);
      for (let count = 0; step < end && count < most; count++, step += blockSize) this.#changes[step]! += times;
    }
  }

  /** Blocks that become available when the request ends. */
  #ownBlocks({ tables, firstAllocated }: KvRequest): number {
    const { pool } = this.#parts;
    let own = 0;
    for (let group = groupIndex(0); group < tables.length; group++) {
      const { ids, length } = tables[group]!;
      for (let index = firstAllocated[group]!; index < length; index++) {
        const block = ids[index] as BlockId;
        if (block !== NULL_BLOCK && pool.references(block) === 1 && !pool.isPinned(block)) own++;
      }
    }
    return own;
  }
}
