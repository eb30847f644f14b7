export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const [low = 0, high = 0] = [sorted[Math.ceil(sorted.length / 2) - 1], sorted[middle]];
  return (low + high) / 2;
}

export interface MedianInterval {
  readonly median: number;
  readonly low: number;
  readonly high: number;
}

/**
 * The median, and an interval that has the median of the distribution in at least 95 % of all cases, whatever the distribution:
 * each value is above it or below it with the same probability, so the number of values below it is binomial. The ends are
 * values of the sample. Of fewer than six values, the interval is their range and has less than 95 %.
 */
export function medianInterval(values: readonly number[]): MedianInterval {
  const sorted = values.toSorted((a, b) => a - b);
  const count = sorted.length;
  // The probability that at most `cut` values are below the median of the distribution.
  let cut = 0;
  let term = 0.5 ** count;
  for (let below = term; below <= 0.025; below += term) {
    cut++;
    term *= (count - cut + 1) / cut;
  }
  const outside = Math.max(0, cut - 1);
  const [low, high] = [sorted[outside], sorted[count - 1 - outside]];
  return { median: median(values), low: low ?? Number.NaN, high: high ?? Number.NaN };
}

export interface LinearFit {
  readonly slope: number;
  /** The standard error of the slope. NaN with fewer than three points. */
  readonly error: number;
}

/** The line with the least squares through these points. */
export function linearFit(points: readonly (readonly [x: number, y: number])[]): LinearFit {
  const count = points.length;
  const meanX = points.reduce((sum, [x]) => sum + x, 0) / count;
  const meanY = points.reduce((sum, [, y]) => sum + y, 0) / count;
  const spread = points.reduce((sum, [x]) => sum + (x - meanX) ** 2, 0);
  const slope = points.reduce((sum, [x, y]) => sum + (x - meanX) * (y - meanY), 0) / spread;
  const rest = points.reduce((sum, [x, y]) => sum + (y - meanY - slope * (x - meanX)) ** 2, 0);
  return { slope, error: count < 3 ? Number.NaN : Math.sqrt(rest / (count - 2) / spread) };
}

/** Rounds to four digits; no bench is more exact. */
export const rounded = (value: number): number => Number(value.toPrecision(4));
