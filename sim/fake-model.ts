import type { KvGroupSpec } from '../src/core/kv-spec.ts';

/**
 * A model in which every number depends on all the KV that its token may see, and on nothing else. One stale, missing or swapped
 * entry of KV changes every later token, so a comparison of texts finds it.
 *
 *   read(g, p)   = what token p reads in group g: a hash, in order, of the entries of q in [first(g, p), p - 1]
 *   hidden(p)    = hash of token p, its position and its reads in all groups
 *   entry(g, p)  = hash of hidden(p) and g: its KV; in a state group the state after p
 *   next(p)      = hash of hidden(p) and its own entries: the token that is sampled after p
 *
 * Each rank of a pipeline has KV of its own, and so reads and entries of its own. On later ranks, hidden(p) begins with the output of
 * the rank before for p instead of the token. So the next token depends on what all ranks read.
 */
export function mix(a: number, b: number): number {
  let value = Math.imul(a ^ (b + 0x9e3779b9), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return (value ^ (value >>> 16)) | 0;
}

export const hiddenSeed = (token: number, position: number): number => mix(mix(0x51ed27, token), position);
export const entryOf = (hidden: number, group: number): number => mix(hidden, group + 1);
export const nextTokenOf = (hidden: number, vocabSize: number): number => (mix(hidden, 0x7ee7) >>> 0) % vocabSize;

/** Numbers of a hidden state: F32 does not keep the 32 bits of a hash, but it keeps two halves. */
export const rowWidth = 2;

export function writeRow(hidden: Float32Array, row: number, output: number): void {
  hidden[row * rowWidth] = output >>> 16;
  hidden[row * rowWidth + 1] = output & 0xffff;
}

/** Where `rank` begins with the output of the rank before. */
export const hiddenOf = (hidden: Float32Array, row: number, rank: number): number =>
  hiddenAfter((hidden[row * rowWidth]! << 16) | hidden[row * rowWidth + 1]!, rank);

export const hiddenAfter = (output: number, rank: number): number => mix(output, rank);

/** The first position whose entry token `position` reads in this group (the last is `position` - 1). */
export function firstRead(group: KvGroupSpec, position: number): number {
  switch (group.kind) {
    case 'full':
      return 0;
    case 'window':
      return Math.max(position - group.window + 1, 0);
    case 'state':
      return Math.max(position - 1, 0);
  }
}
