/*
 * Matmuls with Q5_0 matrices. 32 inputs share a scale, and a weight is scale * (five bits - 16).
 *
 * Eight times a weight is multiplied like a weight of Q8_0, and scales are an eighth: both are exact. Fifth bits are
 * flipped where weights are signed.
 */
#define PREFETCH_ROWS_MIN 1 /* more computing per byte than other types */
#include "tiles.h"
#include "q8-rows.h"

typedef f16 scale_bits;
#define ADDED 16
#define FLIPPED (SIGN_BITS == 0)
#include "five-bit-tiles.h"

INLINE void set_test_scales(struct packed *p) { p->scale = 0x2c7c ^ (p->scale & 3); }

INLINE vec load_scales(const uint8_t *scales) { return load_f16((const f16 *)scales) * splat(0.125f); }

INLINE void load_weights(const uint8_t *weights, ivec w[2 * GROUPS]) {
  const ivec fifth = load_ints(weights + GROUPS * TILE_OUTPUTS * 4), nibble = splat_byte(15 << 3);
  UNROLL for (int g = 0; g < GROUPS; g++) {
    const ivec two = load_ints(weights + g * TILE_OUTPUTS * 4);
    w[g] = select_bits(nibble, two << 3, fifth << (7 - g) & splat_byte(-128));
    w[GROUPS + g] = select_bits(nibble, two >> 1, fifth << (3 - g) & splat_byte(-128));
  }
}

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
