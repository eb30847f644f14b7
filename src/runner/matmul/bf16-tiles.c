/* Matmuls with BF16 matrices: a weight is the upper half of an F32. Instructions for BF16 round activations too, so none is used. */
#include "half-rows.h"

INLINE vec load_weights(const uint16_t *weights) {
#if LANES == 16
  return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)weights)), 16);
#elif LANES == 8
  return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)weights)), 16);
#else
  return (vec)vshll_n_u16(vld1_u16(weights), 16);
#endif
}
INLINE float value_of(uint16_t weight) {
  const uint32_t bits = (uint32_t)weight << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
/* Below 2, and not subnormal. */
INLINE uint16_t small_number(uint16_t bits) { return (bits & 0x83ff) | 0x3c00; }

#include "half-tiles.h"
