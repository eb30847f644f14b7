/*
 * Matmuls with MXFP4 matrices. 32 inputs share a scale, a power of two of which the exponent is stored. A weight is an
 * entry of a table, which has twice its value, times half the scale, as in ggml.
 */
#include "tiles.h"
#include "q8-rows.h"

#define EACH_VALUE(f) \
  f(0), f(1), f(2), f(3), f(4), f(6), f(8), f(12), f(0), f(-1), f(-2), f(-3), f(-4), f(-6), f(-8), f(-12)
#define ADDED(value) (int8_t)((value) + SMALL_ADDED)
#define SAME(value) (value)
static const int8_t values_added[16] = {EACH_VALUE(ADDED)};
static const int8_t values[16] = {EACH_VALUE(SAME)};

typedef uint8_t scale_bits;
/* Half of 2^(e - 127) as the bits of a float: the exponent e - 1. For an e of 0 or 1 it is subnormal: 2^-128, 2^-127. */
INLINE vec load_scales(const uint8_t *exponents) {
  const ivec e = widen_unsigned(exponents);
  const ivec normal = (e - 1) << 23, subnormal = 0x00200000 << (e & 1);
  return (vec)select_bits(e > 1, normal, subnormal);
}
INLINE float scale_of(uint8_t e) {
  const int32_t bits = e > 1 ? (e - 1) << 23 : 0x00200000 << e;
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return scale;
}
INLINE int value_of(int nibble) { return values[nibble]; }

#include "nibble-tiles.h"

INLINE void load_weights(const uint8_t *nibbles, ivec w[2 * GROUPS]) { load_entries(values_added, nibbles, w); }

INLINE ivec dot_start(const struct quantized *y) { return small_start(y->correction); }
INLINE ivec dot(const ivec w[2 * GROUPS], const struct quantized *y) {
  ivec products = dot_start(y);
  UNROLL for (int g = 0; g < 2 * GROUPS; g++) products = add_products(products, w[g], y->values + 4 * g);
  return integers(products);
}

#include "q8-matmul.h"
#include "tile-operations.h"
