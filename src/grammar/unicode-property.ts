import type { CodeRange } from './expression.ts';

const known = new Map<string, readonly CodeRange[]>();
/** A property takes up to 20 KiB. */
const knownMax = 64;

/** The characters of `\p{name}` in JavaScript, ascending; undefined if JavaScript has no such property. */
export function propertyRanges(name: string): readonly CodeRange[] | undefined {
  if (!/^\w{1,40}(=\w{1,40})?$/.test(name)) return undefined;
  const kept = known.get(name);
  if (kept !== undefined) return kept;
  let pattern: RegExp;
  try {
    pattern = new RegExp(`\\p{${name}}+`, 'gu');
  } catch {
    return undefined;
  }
  const ranges = [...planes()].flatMap(({ first, text }) => rangesIn(text, pattern, first));
  if (known.size >= knownMax) known.delete(known.keys().next().value!);
  known.set(name, ranges);
  return ranges;
}

const planeSize = 0x1000;

/** All characters except surrogates, in texts of 4,096. */
function* planes(): Iterable<{ readonly first: number; readonly text: string }> {
  for (let first = 0; first <= 0x10ffff; first += planeSize) {
    if (first >= 0xd800 && first <= 0xdfff) continue;
    const end = first === 0xd000 ? 0xd800 : first + planeSize;
    yield { first, text: String.fromCodePoint(...Array.from({ length: end - first }, (_, i) => first + i)) };
  }
}

function rangesIn(text: string, pattern: RegExp, start: number): CodeRange[] {
  const unit = start >= 0x10000 ? 2 : 1;
  return [...text.matchAll(pattern)].map(({ 0: found, index }) => {
    const first = start + index / unit;
    return { first, last: first + found.length / unit - 1 };
  });
}
