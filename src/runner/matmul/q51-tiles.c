/* Matmuls with Q5_1 matrices. 32 inputs share a scale and a minimum, and a weight is scale * five bits + minimum. */
#define PREFETCH_ROWS_MIN 1 /* more computing per byte than other types */
#define WITH_MINIMA
#include "tiles.h"
#include "q8-rows.h"

#define ADDED 0
#define FLIPPED 0
#include "five-bit-tiles.h"

INLINE void set_test_scales(struct packed *p) { p->scale = (scale_bits){0x2c7c ^ (p->scale.scale & 3), 0x2c7c}; }

INLINE void load_weights(const uint8_t *weights, ivec w[2 * GROUPS]) {
  const ivec fifth = load_ints(weights + GROUPS * TILE_OUTPUTS * 4);
  UNROLL for (int g = 0; g < GROUPS; g++) {
    const ivec two = load_ints(weights + g * TILE_OUTPUTS * 4);
    w[g] = five_bits(two, fifth, g);
    w[GROUPS + g] = five_bits(two >> 4, fifth, GROUPS + g);
  }
}

INLINE ivec dot_start(const struct quantized *y) {
  (void)y;
  return splat_int(0);
}
INLINE ivec dot(const ivec w[2 * GROUPS], const struct quantized *y) {
  return add_thirty_two(splat_int(0), w, y->values, signed_scales_of(splat_int(1)));
}

#include "q8-matmul.h"
#include "tile-operations.h"
