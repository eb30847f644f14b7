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

/*
 * Products of rows with a matrix whose elements for input i are adjacent: w[i * outputs + o]. The lanes of a vector are outputs, and each sum
 * has the order of the inputs. So no sum depends on the length of vectors or on other rows. Fast for few inputs and for few outputs.
 */
#define BLOCK 6 /* rows that read weights together; two vectors of sums for each are in registers */

/* `part`: elements of the last vector. */
INLINE void chained_tile(const float *w, int64_t outputs, int64_t n, const float *const *x, int rows, int vectors, int64_t part,
                         vec sum[BLOCK][2]) {
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) sum[r][v] = splat(0);
  for (int64_t i = 0; i < n; i++, w += outputs) {
    vec weights[2];
    UNROLL for (int v = 0; v < vectors; v++) weights[v] = part == LANES ? load(w + v * LANES) : load_part(w, part, 0);
    UNROLL for (int r = 0; r < rows; r++) {
      const vec value = splat(x[r][i]);
      UNROLL for (int v = 0; v < vectors; v++) sum[r][v] = fma_(weights[v], value, sum[r][v]);
    }
  }
}

/* `adds`: to what `out` has. */
INLINE void chained_outputs(const float *w, int64_t outputs, int64_t n, const float *const *x, float *const *out, int rows, int vectors,
                            int64_t part, int adds) {
  vec sum[BLOCK][2];
  chained_tile(w, outputs, n, x, rows, vectors, part, sum);
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) {
    float *to = out[r] + v * LANES;
    if (part == LANES) store(to, adds ? load(to) + sum[r][v] : sum[r][v]);
    else store_part(to, adds ? load_part(to, part, 0) + sum[r][v] : sum[r][v], part);
  }
}

/* `count` adjacent outputs, at most two vectors. */
INLINE void chained_columns(const float *w, int64_t outputs, int64_t n, const float *const *x, float *const *out, int rows, int64_t count,
                            int adds) {
  if (count == 2 * LANES) {
    chained_outputs(w, outputs, n, x, out, rows, 2, LANES, adds);
    return;
  }
  float *rest[BLOCK];
  for (int r = 0; r < rows; r++) rest[r] = out[r];
  if (count >= LANES) {
    chained_outputs(w, outputs, n, x, rest, rows, 1, LANES, adds);
    for (int r = 0; r < rows; r++) rest[r] += LANES;
    w += LANES;
    count -= LANES;
  }
  if (count > 0) chained_outputs(w, outputs, n, x, rest, rows, 1, count, adds);
}

/* The rows `from` of x, times the matrix, become the rows of `out`, or are added to its rows `to`. */
INLINE void chained_rows(const char *matrix, const char *x, const int32_t *from, const char *out, const int32_t *to, int64_t rows,
                         int thread, int threads) {
  const float *w = (const float *)DATA(matrix);
  const int64_t outputs = NE(matrix, 0), n = NE(matrix, 1), width = rows == 1 ? LANES : 2 * LANES;
  const int64_t tiles = (outputs + width - 1) / width, units = tiles * ((rows + BLOCK - 1) / BLOCK);
  for (int64_t unit = units * thread / threads; unit < units * (thread + 1) / threads; unit++) {
    const int64_t first = unit / tiles * BLOCK, column = unit % tiles * width, left = outputs - column;
    const int64_t count = left < width ? left : width, end = rows - first < BLOCK ? rows - first : BLOCK;
    const float *values[BLOCK];
    float *results[BLOCK];
    for (int64_t r = 0; r < end; r++) {
      values[r] = (const float *)(DATA(x) + NB(x, 1) * (from == NULL ? first + r : from[first + r]));
      results[r] = (float *)(DATA(out) + NB(out, 1) * (to == NULL ? first + r : to[first + r])) + column;
    }
    if (end == BLOCK) chained_columns(w + column, outputs, n, values, results, BLOCK, count, to != NULL);
    else for (int64_t r = 0; r < end; r++) chained_columns(w + column, outputs, n, values + r, results + r, 1, count, to != NULL);
  }
}

/* Matrix, x, the indices of rows of x -> their products. */
static void multiply_rows(char *tensor, int thread, int threads, void *userdata) {
  (void)userdata;
  const char *rows = SOURCE(tensor, 2);
  chained_rows(SOURCE(tensor, 0), SOURCE(tensor, 1), (const int32_t *)DATA(rows), tensor, NULL, NE(rows, 0), thread, threads);
}

/* Matrix, x, sums, the indices of rows of the sums: adds the products of all rows of x to these rows, in place. There is no result. */
static void add_to_rows(char *tensor, int thread, int threads, void *userdata) {
  (void)userdata;
  const char *rows = SOURCE(tensor, 3);
  chained_rows(SOURCE(tensor, 0), SOURCE(tensor, 1), NULL, SOURCE(tensor, 2), (const int32_t *)DATA(rows), NE(rows, 0), thread, threads);
}

uintptr_t kvasir_multiply_rows_pointer(void) { return (uintptr_t)multiply_rows; }
uintptr_t kvasir_add_to_rows_pointer(void) { return (uintptr_t)add_to_rows; }
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
