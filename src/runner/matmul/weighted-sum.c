/*
 * The results of a token's experts times their weights, added in the order of the experts. Each product and each sum is
 * rounded, so the bits are those of ggml's operations for products and sums. One pass reads each result once.
 */
#include "tensor.h"
#include "vector.h"

/* Elements [first, end) of one token. `x`: F32 [n, count], `weights`: F32 [count]. */
INLINE void add_weighted(const float *x, int64_t n, const float *weights, int64_t count, float *out, int64_t first,
                         int64_t end) {
  int64_t i = first;
  for (; i + LANES <= end; i += LANES) {
    vec sum = load(x + i) * splat(weights[0]);
    for (int64_t k = 1; k < count; k++) sum = sum + load(x + k * n + i) * splat(weights[k]);
    store(out + i, sum);
  }
  for (; i < end; i++) {
    float sum = x[i] * weights[0];
    for (int64_t k = 1; k < count; k++) sum = sum + x[k * n + i] * weights[k];
    out[i] = sum;
  }
}

/* F32 [n, count, tokens] and weights, F32 [count, tokens], become F32 [n, tokens]. Threads have shares of all elements. */
static void weighted_sum(char *tensor, int thread, int threads, void *userdata) {
  (void)userdata;
  const char *weights = SOURCE(tensor, 1);
  const int64_t n = NE(tensor, 0), all = n * NE(tensor, 1), count = NE(weights, 0);
  const float *x = (const float *)DATA(SOURCE(tensor, 0)), *factors = (const float *)DATA(weights);
  float *out = (float *)DATA(tensor);
  const int64_t share = (all / threads + LANES) / LANES * LANES;
  const int64_t from = share * thread, to = from + share < all ? from + share : all;
  for (int64_t at = from; at < to;) {
    const int64_t token = at / n, first = at % n, end = to - token * n < n ? to - token * n : n;
    add_weighted(x + token * n * count, n, factors + token * count, count, out + token * n, first, end);
    at = token * n + end;
  }
}

uintptr_t kvasir_weighted_sum_pointer(void) { return (uintptr_t)weighted_sum; }
