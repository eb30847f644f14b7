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
  /** The standard error of the slope if the residuals are independent. NaN with fewer than three points. */
  readonly error: number;
  /**
   * The standard error if each residual depends on the one before it, as in a curve with steps: the points count as fewer points.
   * (Bartlett's formula for residuals with the correlation r: (1 + r) / (1 - r) times the variance.)
   */
  readonly serialError: number;
}

/** The line with the least squares through these points, in their order. */
export function linearFit(points: readonly (readonly [x: number, y: number])[]): LinearFit {
  const count = points.length;
  const meanX = points.reduce((sum, [x]) => sum + x, 0) / count;
  const meanY = points.reduce((sum, [, y]) => sum + y, 0) / count;
  const spread = points.reduce((sum, [x]) => sum + (x - meanX) ** 2, 0);
  const slope = points.reduce((sum, [x, y]) => sum + (x - meanX) * (y - meanY), 0) / spread;
  const residuals = points.map(([x, y]) => y - meanY - slope * (x - meanX));
  const squares = residuals.reduce((sum, residual) => sum + residual ** 2, 0);
  const products = residuals.reduce((sum, residual, i) => sum + residual * (residuals[i - 1] ?? 0), 0);
  const error = count < 3 ? Number.NaN : Math.sqrt(squares / (count - 2) / spread);
  // Of few points, the correlation is estimated too low, by about 4 / count for the residuals of a line.
  const correlation = squares === 0 ? 0 : Math.min(0.95, Math.max(0, products / squares + 4 / count));
  return { slope, error, serialError: error * Math.sqrt((1 + correlation) / (1 - correlation)) };
}

/** Rounds to four digits; no bench is more exact. */
export const rounded = (value: number): number => Number(value.toPrecision(4));
