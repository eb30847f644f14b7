import { assert } from '../base/assert.ts';
import type { SpanList } from './span-list.ts';

/**
 * The one question behind a prefix hit, an external match, a failed load, a resume and a crash: given which KV is
 * valid per group, which tokens must be computed so that the last token's logits are right?
 *
 * The answer C is the smallest set that contains the last token and, for each of its members p, every token that would
 * meet a need of p which valid KV does not meet:
 *   full     KV of every q < p
 *   window   KV of every q in [p - window + 1, p - 1]
 *   state    the state after p - 1: at position 0, at a checkpoint, or because p - 1 is in C
 * The needs of the position behind the last token follow from these.
 */
export interface GroupValidity {
  readonly kind: 'full' | 'window' | 'state';
  readonly blockSize: number;
  /** Tokens that see each other, the reader included; `Infinity` unless the kind is `window`. */
  readonly window: number;
  /** Blocks past it hold nothing. */
  readonly blockCount: number;
  /**
   * How many of each logical block's tokens are valid, from its first on. In a state group a block holds one state, the
   * one after so many of its tokens; none where it is 0.
   */
  readonly validTokens: Int32Array;
}

/**
 * Writes C into `spans`, ascending. One pass from right to left: `low` is the lowest token known to be in C, and each
 * group names the highest token below it that it still needs. Cost: O(blocks), nothing allocated.
 *
 *   valid KV     ######....####..##........      . = not valid
 *   C            ......^^^^....^^..^^^^^^^^      full attention: exactly the holes (and always the last token)
 */
export function planSpans(tokenCount: number, groups: readonly GroupValidity[], spans: SpanList): void {
  assert(tokenCount > 0, 'a request without tokens has no logits');
  spans.clear();
  let low = tokenCount - 1;
  let end = tokenCount;
  if (candidates.length < groups.length) candidates = new Int32Array(groups.length);
  candidates.fill(low);
  for (;;) {
    let next = NOTHING;
    let chosen: GroupValidity | undefined;
    for (let g = 0; g < groups.length; g++) {
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

/** The highest token below `low`, the lowest of C so far, that `group` needs and lacks; NOTHING when all is met. */
function highestNeeded(group: GroupValidity, low: number, g: number): number {
  if (group.kind === 'state') return stateAt(group, low) ? NOTHING : low - 1;
  // A candidate below `low` is still right: between the two everything is valid. So all calls together pass each block once.
  if (candidates[g]! >= low) candidates[g] = highestInvalid(group, low);
  const candidate = candidates[g]!;
  return candidate > low - group.window ? candidate : NOTHING;
}

/** The highest q < `below` whose KV is not valid, or NOTHING. */
function highestInvalid({ blockSize, blockCount, validTokens }: GroupValidity, below: number): number {
  let index = Math.floor((below - 1) / blockSize);
  let offset = below - 1 - index * blockSize;
  for (; index >= 0; index--, offset = blockSize - 1) {
    if (index >= blockCount || offset >= validTokens[index]!) return index * blockSize + offset;
  }
  return NOTHING;
}

/**
 * The lowest token that follows into C from `token` being missing, by this group alone. Each token of an invalid run
 * needs the one before it (windows of one see only themselves and never get here).
 */
function runStart(group: GroupValidity, token: number): number {
  if (group.kind === 'state') return nearestCheckpoint(group, token);
  const { blockSize, blockCount, validTokens } = group;
  for (let index = Math.floor(token / blockSize); index >= 0; index--)
    if (index < blockCount && validTokens[index]! > 0) return index * blockSize + validTokens[index]!;
  return 0;
}

/** Whether the state before token `position` is known: nothing, or a checkpoint after token `position` - 1. */
function stateAt({ blockSize, blockCount, validTokens }: GroupValidity, position: number): boolean {
  if (position === 0) return true;
  const index = Math.floor((position - 1) / blockSize);
  return index < blockCount && validTokens[index] === position - index * blockSize;
}

/** The highest position p <= `position` before which the state is known. */
function nearestCheckpoint({ blockSize, blockCount, validTokens }: GroupValidity, position: number): number {
  if (position === 0) return 0;
  let index = Math.floor((position - 1) / blockSize);
  let limit = position - index * blockSize;
  for (; index >= 0; index--, limit = blockSize) {
    if (index < blockCount && validTokens[index]! > 0 && validTokens[index]! <= limit)
      return index * blockSize + validTokens[index]!;
  }
  return 0;
}

const NOTHING = -1;

/** Per group of the plan at hand, the highest token below the lowest of C that is not valid. */
let candidates = new Int32Array(4);
