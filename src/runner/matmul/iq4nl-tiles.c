/* Matmuls with IQ4_NL matrices. 32 inputs share a scale, and a weight is scale * the nibble's entry of a table. */
#include "tiles.h"
#include "q8-rows.h"

#define EACH_VALUE(f) \
  f(-127), f(-104), f(-83), f(-65), f(-49), f(-35), f(-22), f(-10), f(1), f(13), f(25), f(38), f(53), f(69), f(89), f(113)
#define FLIPPED(value) (int8_t)((value) ^ (int8_t)(SIGN_BITS & 255))
#define SAME(value) (value)
/* As signed weights of Q8_0. */
static const int8_t weights_of[16] = {EACH_VALUE(FLIPPED)};
static const int8_t values[16] = {EACH_VALUE(SAME)};

typedef f16 scale_bits;
INLINE float scale_of(f16 scale) { return float_of(scale); }
INLINE int value_of(int nibble) { return values[nibble]; }

#include "nibble-tiles.h"

INLINE vec load_scales(const uint8_t *scales) { return load_f16((const f16 *)scales); }

INLINE void load_weights(const uint8_t *nibbles, ivec w[2 * GROUPS]) { load_entries(weights_of, nibbles, w); }

INLINE ivec dot_start(const struct quantized *y) { return signed_start(y->correction); }
INLINE ivec dot(const ivec w[2 * GROUPS], const struct quantized *y) {
  ivec products = dot_start(y);
  UNROLL for (int g = 0; g < 2 * GROUPS; g++) {
    products = add_signed_products(products, w[g], y->values + 4 * g);
  }
  return products;
}

#include "q8-matmul.h"
#include "tile-operations.h"
