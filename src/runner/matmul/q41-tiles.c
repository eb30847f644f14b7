/* Matmuls with Q4_1 matrices. 32 inputs share a scale and a minimum, and a weight is scale * nibble + minimum. */
#define WITH_MINIMA
#include "tiles.h"
#include "q8-rows.h"

INLINE int value_of(int nibble) { return nibble; }

#include "nibble-tiles.h"

INLINE void load_weights(const uint8_t *nibbles, ivec w[2 * GROUPS]) {
  UNROLL for (int g = 0; g < GROUPS; g++) {
    const ivec two = load_ints(nibbles + g * TILE_OUTPUTS * 4);
    w[g] = two & splat_byte(15);
    w[GROUPS + g] = two >> 4 & splat_byte(15);
  }
}

INLINE ivec dot_start(const struct quantized *y) {
  (void)y;
  return splat_int(0);
}
/* AVX2: the sum of 16 products of 15 and 127 fits into 16 bits. */
INLINE ivec dot(const ivec w[2 * GROUPS], const struct quantized *y) {
  ivec products = dot_start(y);
  UNROLL for (int g = 0; g < 2 * GROUPS; g++) products = add_products(products, w[g], y->values + 4 * g);
  return integers(products);
}

#include "q8-matmul.h"
#include "tile-operations.h"
