/* Rows as products with Q8_0 and Q4_0 want them: rounded to 8 bits, 32 inputs with one scale. */

#define BLOCK 32

struct rounded {
  float scale;
  int32_t correction; /* -128 times the sum of the values: what is added to weights so that they are unsigned */
  int8_t values[BLOCK];
};

INLINE void round_block(const float *x, struct rounded *y) {
  const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
  const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
  const __m512 factor = _mm512_set1_ps(largest == 0 ? 0 : 127.0f / largest);
  const __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(a, factor)), j = _mm512_cvtps_epi32(_mm512_mul_ps(b, factor));
  _mm_storeu_si128((__m128i *)y->values, _mm512_cvtsepi32_epi8(i));
  _mm_storeu_si128((__m128i *)(y->values + 16), _mm512_cvtsepi32_epi8(j));
  /* Zero for numbers: a row that has overflowed stays no number, whatever the comparisons above made of it. */
  const __m512 none = _mm512_setzero_ps();
  const float spoilt = _mm512_reduce_add_ps(_mm512_fmadd_ps(a, none, _mm512_mul_ps(b, none)));
  /* ggml keeps the scale as a half. */
  y->scale = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph(_mm_set_ss(largest / 127.0f + spoilt), 0)));
  y->correction = -128 * _mm512_reduce_add_epi32(_mm512_add_epi32(i, j));
}
