/** The known name with the fewest edits from `name`, if at most a third of its letters differ. */
export function nearestName(name: string, known: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = Number.POSITIVE_INFINITY;
  // A name far longer than all known names is not a typo, and a comparison would take time in its length.
  if (name.length > 64) return undefined;
  for (const candidate of known) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best !== undefined && bestDistance <= Math.max(1, Math.ceil(best.length / 3)) ? best : undefined;
}

/** For the end of an error message: a question with the nearest name, or an empty string. */
export function didYouMean(name: string, known: Iterable<string>): string {
  const nearest = nearestName(name, known);
  return nearest === undefined ? '' : ` Did you mean \`${nearest}\`?`;
}

/** Levenshtein's distance in O(length of a) memory. */
export function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: a.length + 1 }, (_, i) => i);
  for (let j = 1; j <= b.length; j++) {
    const current = [j];
    for (let i = 1; i <= a.length; i++) {
      const substitution = previous[i - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      current.push(Math.min(substitution, previous[i]! + 1, current[i - 1]! + 1));
    }
    previous = current;
  }
  return previous[a.length]!;
}
