/*
 * The norm of each head, if the model has one, and RoPE, in one pass:
 *
 *   - a norm has the bits of ggml's: it adds squares, rounded to floats, as doubles in ascending order;
 *   - RoPE fuses its first product with the sum or the difference, as ggml's compiler does on CPUs with such an instruction.
 */
#include "vector.h"
#include "tensor.h"
#include "rope-table.h"

struct rotation { /* written by TypeScript */
  int64_t dimension; /* the first elements of a head are rotated; an even number */
  int64_t is_adjacent; /* pairs are adjacent elements, else elements of two halves */
  float epsilon;
};

#define HEAD_DIM_MAX 512
#define TOGETHER 4 /* heads whose squares are added at a time, because each sum is a chain of additions */

INLINE float square_root(float x) {
#if defined(__x86_64__)
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
#elif defined(__aarch64__)
  return vgetq_lane_f32(vsqrtq_f32(vdupq_n_f32(x)), 0);
#else
  return __builtin_sqrtf(x);
#endif
}

INLINE void norm_factors(const float *const *x, int count, int64_t n, float epsilon, float *factors) {
  double sum[TOGETHER] = {0};
  for (int64_t i = 0; i < n; i++) UNROLL for (int k = 0; k < count; k++) sum[k] += (double)(x[k][i] * x[k][i]);
  for (int k = 0; k < count; k++) factors[k] = 1.0f / square_root((float)(sum[k] / (double)n) + epsilon);
}

/* `table`: cosines of all pairs, then sines. */
INLINE void rotate_halves(const struct rotation *r, const float *x, const float *table, float *out) {
  const int64_t half = r->dimension / 2;
  int64_t i = 0;
  for (; i + LANES <= half; i += LANES) {
    const vec a = load(x + i), b = load(x + half + i), cosine = load(table + i), sine = load(table + half + i);
    store(out + i, fma_(a, cosine, -(b * sine)));
    store(out + half + i, fma_(a, sine, b * cosine));
  }
  const int64_t rest = half - i;
  if (rest == 0) return;
  const vec a = load_part(x + i, rest, 0), b = load_part(x + half + i, rest, 0);
  const vec cosine = load_part(table + i, rest, 0), sine = load_part(table + half + i, rest, 0);
  store_part(out + i, fma_(a, cosine, -(b * sine)), rest);
  store_part(out + half + i, fma_(a, sine, b * cosine), rest);
}

static void rotate_head(const struct rotation *r, const float *x, const float *table, float *out) {
  if (!r->is_adjacent) {
    rotate_halves(r, x, table, out);
    return;
  }
  const int64_t half = r->dimension / 2;
  float apart[HEAD_DIM_MAX], rotated[HEAD_DIM_MAX];
  for (int64_t i = 0; i < half; i++) {
    apart[i] = x[2 * i];
    apart[half + i] = x[2 * i + 1];
  }
  rotate_halves(r, apart, table, rotated);
  for (int64_t i = 0; i < half; i++) {
    out[2 * i] = rotated[i];
    out[2 * i + 1] = rotated[half + i];
  }
}

/* x, F32 [n, heads, rows] (n adjacent elements), a table, F32 [dimension, rows], and maybe weights of a norm, F32 [n],
 * become F32 [n * heads, rows]. */
static void rotate_heads(char *tensor, int thread, int threads, void *userdata) {
  const struct rotation *r = userdata;
  const char *x = SOURCE(tensor, 0), *norm = SOURCE(tensor, 2);
  const int64_t n = NE(x, 0), heads = NE(x, 1), all = heads * NE(x, 2), end = all * (thread + 1) / threads;
  const float *tables = (const float *)DATA(SOURCE(tensor, 1)), *weights = norm == NULL ? NULL : (const float *)DATA(norm);
  float *out = (float *)DATA(tensor), normed[HEAD_DIM_MAX];
  for (int64_t first = all * thread / threads; first < end; first += TOGETHER) {
    const int count = end - first < TOGETHER ? (int)(end - first) : TOGETHER;
    const float *from[TOGETHER];
    float factors[TOGETHER];
    for (int k = 0; k < count; k++) {
      from[k] = (const float *)(DATA(x) + (first + k) % heads * NB(x, 1) + (first + k) / heads * NB(x, 2));
    }
    if (weights != NULL) {
      if (count == TOGETHER) norm_factors(from, TOGETHER, n, r->epsilon, factors);
      else
        for (int k = 0; k < count; k++) norm_factors(from + k, 1, n, r->epsilon, factors + k);
    }
    for (int k = 0; k < count; k++) {
      const float *head = from[k];
      float *to = out + (first + k) * n;
      if (weights != NULL) {
        for (int64_t i = 0; i < n; i++) normed[i] = head[i] * factors[k] * weights[i];
        head = normed;
      }
      rotate_head(r, head, tables + (first + k) / heads * r->dimension, to);
      memcpy(to + r->dimension, head + r->dimension, (n - r->dimension) * sizeof(float));
    }
  }
}

uintptr_t kvasir_rope_table_pointer(void) { return (uintptr_t)rope_table; }
uintptr_t kvasir_rotate_heads_pointer(void) { return (uintptr_t)rotate_heads; }
