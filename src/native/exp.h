/* e^x and x * sigmoid(x), with the bits that ggml computes with AVX-512. */
INLINE vec exp_(vec x) {
  /* Beyond these numbers the result is 0 or infinite. NaN stays NaN. */
  x = max_(splat(-140.0f), x);
  x = -max_(splat(-140.0f), -x);
  const vec magic = splat(0x1.8p23f);
  const vec shifted = fma_(x, splat(0x1.715476p+0f), magic);
  const vec n = shifted - magic;
  const vec b = fma_(-n, splat(0x1.7f7d1cp-20f), fma_(-n, splat(0x1.62e4p-1f), x));
  const vec u = b * b;
  const vec high = fma_(splat(0x1.0e4020p-7f), b, splat(0x1.573e2ep-5f));
  const vec low = fma_(splat(0x1.555e66p-3f), b, splat(0x1.fffdb6p-2f));
  const ivec exponent = (ivec)shifted - (ivec)magic, half = exponent >> 1;
  const vec first = (vec)((half + 127) << 23), second = (vec)((exponent - half + 127) << 23);
  const vec y = fma_(fma_(high, u, low), u, fma_(splat(0x1.ffffecp-1f), b, splat(1.0f)));
  return y * first * second;
}
INLINE vec silu_(vec x) { return x / (splat(1.0f) + exp_(-x)); }
