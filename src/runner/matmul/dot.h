/*
 * What differs between CPUs: the multiplication of four bytes of each output's weights by four bytes of a row, and the
 * width of the sums. All outputs share the row.
 *
 *   VNNI   One instruction adds a lane's four products to a sum of 32 bits.
 *   AVX2   The products are added to two sums of 16 bits: vpmaddubsw, vpaddw. The sum of two products must fit into 16
 *          bits, so weights are below 64. Sums may wrap in between, and fit at the end.
 *
 *   NEON   `sdot` is like VNNI with vectors of four lanes, and its weights are signed (dot-neon.h). `smmla` multiplies two
 *          rows at once (row-pairs.h).
 *
 * `add_products(sum, w, x)` adds the products of a vector of weights and of the four bytes at `x`.
 *
 * On x86, weights are unsigned, because the instructions need one unsigned operand. Where a number was added to make
 * weights unsigned, sums begin with a `correction`, which depends only on the row. All sums are exact, so all forms get
 * the same integers.
 */

#if LANES == 16 && defined(__AVX512VNNI__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#define VNNI
#define FORM "AVX-512 VNNI"
#elif LANES == 8 && defined(__AVXVNNI__)
#define VNNI
#define FORM "AVX-VNNI"
#elif LANES == 8
#define FORM "AVX2"
#elif defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#define FORM "NEON"
#else
#error "this CPU lacks AVX2, or NEON with dot products"
#endif

#if LANES == 16

INLINE ivec nearest(vec x) { return (ivec)_mm512_cvtps_epi32((__m512)x); }
INLINE vec floats(ivec x) { return (vec)_mm512_cvtepi32_ps((__m512i)x); }
INLINE ivec widen_unsigned(const uint8_t *p) { return (ivec)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
INLINE ivec widen_signed(const int8_t *p) { return (ivec)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); }
INLINE void store_bytes(int8_t *p, ivec x) { _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8((__m512i)x)); }
INLINE ivec select_bits(ivec mask, ivec yes, ivec no) {
  return (ivec)_mm512_ternarylogic_epi32((__m512i)mask, (__m512i)yes, (__m512i)no, 0xca);
}
/* Of each byte's lower four bits, the entry of a table of 16 bytes; upper bits must be 0. */
INLINE ivec look_up(const int8_t *table, ivec indices) {
  const __m512i entries = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
  return (ivec)_mm512_shuffle_epi8(entries, (__m512i)indices);
}
/* Adds to each lane the products of its two pairs of 16-bit numbers. */
INLINE ivec add_pairs(ivec sum, ivec a, ivec b) {
  return (ivec)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
}

#elif LANES == 8

INLINE ivec nearest(vec x) { return (ivec)_mm256_cvtps_epi32((__m256)x); }
INLINE vec floats(ivec x) { return (vec)_mm256_cvtepi32_ps((__m256i)x); }
INLINE ivec widen_unsigned(const uint8_t *p) { return (ivec)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
INLINE ivec widen_signed(const int8_t *p) { return (ivec)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
INLINE void store_bytes(int8_t *p, ivec x) {
  const __m128i int16s = _mm_packs_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));
  _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(int16s, int16s));
}
INLINE ivec select_bits(ivec mask, ivec yes, ivec no) { return (yes & mask) | (no & ~mask); }
INLINE ivec look_up(const int8_t *table, ivec indices) {
  const __m256i entries = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
  return (ivec)_mm256_shuffle_epi8(entries, (__m256i)indices);
}
#if defined(VNNI)
INLINE ivec add_pairs(ivec sum, ivec a, ivec b) {
  return (ivec)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
}
#else
INLINE ivec add_pairs(ivec sum, ivec a, ivec b) { return sum + (ivec)_mm256_madd_epi16((__m256i)a, (__m256i)b); }
#endif

#endif

INLINE ivec load_ints(const void *p) {
  ivec v;
  memcpy(&v, p, sizeof v);
  return v;
}
INLINE void store_ints(void *p, ivec v) { memcpy(p, &v, sizeof v); }
INLINE ivec splat_int(int32_t x) { return x - (ivec){0}; }
INLINE ivec splat_byte(int8_t x) { return splat_int(0x01010101 * (uint8_t)x); }
/* The same four bytes in every lane. */
INLINE ivec splat_four(const void *p) {
  int32_t four;
  memcpy(&four, p, 4);
  return splat_int(four);
}
INLINE vec magnitude(vec x) { return (vec)((ivec)x & splat_int(0x7fffffff)); }

#if LANES == 4
#include "dot-neon.h"
#else

/* Sums of a row's bytes, sixteen at a time, with the widths and the wrapping of `add_products`. */
typedef __m128i byte_sums;
INLINE __m128i sixteen(const int8_t *p) { return _mm_loadu_si128((const __m128i *)p); }
INLINE float rounded_to_f16(float x) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph(_mm_set_ss(x), 0))); }

#if defined(VNNI)

#if LANES == 16
/* GCC 12 would broadcast the row's bytes by an instruction of their own, and move sums between registers. */
INLINE ivec add_products(ivec sum, ivec w, const void *x) {
#if defined(__clang__)
  return (ivec)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)splat_four(x));
#else
  __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const char(*)[4])x));
  return sum;
#endif
}
INLINE byte_sums add_bytes(byte_sums sum, const int8_t *p) { return _mm_dpbusd_epi32(sum, _mm_set1_epi8(1), sixteen(p)); }
#else
INLINE ivec add_products(ivec sum, ivec w, const void *x) {
  return (ivec)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w, (__m256i)splat_four(x));
}
INLINE byte_sums add_bytes(byte_sums sum, const int8_t *p) {
  return _mm_dpbusd_avx_epi32(sum, _mm_set1_epi8(1), sixteen(p));
}
#endif
INLINE ivec integers(ivec sum) { return sum; }

/* The value with which sums begin if `added` was added to each weight. */
INLINE int32_t correction(byte_sums x, int added) {
  const __m128i two = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  return -added * _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
INLINE int16_t total(byte_sums x) { return (int16_t)correction(x, -1); }

/* Signed weights: flipping the upper bit adds 128. */
#define SIGN_BITS 0x80808080u
INLINE ivec add_signed_products(ivec sum, ivec w, const void *x) { return add_products(sum, w, x); }
INLINE ivec signed_start(int32_t correction) { return splat_int(correction); }

/* Small signed weights, with this number added: sums begin with `small_start`. */
#define SMALL_ADDED 128
INLINE ivec small_start(int32_t correction) { return splat_int(correction); }

/* The value of a nibble of 1: upper nibbles are not shifted. */
#define NIBBLE 16
INLINE ivec lower_nibbles(ivec two) { return two << 4 & splat_byte(-16); }
INLINE ivec upper_nibbles(ivec two) { return two & splat_byte(-16); }

/* Sums of nibbles are multiplied by scales of six bits and added to `scaled`. The sum of 128 inputs is below 2^24, so
 * floats have it exactly. */
typedef vec scaled;
typedef vec scales;
INLINE scales scales_of(ivec x) { return floats(x); }
INLINE scales scales_of_nibbles(ivec x) { return floats(x) * splat(1.0f / NIBBLE); }
INLINE scaled add_scaled(scaled part, ivec sum, scales scale) { return fma_(floats(sum), scale, part); }
/* The sum of two times 128 inputs as integers, rounded once. */
INLINE vec floats_of(scaled first, scaled second) { return first + second; }

/* Sums of 16 inputs with weights of six bits, to which 32 was added. */
INLINE void sixteen_corrections(byte_sums x, int16_t to[2]) {
  const int32_t all = correction(x, 32);
  memcpy(to, &all, sizeof all);
}
typedef ivec signed_scales;
INLINE signed_scales signed_scales_of(ivec x) { return x; }
INLINE ivec add_two_sixteens(ivec part, const ivec w[8], const int8_t *x, const int16_t (*corrections)[2],
                             const signed_scales scales[2]) {
  ivec first = splat_four(corrections[0]), second = splat_four(corrections[1]);
  UNROLL for (int g = 0; g < 4; g++) {
    first = add_products(first, w[g], x + 4 * g);
    second = add_products(second, w[4 + g], x + 16 + 4 * g);
  }
  return part + first * scales[0] + second * scales[1];
}

#else

INLINE ivec add_products(ivec sum, ivec w, const void *x) {
  return (ivec)_mm256_add_epi16((__m256i)sum, _mm256_maddubs_epi16((__m256i)w, (__m256i)splat_four(x)));
}
INLINE byte_sums add_bytes(byte_sums sum, const int8_t *p) {
  return _mm_add_epi16(sum, _mm_maddubs_epi16(_mm_set1_epi8(1), sixteen(p)));
}
INLINE ivec integers(ivec sum) { return add_pairs(splat_int(0), sum, splat_int(0x00010001)); }

INLINE int32_t correction(byte_sums x, int added) {
  const __m128i two = _mm_add_epi16(x, _mm_shuffle_epi32(x, 0x4e));
  const __m128i both = _mm_add_epi16(two, _mm_shuffle_epi32(two, 0xb1));
  return _mm_cvtsi128_si32(_mm_mullo_epi16(both, _mm_set1_epi16((int16_t)-added)));
}
INLINE int16_t total(byte_sums x) {
  const int32_t both = correction(x, -1);
  return (int16_t)(both + (both >> 16));
}

/* Signed weights: the sign of a weight moves to the row's byte, and the sum of two products of 128 and 127 fits. */
#define SIGN_BITS 0u
INLINE ivec add_signed_products(ivec sum, ivec w, const void *x) {
  const __m256i signed_x = _mm256_sign_epi8((__m256i)splat_four(x), (__m256i)w);
  const __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)w), signed_x);
  return sum + integers((ivec)products);
}
INLINE ivec signed_start(int32_t correction) {
  (void)correction;
  return splat_int(0);
}

/* Three times the 8 for which rows have a correction: weights of -12 to 12 become 12 to 36. */
#define SMALL_ADDED 24
INLINE ivec small_start(int32_t correction) {
  const __m256i once = (__m256i)splat_int(correction);
  return (ivec)_mm256_add_epi16(_mm256_add_epi16(once, once), once);
}

#define NIBBLE 1
INLINE ivec lower_nibbles(ivec two) { return two & splat_byte(15); }
INLINE ivec upper_nibbles(ivec two) { return two >> 4 & splat_byte(15); }

/* As integers: the lower and the upper 16 bits of a lane have the same scale. The sum of 256 inputs is below 2^31. */
typedef ivec scaled;
typedef ivec scales;
INLINE scales scales_of(ivec x) { return (x & splat_int(0xffff)) | x << 16; }
INLINE scales scales_of_nibbles(ivec x) { return scales_of(x); }
INLINE scaled add_scaled(scaled part, ivec sum, scales scale) { return add_pairs(part, sum, scale); }
INLINE vec floats_of(scaled first, scaled second) { return floats(first + second); }

INLINE void sixteen_corrections(byte_sums x, int16_t to[2]) {
  const int32_t both = correction(x, 32);
  memcpy(to, &both, sizeof both);
}
typedef ivec signed_scales;
INLINE signed_scales signed_scales_of(ivec x) { return scales_of(x); }
INLINE ivec add_two_sixteens(ivec part, const ivec w[8], const int8_t *x, const int16_t (*corrections)[2],
                             const signed_scales scales[2]) {
  UNROLL for (int s = 0; s < 2; s++) {
    ivec products = splat_four(corrections[s]);
    UNROLL for (int g = 0; g < 4; g++) products = add_products(products, w[4 * s + g], x + 16 * s + 4 * g);
    part = add_pairs(part, products, scales[s]);
  }
  return part;
}

/* The sums of 16 inputs fit into 16 bits. */
INLINE ivec add_thirty_two(ivec part, const ivec w[8], const int8_t *x, signed_scales scale) {
  const int16_t none[2][2] = {{0}};
  return add_two_sixteens(part, w, x, none, (const signed_scales[2]){scale, scale});
}

#endif

#endif

/* Of each byte. */
typedef int8_t bytes_of_ints __attribute__((vector_size(4 * LANES)));
INLINE ivec minus_32(ivec x) { return (ivec)((bytes_of_ints)x - 32); }

/* Adds the products of 32 inputs and weights of at most six bits, times their scale. */
#if LANES != 8 || defined(VNNI)
INLINE ivec add_thirty_two(ivec part, const ivec w[8], const int8_t *x, signed_scales scale) {
  ivec products = splat_int(0);
  UNROLL for (int g = 0; g < 8; g++) products = add_products(products, w[g], x + 4 * g);
  return part + products * scale;
}
#endif

/* Weights of 32 inputs that are entries of a table. Lower nibbles have the first 16 inputs, upper nibbles the others. */
INLINE void load_entries(const int8_t table[16], const void *nibbles, ivec w[8]) {
  UNROLL for (int g = 0; g < 4; g++) {
    const ivec two = load_ints((const char *)nibbles + g * LANES * 4);
    w[g] = look_up(table, two & splat_byte(15));
    w[4 + g] = look_up(table, two >> 4 & splat_byte(15));
  }
}
