/*
 * One row times a Q4_K matrix in ggml's repacked layout (eight outputs interleaved, eight bytes at a time). The result
 * has the bits of ggml's own kernel for four rows. Sums within 64 elements are integers and exact in any order. Then
 * follow, per output and 64 elements, one fused multiply-add for the scales and one for the minima, in ascending order.
 *
 * For a single row ggml has another kernel with other bits: one multiply-add per 256 elements.
 */
#include "tensor.h"
#include <immintrin.h>
#include <math.h>

#define BLOCK 256

struct weights { /* 256 inputs of eight outputs */
  uint16_t scale[8], minimum[8]; /* f16 */
  uint8_t scales[96];            /* per 32 inputs twelve bytes: six bits for each output's scale and minimum */
  uint8_t nibbles[1024];
};
struct row { /* 256 inputs */
  float scale;
  int16_t sums[8]; /* of 32 */
  int8_t values[BLOCK];
};
struct matrix { /* written by TypeScript */
  const struct weights *weights;
  int64_t inputs, outputs;
};

/* As ggml quantizes four rows: the value of the largest magnitude becomes -127, the positive one if two have it. */
static void quantize(const float *x, struct row *y, int64_t blocks) {
  for (int64_t b = 0; b < blocks; b++, x += BLOCK, y++) {
    float largest = 0, most = 0;
    for (int i = 0; i < BLOCK; i++) {
      const float magnitude = fabsf(x[i]);
      largest = magnitude > largest ? magnitude : largest;
      most = x[i] > most ? x[i] : most;
    }
    const float inverse = largest == 0 ? 0 : most == largest ? -127.0f / largest : 127.0f / largest;
    y->scale = largest == 0 ? 0 : 1 / inverse;
    for (int s = 0; s < 8; s++) {
      int sum = 0;
      for (int i = s * 32; i < s * 32 + 32; i++) {
        const int value = (int)nearbyintf(x[i] * inverse);
        y->values[i] = (int8_t)value;
        sum += value;
      }
      y->sums[s] = (int16_t)sum;
    }
  }
}

/* Unpacks twelve bytes into eight scales and eight minima. */
static inline void unpack(const uint8_t *packed, uint64_t *scales, uint64_t *minima) {
  uint32_t w[3];
  memcpy(w, packed, sizeof w);
  const uint32_t s0 = w[0] & 0x3f3f3f3f, s1 = (w[2] & 0x0f0f0f0f) | ((w[0] >> 6 & 0x03030303) << 4);
  const uint32_t m0 = w[1] & 0x3f3f3f3f, m1 = (w[2] >> 4 & 0x0f0f0f0f) | ((w[1] >> 6 & 0x03030303) << 4);
  *scales = (uint64_t)s1 << 32 | s0;
  *minima = (uint64_t)m1 << 32 | m0;
}

static inline __m256 load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline __m256i bytes(uint64_t x) { return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)x)); }

static __m256 eight_outputs(const struct weights *w, const struct row *x, int64_t blocks) {
  const __m256i nibble = _mm256_set1_epi8(15);
  /* Each of four outputs' scales in four 16-bit lanes. */
  const __m256i first = _mm256_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1, -1, 2, -1, 2, -1, 2, -1, 2,
                                         -1, 3, -1, 3, -1, 3, -1, 3, -1);
  const __m256i second = _mm256_setr_epi8(4, -1, 4, -1, 4, -1, 4, -1, 5, -1, 5, -1, 5, -1, 5, -1, 6, -1, 6, -1, 6, -1,
                                          6, -1, 7, -1, 7, -1, 7, -1, 7, -1);
  const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
  __m256 sum = _mm256_setzero_ps(), minimum = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; b++, w++, x++) {
    _mm_prefetch((const char *)(w + 2), _MM_HINT_T0);
    const __m256 row_scale = _mm256_set1_ps(x->scale);
    const __m256 scale = _mm256_mul_ps(load_f16(w->scale), row_scale);
    const __m256 minimum_scale = _mm256_mul_ps(load_f16(w->minimum), row_scale);
    for (int s = 0; s < 4; s++) {
      uint64_t scales[2], minima[2];
      unpack(w->scales + s * 24, &scales[0], &minima[0]);
      unpack(w->scales + s * 24 + 12, &scales[1], &minima[1]);
      __m256i low0 = _mm256_setzero_si256(), low1 = low0, high0 = low0, high1 = low0;
      for (int k = 0; k < 4; k++) {
        const uint8_t *p = w->nibbles + (s * 4 + k) * 64;
        long long a, c;
        memcpy(&a, x->values + s * 64 + k * 8, 8);
        memcpy(&c, x->values + s * 64 + 32 + k * 8, 8);
        const __m256i low = _mm256_set1_epi64x(a), high = _mm256_set1_epi64x(c);
        const __m256i v0 = _mm256_loadu_si256((const __m256i *)p), v1 = _mm256_loadu_si256((const __m256i *)(p + 32));
        low0 = _mm256_add_epi16(low0, _mm256_maddubs_epi16(_mm256_and_si256(v0, nibble), low));
        low1 = _mm256_add_epi16(low1, _mm256_maddubs_epi16(_mm256_and_si256(v1, nibble), low));
        high0 = _mm256_add_epi16(high0, _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(v0, 4), nibble), high));
        high1 = _mm256_add_epi16(high1, _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(v1, 4), nibble), high));
      }
      const __m256i s_low = _mm256_set1_epi64x((long long)scales[0]), s_high = _mm256_set1_epi64x((long long)scales[1]);
      const __m256i i0 = _mm256_add_epi32(_mm256_madd_epi16(low0, _mm256_shuffle_epi8(s_low, first)),
                                          _mm256_madd_epi16(high0, _mm256_shuffle_epi8(s_high, first)));
      const __m256i i1 = _mm256_add_epi32(_mm256_madd_epi16(low1, _mm256_shuffle_epi8(s_low, second)),
                                          _mm256_madd_epi16(high1, _mm256_shuffle_epi8(s_high, second)));
      const __m256i total = _mm256_permutevar8x32_epi32(_mm256_hadd_epi32(i0, i1), order);
      sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), scale, sum);
      const __m256i m = _mm256_add_epi32(_mm256_mullo_epi32(bytes(minima[0]), _mm256_set1_epi32(x->sums[2 * s])),
                                         _mm256_mullo_epi32(bytes(minima[1]), _mm256_set1_epi32(x->sums[2 * s + 1])));
      minimum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(m), minimum_scale, minimum);
    }
  }
  return _mm256_sub_ps(sum, minimum);
}

/* ggml's custom operation on one row. Every thread quantizes the whole row, which is faster than waiting. */
static void multiply(char *tensor, int thread, int threads, void *userdata) {
  const struct matrix *m = userdata;
  const float *x = (const float *)DATA(SOURCE(tensor, 0));
  float *out = (float *)DATA(tensor);
  const int64_t blocks = m->inputs / BLOCK, groups = m->outputs / 8;
  struct row row[INPUTS_MAX / BLOCK];
  quantize(x, row, blocks);
  for (int64_t g = groups * thread / threads; g < groups * (thread + 1) / threads; g++) {
    _mm256_storeu_ps(out + g * 8, eight_outputs(m->weights + g * blocks, row, blocks));
  }
}

uintptr_t kvasir_multiply_pointer(void) { return (uintptr_t)multiply; }
