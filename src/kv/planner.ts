import { assert } from '../base/assert.ts';
import { blockIndexOf, type GroupIndex, groupIndex } from '../core/ids.ts';
import type { SpanList } from './span-list.ts';

/**
 * The same question arises after a prefix hit, an external hit, a failed load, a preemption and a crash. Given the
 * valid KV of each group, which tokens must be computed for the logits of the last token?
 *
 * The answer C contains the last token, and all tokens from `computeFrom` on. For each token p in C, it contains every token whose KV or state p needs and
 * that is not valid. C is the smallest such set. What p needs:
 *   full     KV of every q < p
 *   window   KV of every q in [p - window + 1, p - 1]
 *   state    the state after p - 1: at position 0, at a checkpoint, or because p - 1 is in C
 */
export interface GroupValidity {
  readonly kind: 'full' | 'window' | 'state';
  readonly blockSize: number;
  /** Tokens that one token reads, itself included; `Infinity` unless the kind is `window`. */
  readonly window: number;
  /** How many block indices `validTokens` describes. Blocks from this index on have no valid tokens. */
  readonly indexCount: number;
  /**
   * For each block index, how many tokens are valid, from the first token of the block on. In a state group a block has
   * one state, the state after this many of its tokens; 0 means no state.
   */
  readonly validTokens: Int32Array;
  /** In a state group: more states, each before the token at `position`. There may be one in a block with another state. */
  readonly running?: readonly { readonly position: number }[];
}

/**
 * Writes C into `spans`, ascending. One pass from right to left: `low` is the lowest token known to be in C. Each group
 * returns the highest token below `low` that it needs. O(blocks), without allocations.
 *
 *   valid KV     ######....####..##........      . = not valid
 *   C            ......^^^^....^^..^^^^^^^^      full attention: exactly the holes and the last token
 */
export function planSpans(
  tokenCount: number,
  groups: readonly GroupValidity[],
  spans: SpanList,
  computeFrom = Infinity,
): void {
  assert(tokenCount > 0, 'a request without tokens cannot be planned');
  spans.clear();
  let low = Math.min(tokenCount - 1, computeFrom);
  let end = tokenCount;
  if (candidates.length < groups.length) candidates = new Int32Array(groups.length);
  candidates.fill(low);
  for (;;) {
    let next = NOTHING;
    let chosen: GroupValidity | undefined;
    for (let g = groupIndex(0); g < groups.length; g++) {
      const group = groups[g]!;
      const needed = highestNeeded(group, low, g);
      if (needed > next) {
        next = needed;
        chosen = group;
      }
    }
    if (chosen === undefined) break;
    if (next < low - 1) {
      spans.push(low, end);
      end = next + 1;
    }
    low = runStart(chosen, next);
  }
  spans.push(low, end);
  spans.reverse();
}

/** The highest invalid token below `low`, the lowest of C so far, that `group` needs; NOTHING if there is none. */
function highestNeeded(group: GroupValidity, low: number, g: GroupIndex): number {
  if (group.kind === 'state') return stateAt(group, low) ? NOTHING : low - 1;
  // A candidate below `low` stays correct, because all tokens between are valid. So all calls together visit each block
  // once.
  if (candidates[g]! >= low) candidates[g] = highestInvalid(group, low);
  const candidate = candidates[g]!;
  return candidate > low - group.window ? candidate : NOTHING;
}

/** The highest q < `below` whose KV is not valid, or NOTHING. */
function highestInvalid({ blockSize, indexCount, validTokens }: GroupValidity, below: number): number {
  let index = blockIndexOf(below - 1, blockSize);
  let offset = below - 1 - index * blockSize;
  for (; index >= 0; index--, offset = blockSize - 1) {
    if (index >= indexCount || offset >= validTokens[index]!) return index * blockSize + offset;
  }
  return NOTHING;
}

/**
 * The lowest token that this group adds to C if `token` is in C. Each token of a run of invalid tokens needs the token
 * before. (A window of 1 reads only its own token and never gets here.)
 */
function runStart(group: GroupValidity, token: number): number {
  if (group.kind === 'state') return nearestState(group, token);
  const { blockSize, indexCount, validTokens } = group;
  for (let index = blockIndexOf(token, blockSize); index >= 0; index--)
    if (index < indexCount && validTokens[index]! > 0) return index * blockSize + validTokens[index]!;
  return 0;
}

/**
 * Whether the state before token `position` is known: `position` is 0, or there is a checkpoint after `position` - 1.
 */
function stateAt({ blockSize, indexCount, validTokens, running }: GroupValidity, position: number): boolean {
  if (position === 0) return true;
  const index = blockIndexOf(position - 1, blockSize);
  if (index < indexCount && validTokens[index] === position - index * blockSize) return true;
  return running?.some((state) => state.position === position) === true;
}

/** The highest position p <= `position` before which the state is known. */
function nearestState(group: GroupValidity, position: number): number {
  let nearest = nearestInBlocks(group, position);
  for (const state of group.running ?? nothing)
    if (state.position <= position) nearest = Math.max(nearest, state.position);
  return nearest;
}

function nearestInBlocks({ blockSize, indexCount, validTokens }: GroupValidity, position: number): number {
  if (position === 0) return 0;
  let index = blockIndexOf(position - 1, blockSize);
  let limit = position - index * blockSize;
  for (; index >= 0; index--, limit = blockSize) {
    if (index < indexCount && validTokens[index]! > 0 && validTokens[index]! <= limit)
      return index * blockSize + validTokens[index]!;
  }
  return 0;
}

const NOTHING = -1;
const nothing: readonly never[] = [];

/** For each group of the current plan, the highest invalid token below the lowest of C. */
let candidates = new Int32Array(4);
