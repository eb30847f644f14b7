/*
 * Vectors of LANES floats, in which the kernels are written. Every operation is exact IEEE arithmetic in an order that
 * the source fixes, so two functions that do the same operations get the same bits.
 */
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define LANES 16
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define LANES 8
#else
#define LANES 4
#if defined(__aarch64__)
#include <arm_neon.h>
#endif
#endif

#if LANES > 4 || defined(__aarch64__)
#define IS_FUSED 1 /* whether `fma_` rounds once */
#else
#define IS_FUSED 0
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint16_t f16; /* the bits of an IEEE half-precision number */

INLINE vec load(const float *p) {
  vec v;
  memcpy(&v, p, sizeof v);
  return v;
}
INLINE void store(float *p, vec v) { memcpy(p, &v, sizeof v); }
INLINE vec splat(float x) { return x - (vec){0}; }
/* The first `count` elements; the other lanes are `rest`. */
INLINE vec load_part(const float *p, int64_t count, float rest) {
  vec v = splat(rest);
  memcpy(&v, p, count * sizeof(float));
  return v;
}
INLINE void store_part(float *p, vec v, int64_t count) { memcpy(p, &v, count * sizeof(float)); }
INLINE vec choose(ivec mask, vec yes, vec no) { return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask)); }

#if LANES == 16
INLINE vec fma_(vec a, vec b, vec c) { return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE vec max_(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vec load_f16(const f16 *p) { return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE vec load_int8(const int8_t *p) { return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))); }
#elif LANES == 8
INLINE vec fma_(vec a, vec b, vec c) { return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE vec max_(vec a, vec b) { return (vec)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vec load_f16(const f16 *p) { return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE vec load_int8(const int8_t *p) { return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))); }
#elif defined(__aarch64__)
INLINE vec fma_(vec a, vec b, vec c) { return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
INLINE vec max_(vec a, vec b) { return choose((ivec)(a > b), a, b); }
INLINE vec load_f16(const f16 *p) { return (vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
#else
/* Without a fused instruction: a multiplication and an addition, both rounded. */
INLINE vec fma_(vec a, vec b, vec c) { return a * b + c; }
INLINE vec max_(vec a, vec b) { return choose((ivec)(a > b), a, b); }
INLINE vec load_f16(const f16 *p) {
  vec v;
  for (int i = 0; i < LANES; i++) {
    const uint32_t sign = (uint32_t)(p[i] & 0x8000) << 16, magnitude = p[i] & 0x7fff;
    uint32_t bits;
    float x;
    if (magnitude >= 0x7c00) bits = (magnitude << 13) + 0x70000000u;
    else if (magnitude >= 0x0400) bits = (magnitude << 13) + 0x38000000u;
    else {
      x = (float)magnitude * 0x1p-24f;
      memcpy(&bits, &x, 4);
    }
    bits |= sign;
    memcpy(&x, &bits, 4);
    v[i] = x;
  }
  return v;
}
#endif
#if LANES == 4
INLINE vec load_int8(const int8_t *p) {
  vec v;
  for (int i = 0; i < LANES; i++) v[i] = p[i];
  return v;
}
#endif
/* The same value in every lane. */
INLINE vec splat_f16(const f16 *p) {
  f16 copies[LANES];
  for (int i = 0; i < LANES; i++) memcpy(copies + i, p, sizeof(f16));
  return load_f16(copies);
}

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (ivec){__VA_ARGS__})
#endif

/*
 * Of every 2h lanes, LOW takes the first h of a and then the first h of b; HIGH takes the second h of both. Stages of
 * h = LANES/2, ..., 2, 1 over LANES vectors transpose a square.
 */
#if LANES == 16
#define LOW8(a, b) SHUFFLE(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define HIGH8(a, b) SHUFFLE(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
#define LOW4(a, b) SHUFFLE(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27)
#define HIGH4(a, b) SHUFFLE(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31)
#define LOW2(a, b) SHUFFLE(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define HIGH2(a, b) SHUFFLE(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define LOW1(a, b) SHUFFLE(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30)
#define HIGH1(a, b) SHUFFLE(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31)
#elif LANES == 8
#define LOW4(a, b) SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define HIGH4(a, b) SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#define LOW2(a, b) SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH2(a, b) SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define LOW1(a, b) SHUFFLE(a, b, 0, 8, 2, 10, 4, 12, 6, 14)
#define HIGH1(a, b) SHUFFLE(a, b, 1, 9, 3, 11, 5, 13, 7, 15)
#else
#define LOW2(a, b) SHUFFLE(a, b, 0, 1, 4, 5)
#define HIGH2(a, b) SHUFFLE(a, b, 2, 3, 6, 7)
#define LOW1(a, b) SHUFFLE(a, b, 0, 4, 2, 6)
#define HIGH1(a, b) SHUFFLE(a, b, 1, 5, 3, 7)
#endif

#if LANES == 16
#define EACH_STAGE(stage) stage(8, LOW8, HIGH8) stage(4, LOW4, HIGH4) stage(2, LOW2, HIGH2) stage(1, LOW1, HIGH1)
#elif LANES == 8
#define EACH_STAGE(stage) stage(4, LOW4, HIGH4) stage(2, LOW2, HIGH2) stage(1, LOW1, HIGH1)
#else
#define EACH_STAGE(stage) stage(2, LOW2, HIGH2) stage(1, LOW1, HIGH1)
#endif

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

/* Rows become columns. */
INLINE void transpose(vec x[LANES]) {
#define TRANSPOSE(h, LOW, HIGH)                    \
  UNROLL for (int i = 0; i < LANES; i++) if (!(i & h)) { \
    const vec a = x[i], b = x[i + h];              \
    x[i] = LOW(a, b);                              \
    x[i + h] = HIGH(a, b);                         \
  }
  EACH_STAGE(TRANSPOSE)
#undef TRANSPOSE
}

/*
 * Transposes 16 elements of f16 of LANES rows: element e of the rows becomes `to[e * LANES ...]`. Moving halves of floats
 * takes fewer instructions than moving floats.
 */
#if LANES >= 8
typedef uint16_t halves __attribute__((vector_size(4 * LANES)));
#if LANES == 16
INLINE halves load_halves(const f16 *const rows[LANES], int row) {
  const __m256i a = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)rows[row])),
                                            _mm_loadu_si128((const __m128i *)rows[row + 8]), 1);
  const __m512i b = _mm512_inserti32x4(_mm512_castsi256_si512(a), _mm_loadu_si128((const __m128i *)rows[row] + 1), 2);
  return (halves)_mm512_inserti32x4(b, _mm_loadu_si128((const __m128i *)rows[row + 8] + 1), 3);
}
#define LOW_OF(type, a, b) (halves)_mm512_unpacklo_##type((__m512i)(a), (__m512i)(b))
#define HIGH_OF(type, a, b) (halves)_mm512_unpackhi_##type((__m512i)(a), (__m512i)(b))
#else
INLINE halves load_halves(const f16 *const rows[LANES], int row) {
  return (halves)_mm256_loadu_si256((const __m256i *)rows[row]);
}
#define LOW_OF(type, a, b) (halves)_mm256_unpacklo_##type((__m256i)(a), (__m256i)(b))
#define HIGH_OF(type, a, b) (halves)_mm256_unpackhi_##type((__m256i)(a), (__m256i)(b))
#endif
INLINE void transpose_halves(const f16 *const rows[LANES], f16 *to) {
  halves x[8], y[8];
  UNROLL for (int i = 0; i < 8; i++) x[i] = load_halves(rows, i);
  /* Squares of 8 in each 16 bytes: pairs of rows, then fours, then all 8. */
  UNROLL for (int i = 0; i < 4; i++) {
    y[2 * i] = LOW_OF(epi16, x[2 * i], x[2 * i + 1]);
    y[2 * i + 1] = HIGH_OF(epi16, x[2 * i], x[2 * i + 1]);
  }
  UNROLL for (int i = 0; i < 8; i += 4) {
    UNROLL for (int j = 0; j < 2; j++) {
      x[i + 2 * j] = LOW_OF(epi32, y[i + j], y[i + j + 2]);
      x[i + 2 * j + 1] = HIGH_OF(epi32, y[i + j], y[i + j + 2]);
    }
  }
  UNROLL for (int i = 0; i < 4; i++) {
    y[2 * i] = LOW_OF(epi64, x[i], x[i + 4]);
    y[2 * i + 1] = HIGH_OF(epi64, x[i], x[i + 4]);
  }
  UNROLL for (int e = 0; e < 8; e++) {
    memcpy(to + e * LANES, &y[e], 2 * LANES);
    memcpy(to + (8 + e) * LANES, (const char *)&y[e] + 2 * LANES, 2 * LANES);
  }
}
#endif

/* Lane i of the result is the sum of all lanes of x[i]: lanes LANES/2 apart first, neighbours last. */
INLINE vec sums(vec x[LANES]) {
#define SUM(h, LOW, HIGH) UNROLL for (int i = 0; i < h; i++) x[i] = LOW(x[i], x[i + h]) + HIGH(x[i], x[i + h]);
  EACH_STAGE(SUM)
#undef SUM
  return x[0];
}

INLINE float sum_lanes(vec v) {
  float x[LANES];
  store(x, v);
  UNROLL for (int h = LANES / 2; h > 0; h /= 2) for (int i = 0; i < h; i++) x[i] += x[i + h];
  return x[0];
}

/*
 * Sums have one order on all CPUs: that of a vector of WIDTH lanes. Where vectors are shorter, PARTS of them are one wide
 * vector, and vector i of a row is part i % PARTS. The function adds parts to part 0, parts PARTS/2 apart first.
 */
#define WIDTH 16
#define PARTS (WIDTH / LANES)
INLINE void add_parts(vec *x, int stride) {
  UNROLL for (int h = PARTS / 2; h > 0; h /= 2) UNROLL for (int p = 0; p < h; p++) x[p * stride] += x[(p + h) * stride];
}

INLINE float max_lanes(vec v) {
#define MAX(h, LOW, HIGH) v = max_(v, HIGH(v, v));
  EACH_STAGE(MAX)
#undef MAX
  return v[0];
}

/* 2^x for x <= 126, with a relative error of 3e-7; exactly 1 at 0, and 0 below -126. The polynomial interpolates 2^x at
 * Chebyshev's points of [-0.5, 0.5]. */
INLINE vec exp2_(vec x) {
  const vec magic = splat(0x1.8p23f);
  const vec shifted = x + magic;
  const vec r = x - (shifted - magic);
  vec y = splat(0.00015461444695632573f);
  y = fma_(y, r, splat(0.0013400428177416093f));
  y = fma_(y, r, splat(0.009618056678532362f));
  y = fma_(y, r, splat(0.05550327226670846f));
  y = fma_(y, r, splat(0.2402265092228873f));
  y = fma_(y, r, splat(0.6931472067028324f));
  y = fma_(y, r, splat(1.0f));
  const vec scaled = (vec)((ivec)y + ((ivec)shifted << 23));
  return (vec)((ivec)scaled & ~(ivec)(x < -126.0f));
}
INLINE float exp2_one(float x) { return exp2_(splat(x))[0]; }
