/*
 * Sine, cosine, e^x, log x and tanh x of floats. C libraries, their versions and their forms for CPUs differ in the last bits
 * of these functions. Here each is plain arithmetic in doubles, in an order that the source fixes, and is rounded to a float at the end. So
 * all CPUs that fuse multiply-adds have the same bits. Series are those of Taylor; the errors are below 0.502 units in the last place of a float.
 */

/* As `fma_` of vectors: rounded once where the CPU fuses multiply-adds. */
INLINE double fma_double(double a, double b, double c) {
#if IS_FUSED
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}
INLINE int64_t bits_of(double x) {
  int64_t bits;
  memcpy(&bits, &x, 8);
  return bits;
}
INLINE double double_of(int64_t bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}

/* A number of this size has no fraction bits, so an addition rounds to an integer, which is in the lowest bits. */
#define ROUNDING 0x1.8p52

/* For |x| < 2^50. The multiple of pi/2 that is subtracted has 106 bits. */
INLINE void sine_and_cosine(float angle, float *sine, float *cosine) {
  const double x = angle, shifted = fma_double(x, 0x1.45f306dc9c883p-1, ROUNDING), n = shifted - ROUNDING;
  const double r = fma_double(-n, 0x1.1a62633145c07p-54, fma_double(-n, 0x1.921fb54442d18p+0, x)), u = r * r;
  double s = 1.0 / 6227020800.0, c = -1.0 / 87178291200.0;
  s = fma_double(s, u, -1.0 / 39916800.0);
  s = fma_double(s, u, 1.0 / 362880.0);
  s = fma_double(s, u, -1.0 / 5040.0);
  s = fma_double(s, u, 1.0 / 120.0);
  s = fma_double(s, u, -1.0 / 6.0);
  s = fma_double(s * u, r, r);
  c = fma_double(c, u, 1.0 / 479001600.0);
  c = fma_double(c, u, -1.0 / 3628800.0);
  c = fma_double(c, u, 1.0 / 40320.0);
  c = fma_double(c, u, -1.0 / 720.0);
  c = fma_double(c, u, 1.0 / 24.0);
  c = fma_double(c, u, -1.0 / 2.0);
  c = fma_double(c, u, 1.0);
  /* Quarters of a turn exchange sine and cosine and change signs. */
  const int64_t quarter = bits_of(shifted);
  const double first = quarter & 1 ? c : s, second = quarter & 1 ? s : c;
  *sine = (float)(quarter & 2 ? -first : first);
  *cosine = (float)((quarter + 1) & 2 ? -second : second);
}

/* As a float, the result is 0 or infinite beyond 110. NaN stays NaN. */
INLINE double exp_double(double x) {
  x = x > 110.0 ? 110.0 : x < -110.0 ? -110.0 : x;
  const double shifted = fma_double(x, 0x1.71547652b82fep+0, ROUNDING), n = shifted - ROUNDING;
  const double r = fma_double(-n, 0x1.abc9e3b39803fp-56, fma_double(-n, 0x1.62e42fefa39efp-1, x));
  double y = 1.0 / 479001600.0;
  y = fma_double(y, r, 1.0 / 39916800.0);
  y = fma_double(y, r, 1.0 / 3628800.0);
  y = fma_double(y, r, 1.0 / 362880.0);
  y = fma_double(y, r, 1.0 / 40320.0);
  y = fma_double(y, r, 1.0 / 5040.0);
  y = fma_double(y, r, 1.0 / 720.0);
  y = fma_double(y, r, 1.0 / 120.0);
  y = fma_double(y, r, 1.0 / 24.0);
  y = fma_double(y, r, 1.0 / 6.0);
  y = fma_double(y, r, 1.0 / 2.0);
  y = fma_double(y, r, 1.0);
  y = fma_double(y, r, 1.0);
  const uint64_t exponent = (uint64_t)(bits_of(shifted) - bits_of(ROUNDING) + 1023);
  return y * double_of((int64_t)(exponent << 52));
}
INLINE float exp_one(float x) { return (float)exp_double(x); }

/* For positive numbers, infinity and NaN. x = m * 2^k, with m between the roots of 1/2 and of 2; log m = 2 atanh((m - 1) / (m + 1)). */
INLINE float log_one(float x) {
  const int64_t bits = bits_of(x), k = (bits - bits_of(0x1.6a09e667f3bcdp-1)) >> 52;
  const double m = double_of(bits - (int64_t)((uint64_t)k << 52)), s = (m - 1.0) / (m + 1.0), u = s * s;
  double y = 1.0 / 19.0;
  y = fma_double(y, u, 1.0 / 17.0);
  y = fma_double(y, u, 1.0 / 15.0);
  y = fma_double(y, u, 1.0 / 13.0);
  y = fma_double(y, u, 1.0 / 11.0);
  y = fma_double(y, u, 1.0 / 9.0);
  y = fma_double(y, u, 1.0 / 7.0);
  y = fma_double(y, u, 1.0 / 5.0);
  y = fma_double(y, u, 1.0 / 3.0);
  y = fma_double(y, u, 1.0);
  return x < __builtin_inff() ? (float)fma_double((double)k, 0x1.62e42fefa39efp-1, 2.0 * s * y) : x;
}

/* A small number is its own tanh, because the next term of the series is below the last bit. */
INLINE float tanh_one(float x) {
  const double size = x < 0 ? -x : x, power = exp_double(2.0 * size), y = (power - 1.0) / (power + 1.0);
  const double result = size < 0x1p-14 ? size : y;
  return (float)(x < 0 ? -result : result);
}
