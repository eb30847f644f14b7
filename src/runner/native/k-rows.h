/* Rows as products with Q4_K and Q6_K want them: rounded to 8 bits, 256 inputs with one scale. */

#define BLOCK 256

struct rounded {
  float scale;
  int32_t corrections[16]; /* -32 times the sum of 16 values: Q6_K's weights are stored with 32 added */
  int16_t sums[8];         /* of 32 values: what Q4_K's minima are multiplied by */
  int8_t values[BLOCK];
};

/* As ggml rounds for repacked matrices: the largest value becomes -127, or 127 where only its negative is as large. */
INLINE void round_block(const float *x, struct rounded *y) {
  const __m512 none = _mm512_setzero_ps();
  __m512 largest16 = none, most16 = none, spoilt16 = none;
  for (int i = 0; i < BLOCK; i += 16) {
    const __m512 a = _mm512_loadu_ps(x + i);
    largest16 = _mm512_max_ps(largest16, _mm512_abs_ps(a));
    most16 = _mm512_max_ps(most16, a);
    spoilt16 = _mm512_fmadd_ps(a, none, spoilt16);
  }
  const float largest = _mm512_reduce_max_ps(largest16), most = _mm512_reduce_max_ps(most16);
  const float factor = largest == 0 ? 0 : most == largest ? -127.0f / largest : 127.0f / largest;
  int sums[16];
  for (int s = 0; s < 16; s++) {
    const __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + s * 16), _mm512_set1_ps(factor)));
    _mm_storeu_si128((__m128i *)(y->values + s * 16), _mm512_cvtsepi32_epi8(i));
    sums[s] = _mm512_reduce_add_epi32(i);
    y->corrections[s] = (int32_t)(-32u * (uint32_t)sums[s]);
  }
  for (int s = 0; s < 8; s++) y->sums[s] = (int16_t)((uint32_t)sums[2 * s] + (uint32_t)sums[2 * s + 1]);
  /* `spoilt` is zero for numbers: a row that has overflowed stays no number, whatever the comparisons made of it. */
  y->scale = (largest == 0 ? 0 : 1 / factor) + _mm512_reduce_add_ps(spoilt16);
}
