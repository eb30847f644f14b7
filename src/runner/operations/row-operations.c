/*
 * Operations of ggml whose bits depend on the length of the CPU's vectors or on the C library. These have the same bits with
 * vectors of any length: sums have the order of vectors of WIDTH lanes (vector.h), and the last elements of a row are computed like the
 * others. They are ggml's custom operations over contiguous F32.
 */
#include "vector.h"
#include "tensor.h"
#include "exp.h"
#include "elementary.h"

INLINE int64_t count_of(const char *tensor) { return NE(tensor, 0) * NE(tensor, 1) * NE(tensor, 2) * NE(tensor, 3); }

/* Elements of a thread's share, in whole vectors. */
INLINE void share_of(int64_t count, int thread, int threads, int64_t *from, int64_t *to) {
  const int64_t vectors = (count + LANES - 1) / LANES;
  *from = vectors * thread / threads * LANES;
  *to = vectors * (thread + 1) / threads * LANES;
  if (*to > count) *to = count;
}

/* A function of each element x of the first source and of the element y of the last source. */
#define EACH_ELEMENT(name, last, expression)                                        \
  static void name(char *tensor, int thread, int threads, void *userdata) {         \
    (void)userdata;                                                                 \
    const float *first_source = (const float *)DATA(SOURCE(tensor, 0));             \
    const float *last_source = (const float *)DATA(SOURCE(tensor, last));           \
    float *out = (float *)DATA(tensor);                                             \
    int64_t i, to;                                                                  \
    share_of(count_of(tensor), thread, threads, &i, &to);                           \
    for (; i + LANES <= to; i += LANES) {                                           \
      const vec x = load(first_source + i), y = load(last_source + i);              \
      (void)y;                                                                      \
      store(out + i, expression);                                                   \
    }                                                                               \
    if (i < to) {                                                                   \
      const vec x = load_part(first_source + i, to - i, 0), y = load_part(last_source + i, to - i, 0); \
      (void)y;                                                                      \
      store_part(out + i, expression, to - i);                                      \
    }                                                                               \
  }

INLINE vec sigmoid_(vec x) { return splat(1.0f) / (splat(1.0f) + exp_(-x)); }

/* The nearest number of type f16, for |x| < 65504. Below 2^-14, f16 has multiples of 2^-24. */
INLINE vec rounded_f16(vec x) {
  const ivec bits = (ivec)x, normal = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fff;
  const vec small = (x + splat(0.75f)) - splat(0.75f), size = (vec)(bits & 0x7fffffff);
  return choose((ivec)(size < splat(0x1p-14f)), small, (vec)normal);
}

/*
 * x / 2 * (1 + tanh(u)) with u = sqrt(2/pi) * (x + 0.044715 x^3), which is x * sigmoid(2u). As in ggml, which has a table of it, x and the
 * result are rounded to f16 between -10 and 10.
 */
INLINE vec gelu_(vec x) {
  const vec r = rounded_f16(x), u = splat(0x1.988454p-1f) * r * fma_(splat(0.044715f) * r, r, splat(1.0f));
  const vec y = rounded_f16(r / (splat(1.0f) + exp_(splat(-2.0f) * u)));
  return choose((ivec)(x < splat(10.0f)), choose((ivec)(x > splat(-10.0f)), y, splat(0)), x);
}

INLINE vec tanh_(vec x) {
  float lanes[LANES];
  store(lanes, x);
  for (int i = 0; i < LANES; i++) lanes[i] = tanh_one(lanes[i]);
  return load(lanes);
}

struct clamped { /* written by TypeScript */
  float alpha, limit;
};
/* NaN stays NaN. */
INLINE vec at_most(vec x, float limit) { return choose((ivec)(x > limit), splat(limit), x); }
INLINE vec clamped_swiglu_(vec gate, vec up, const struct clamped *c) {
  const vec x = at_most(gate, c->limit), y = -at_most(-at_most(up, c->limit), c->limit);
  return x / (splat(1.0f) + exp_(splat(-c->alpha) * x)) * (y + splat(1.0f));
}

EACH_ELEMENT(silu, 0, silu_(x))
EACH_ELEMENT(swiglu, 1, silu_(x) * y)
EACH_ELEMENT(sigmoid, 0, sigmoid_(x))
EACH_ELEMENT(tanh_of, 0, tanh_(x))
EACH_ELEMENT(geglu, 1, gelu_(x) * y)
EACH_ELEMENT(gelu, 0, gelu_(x))
EACH_ELEMENT(clamped_swiglu, 1, clamped_swiglu_(x, y, userdata))

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
uintptr_t kvasir_sigmoid_pointer(void) { return (uintptr_t)sigmoid; }
uintptr_t kvasir_tanh_pointer(void) { return (uintptr_t)tanh_of; }
uintptr_t kvasir_geglu_pointer(void) { return (uintptr_t)geglu; }
uintptr_t kvasir_gelu_pointer(void) { return (uintptr_t)gelu; }
uintptr_t kvasir_clamped_swiglu_pointer(void) { return (uintptr_t)clamped_swiglu; }
uintptr_t kvasir_soft_max_pointer(void) { return (uintptr_t)soft_max; }
uintptr_t kvasir_small_matmul_pointer(void) { return (uintptr_t)small_matmul; }
/* Whether the CPU fuses multiply-adds. Only CPUs that do compute the same bits. */
int32_t kvasir_is_fused(void) { return IS_FUSED; }
