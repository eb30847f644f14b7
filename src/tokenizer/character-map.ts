/** Tests lower them: so a valid map has references beyond its end. */
interface Limits {
  /** In entries. */
  readonly size?: number;
  /** The index of the last end of a replacement. */
  readonly lastEnd?: number;
}

/**
 * The map of characters that a Unigram vocabulary normalizes texts with (`tokenizer.ggml.precompiled_charsmap`): a double array, whose
 * size comes first, and the replacements, which end with 0.
 *
 *   entry: bits 10 to 30 the base, bit 9 whether the base is shifted by 8, bit 8 whether a replacement follows, bits 0 to 7 the
 *   character; bit 31 and the index of the replacement if it is one
 */
export function problemOfCharacterMap(map: Uint8Array, limits: Limits = {}): string | undefined {
  const view = new DataView(map.buffer, map.byteOffset, map.byteLength);
  const bytes = map.length < 4 ? 0 : view.getUint32(0, true);
  if (map.length < 4 || bytes + 4 >= map.length) return 'is shorter than it says';
  const size = Math.min(Math.floor(bytes / 4), limits.size ?? Infinity);
  if (size === 0) return undefined;
  const entryAt = (index: number): number => view.getUint32(4 + 4 * index, true);
  const baseOf = (entry: number): number => ((entry >>> 10) << ((entry & 0x200) >>> 6)) >>> 0;
  const replacements = map.subarray(4 + bytes);
  const lastEnd = Math.min(replacements.lastIndexOf(0), limits.lastEnd ?? Infinity);
  const seen = new Uint8Array(size);
  const states = [baseOf(entryAt(0))];
  for (let state = states.pop(); state !== undefined; state = states.pop()) {
    for (let character = 1; character < 256; character++) {
      const child = (state ^ character) >>> 0;
      if (child >= size) return `refers to entry ${child} of ${size}`;
      const entry = entryAt(child);
      if ((entry & 0x800000ff) !== character || seen[child] === 1) continue;
      seen[child] = 1;
      const next = (child ^ baseOf(entry)) >>> 0;
      if (((entry >>> 8) & 1) === 1) {
        if (next >= size) return `refers to entry ${next} of ${size}`;
        const replacement = entryAt(next) & 0x7fffffff;
        if (replacement > lastEnd) return `has no replacement at ${replacement}`;
      }
      states.push(next);
    }
  }
  return undefined;
}
