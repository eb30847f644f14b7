/* Matmuls with Q4_0 matrices. 32 inputs share a scale, and a weight is scale * (nibble - 8). */
#include "tiles.h"
#include "q8-rows.h"

typedef f16 scale_bits;
INLINE float scale_of(f16 scale) { return float_of(scale); }
INLINE int value_of(int nibble) { return nibble - 8; }

#include "nibble-tiles.h"

/* The factor is a power of two: exact. */
INLINE vec load_scales(const uint8_t *scales) { return load_f16((const f16 *)scales) * splat(1.0f / NIBBLE); }

INLINE void load_weights(const uint8_t *nibbles, ivec w[2 * GROUPS]) {
  UNROLL for (int g = 0; g < GROUPS; g++) {
    const ivec two = load_ints(nibbles + g * TILE_OUTPUTS * 4);
    w[g] = lower_nibbles(two);
    w[GROUPS + g] = upper_nibbles(two);
  }
}

INLINE ivec dot_start(const struct quantized *y) { return splat_four(&y->correction); }
INLINE ivec dot(const ivec w[2 * GROUPS], const struct quantized *y) {
  ivec products = dot_start(y);
  UNROLL for (int g = 0; g < 2 * GROUPS; g++) products = add_products(products, w[g], y->values + 4 * g);
  return integers(products);
}

#include "q8-matmul.h"
#include "tile-operations.h"
