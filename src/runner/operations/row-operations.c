/*
 * Operations of ggml whose bits depend on the length of the CPU's vectors. These have the same bits with vectors of any
 * length: sums have the order of vectors of WIDTH lanes (vector.h), and the last elements of a row are computed like the
 * others. They are ggml's custom operations over contiguous F32.
 */
#include "vector.h"
#include "tensor.h"
#include "exp.h"

INLINE int64_t count_of(const char *tensor) { return NE(tensor, 0) * NE(tensor, 1) * NE(tensor, 2) * NE(tensor, 3); }

/* The first `count` elements; the other lanes are `rest`. */
INLINE vec load_part(const float *p, int64_t count, float rest) {
  vec v = splat(rest);
  memcpy(&v, p, count * sizeof(float));
  return v;
}

/* Elements of a thread's share, in whole vectors. */
INLINE void share_of(int64_t count, int thread, int threads, int64_t *from, int64_t *to) {
  const int64_t vectors = (count + LANES - 1) / LANES;
  *from = vectors * thread / threads * LANES;
  *to = vectors * (thread + 1) / threads * LANES;
  if (*to > count) *to = count;
}

/* x * sigmoid(x) */
static void silu(char *tensor, int thread, int threads, void *userdata) {
  (void)userdata;
  const float *x = (const float *)DATA(SOURCE(tensor, 0));
  float *out = (float *)DATA(tensor);
  int64_t i, to;
  share_of(count_of(tensor), thread, threads, &i, &to);
  for (; i + LANES <= to; i += LANES) store(out + i, silu_(load(x + i)));
  if (i < to) {
    const vec y = silu_(load_part(x + i, to - i, 0));
    memcpy(out + i, &y, (to - i) * sizeof(float));
  }
}

/* silu(gate) * up */
static void swiglu(char *tensor, int thread, int threads, void *userdata) {
  (void)userdata;
  const float *gate = (const float *)DATA(SOURCE(tensor, 0)), *up = (const float *)DATA(SOURCE(tensor, 1));
  float *out = (float *)DATA(tensor);
  int64_t i, to;
  share_of(count_of(tensor), thread, threads, &i, &to);
  for (; i + LANES <= to; i += LANES) store(out + i, silu_(load(gate + i)) * load(up + i));
  if (i < to) {
    const vec y = silu_(load_part(gate + i, to - i, 0)) * load_part(up + i, to - i, 0);
    memcpy(out + i, &y, (to - i) * sizeof(float));
  }
}

/* Every element of a row with NaN or infinity becomes NaN. */
static void soft_max_row(const float *x, int64_t n, float *out) {
  vec most = splat(-__builtin_inff());
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) most = max_(most, load(x + i));
  if (i < n) most = max_(most, load_part(x + i, n - i, -__builtin_inff()));
  const vec top = splat(max_lanes(most));
  vec sum[PARTS];
  UNROLL for (int p = 0; p < PARTS; p++) sum[p] = splat(0);
  for (int64_t first = 0; first < n; first += WIDTH) {
    UNROLL for (int p = 0; p < PARTS; p++) {
      const int64_t at = first + p * LANES, left = n - at;
      if (left <= 0) continue;
      const vec e = exp_(load_part(x + at, left < LANES ? left : LANES, -__builtin_inff()) - top);
      memcpy(out + at, &e, (left < LANES ? left : LANES) * sizeof(float));
      sum[p] = sum[p] + e;
    }
  }
  add_parts(sum, 1);
  const float factor = 1.0f / sum_lanes(sum[0]);
  for (int64_t k = 0; k < n; k++) out[k] = out[k] * factor;
}

/* Softmax of each row. */
static void soft_max(char *tensor, int thread, int threads, void *userdata) {
  (void)userdata;
  const int64_t n = NE(tensor, 0), rows = count_of(tensor) / n;
  const float *x = (const float *)DATA(SOURCE(tensor, 0));
  float *out = (float *)DATA(tensor);
  for (int64_t r = rows * thread / threads; r < rows * (thread + 1) / threads; r++) {
    soft_max_row(x + r * n, n, out + r * n);
  }
}

/* Element e of a row is added to partial sum e % SUMS. */
#define SUMS (2 * WIDTH)
#define SUM_VECTORS (SUMS / LANES)
#define ROWS 2 /* rows of x that read an output's weights together */

INLINE void dot_rows(const float *w, const float *x, int64_t n, int64_t rows, float *out, int64_t out_stride) {
  vec sum[ROWS][SUM_VECTORS];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < SUM_VECTORS; v++) sum[r][v] = splat(0);
  for (int64_t i = 0; i < n; i += SUMS) {
    UNROLL for (int v = 0; v < SUM_VECTORS; v++) {
      const vec weights = load(w + i + v * LANES);
      UNROLL for (int r = 0; r < rows; r++) sum[r][v] = fma_(weights, load(x + r * n + i + v * LANES), sum[r][v]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) {
    UNROLL for (int p = 0; p < PARTS; p++) sum[r][p] = sum[r][p] + sum[r][PARTS + p];
    add_parts(sum[r], 1);
    out[r * out_stride] = sum_lanes(sum[r][0]);
  }
}

/* x, F32 [n, rows], times a small matrix, F32 [n, outputs], becomes F32 [outputs, rows]; n is a multiple of SUMS. */
static void small_matmul(char *tensor, int thread, int threads, void *userdata) {
  (void)userdata;
  const char *matrix = SOURCE(tensor, 0);
  const int64_t n = NE(matrix, 0), outputs = NE(tensor, 0), rows = count_of(tensor) / outputs;
  const float *w = (const float *)DATA(matrix), *x = (const float *)DATA(SOURCE(tensor, 1));
  float *out = (float *)DATA(tensor);
  for (int64_t o = outputs * thread / threads; o < outputs * (thread + 1) / threads; o++) {
    int64_t r = 0;
    for (; r + ROWS <= rows; r += ROWS) dot_rows(w + o * n, x + r * n, n, ROWS, out + r * outputs + o, outputs);
    if (r < rows) dot_rows(w + o * n, x + r * n, n, 1, out + r * outputs + o, outputs);
  }
}

uintptr_t kvasir_silu_pointer(void) { return (uintptr_t)silu; }
uintptr_t kvasir_swiglu_pointer(void) { return (uintptr_t)swiglu; }
uintptr_t kvasir_soft_max_pointer(void) { return (uintptr_t)soft_max; }
uintptr_t kvasir_small_matmul_pointer(void) { return (uintptr_t)small_matmul; }
/* Whether the CPU fuses multiply-adds. Only CPUs that do compute the same bits. */
int32_t kvasir_is_fused(void) { return IS_FUSED; }
