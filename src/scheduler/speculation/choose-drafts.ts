/** A request with a proposed draft. */
export interface DraftChances {
  /** The probability that the first `i + 1` drafts are all accepted; never increases. */
  readonly chances: readonly number[];
}

export interface StepPrices {
  /** Tokens that the step gives in any case. */
  readonly decodes: number;
  readonly rowsMax: number;
  /** The least expected gain of the drafts of the step, in milliseconds of decoding. */
  readonly gainMinMs: number;
  /** The predicted price of the step with so many drafts. */
  msOf(drafts: number): number;
}

/**
 * How many drafts of each request a step computes: those that give the most tokens per millisecond.
 *
 * The rows with the best chances come first. Each number of rows is tried, because the duration is no smooth function
 * of the rows: kernels compute several rows at a time.
 */
export function chooseDrafts(
  proposals: readonly DraftChances[],
  { decodes, rowsMax, gainMinMs, msOf }: StepPrices,
): number[] {
  const rows = proposals.flatMap(({ chances }, request) => chances.map((chance) => ({ request, chance })));
  // A stable sort keeps the rows of a request in order.
  rows.sort((a, b) => b.chance - a.chance);
  const plainMs = msOf(0);
  let tokens = decodes;
  let best = (GAIN_MIN * decodes) / plainMs;
  let taken = 0;
  for (let count = 1; count <= Math.min(rows.length, rowsMax); count++) {
    tokens += rows[count - 1]!.chance;
    const ms = msOf(count);
    const rate = tokens / ms;
    if (rate <= best || (tokens / decodes) * plainMs - ms < gainMinMs) continue;
    best = rate;
    taken = count;
  }
  const drafts = proposals.map(() => 0);
  for (let i = 0; i < taken; i++) drafts[rows[i]!.request]!++;
  return drafts;
}

/**
 * False if all proposed drafts together would be too few, even for the price of one draft, in steps. On a very small model, to try all
 * numbers of rows in each step takes a measurable share of the time.
 */
export function canGain(proposals: readonly DraftChances[], decodes: number, priceOfOne: number): boolean {
  let tokens = decodes;
  for (const { chances } of proposals) for (const chance of chances) tokens += chance;
  return tokens > GAIN_MIN * decodes * Math.max(priceOfOne, 1);
}

/** Chances and durations are estimates, so a smaller gain is not worth its risk. */
export const GAIN_MIN = 1.1;
