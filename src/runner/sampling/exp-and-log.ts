/**
 * e^x and log x by arithmetic that JavaScript defines bit by bit. `Math.exp` and `Math.log` may differ: V8 fuses operations of `Math.exp` on
 * ARM CPUs and not on x64.
 */

const logOf2High = 0.6931471803691238;
const logOf2Low = 1.9082149292705877e-10;

/** For x between -60 and 1, with an error of about one unit in the last place. */
export function expOf(x: number): number {
  const n = Math.round(x / Math.LN2);
  // The upper part has few bits, so that its product with n is exact.
  const rest = x - n * logOf2High - n * logOf2Low;
  let series = 1;
  for (let i = 14; i > 0; i--) series = 1 + (rest / i) * series;
  return series * powerOf2(n);
}

/** With an error of about one unit in the last place. */
export function logOf(x: number): number {
  // 0, infinity and NaN have no mantissa.
  if (!(x > 0 && x < Number.POSITIVE_INFINITY)) return Math.log(x);
  let [mantissa, n] = [x, 0];
  for (; mantissa > Math.SQRT2; mantissa /= 2) n++;
  for (; mantissa < Math.SQRT1_2; mantissa *= 2) n--;
  // log m = 2 atanh((m - 1) / (m + 1))
  const s = (mantissa - 1) / (mantissa + 1);
  let series = 0;
  for (let i = 21; i > 1; i -= 2) series = s * s * (1 / i + series);
  return n * logOf2High + (2 * s + (2 * s * series + n * logOf2Low));
}

function powerOf2(n: number): number {
  let power = 1;
  for (let i = 0; i < Math.abs(n); i++) power *= n < 0 ? 0.5 : 2;
  return power;
}
