/* Matmuls with IQ4_NL matrices. 32 inputs share a scale, and a weight is scale * the nibble's entry of a table. */
#include "tiles.h"
#include "q8-rows.h"
#include "iq4-values.h"

static const int8_t values[16] = {IQ4_VALUES(SAME)};

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
