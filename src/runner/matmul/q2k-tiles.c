/*
 * Matmuls with Q2_K matrices. A weight is d * scale * q - dmin * minimum. q has two bits; 16 inputs share a scale and a minimum
 * of four bits. A block in a tile:
 *
 *   weights (two-bits.h)
 *   scales  [16][TILE_OUTPUTS]   bytes: scales in the lower four bits, minima in the upper ones
 */
#define PREFETCH_ROWS_MIN 1 /* more computing per byte than other types */
#define ROW_BY_ROW_MIN 2    /* also faster with GCC */
#define WITH_MINIMA
#include "tiles.h"
#include "k-rows.h"
#include "two-bits.h"

#define SCALE_INPUTS 16
#define ADDED 0
#define UNITS 1

struct packed {
  uint8_t scales[16], weights[64];
  f16 d, dmin;
};

INLINE void set_test_scales(struct packed *p) {
  p->d = 0x2c7c ^ (p->d & 3);
  p->dmin = 0x2c7c ^ (p->dmin & 3);
}

struct block {
  two_bits weights;
  uint8_t scales[16][TILE_OUTPUTS];
};

#include "integer-scales.h"

INLINE void load_weights(const struct block *t, int thirty_two, ivec w[8]) {
  UNROLL for (int g = 0; g < 8; g++) {
    const ivec four = load_ints(t->weights[thirty_two / 2][g % 4]);
    w[g] = four >> (thirty_two % 2 * 4 + g / 4 * 2) & splat_byte(3);
  }
}

INLINE const struct block_scales *scales_in(const uint8_t *factors, const struct block *t, struct block_scales *space) {
  (void)factors;
  UNROLL for (int s = 0; s < 16; s += 4) {
    const ivec both = load_ints(t->scales[s]);
    store_ints(space->of[s], both & splat_byte(15));
    store_ints(space->minima[s], both >> 4 & splat_byte(15));
  }
  return space;
}

INLINE void lay_out_block(const struct packed *from, int64_t blocks, uint8_t *factors, struct block *t) {
  const int64_t row_bytes = blocks * (int64_t)sizeof *from;
  EACH_OUTPUT store_scale(factors, output, (scale_bits){from[output * blocks].d, from[output * blocks].dmin});
  lay_out_bytes(from->scales, row_bytes, 16, t->scales);
  lay_out_two_bits(from->weights, row_bytes, t->weights);
}
