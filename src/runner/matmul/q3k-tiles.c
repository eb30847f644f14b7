/*
 * Matmuls with Q3_K matrices. A weight is d * (scale - 32) * (q - 4). q has three bits; 16 inputs share a scale of six bits.
 *
 * Eight times a weight is multiplied like a weight of Q6_K, and d is an eighth: both are exact. A block in a tile:
 *
 *   weights (two-bits.h)
 *   upper   [8][TILE_OUTPUTS][4]   the third bits of 32 inputs: bit g of byte i belongs to input 4 g + i
 *   scales  [12][TILE_OUTPUTS]     packed as in the file
 */
#define PREFETCH_ROWS_MIN 1 /* more computing per byte than other types */
#define ROW_BY_ROW_MIN 2    /* also faster with GCC */
#include "tiles.h"
#include "k-rows.h"
#include "bits-of-32.h"
#include "two-bits.h"

#define SCALE_INPUTS 16
#define ADDED 32
#define UNITS 8

struct packed {
  uint8_t upper[32], weights[64], scales[12];
  f16 d;
};

INLINE void set_test_scales(struct packed *p) { p->d = 0x2c7c ^ (p->d & 3); }

struct block {
  two_bits weights;
  uint8_t upper[8][TILE_OUTPUTS][4];
  uint8_t scales[12][TILE_OUTPUTS];
};
typedef f16 scale_bits;

#include "integer-scales.h"

INLINE ivec shifted(ivec x, int left) { return left >= 0 ? x << left : x >> -left; }

/* Bits 3 to 5 of a byte have q. */
INLINE void load_weights(const struct block *t, int thirty_two, ivec w[8]) {
  const ivec upper = load_ints(t->upper[thirty_two]);
  UNROLL for (int g = 0; g < 8; g++) {
    const ivec four = load_ints(t->weights[thirty_two / 2][g % 4]);
    const ivec lower = shifted(four, 3 - (thirty_two % 2 * 4 + g / 4 * 2));
    w[g] = select_bits(splat_byte(3 << 3), lower, shifted(upper, 5 - g)) & splat_byte(7 << 3);
  }
}

/* Four bits of each scale are in the first eight bytes, its upper two in the last four. */
INLINE const struct block_scales *scales_in(const uint8_t *factors, const struct block *t, struct block_scales *space) {
  (void)factors;
  const ivec a = load_ints(t->scales), b = load_ints(t->scales + 4), c = load_ints(t->scales + 8);
  const ivec four = splat_byte(15), upper = splat_byte(48);
  store_ints(space->of, minus_32((a & four) | (c << 4 & upper)));
  store_ints(space->of + 4, minus_32((b & four) | (c << 2 & upper)));
  store_ints(space->of + 8, minus_32((a >> 4 & four) | (c & upper)));
  store_ints(space->of + 12, minus_32((b >> 4 & four) | (c >> 2 & upper)));
  return space;
}

INLINE void lay_out_block(const struct packed *from, int64_t blocks, uint8_t *factors, struct block *t) {
  const int64_t row_bytes = blocks * (int64_t)sizeof *from;
  EACH_OUTPUT store_scale(factors, output, from[output * blocks].d);
  lay_out_bytes(from->scales, row_bytes, 12, t->scales);
  lay_out_two_bits(from->weights, row_bytes, t->weights);
  words packed[8], upper[8];
  lay_out_words(from->upper, row_bytes, 8, packed);
  lay_out_bits(packed, upper);
  memcpy(t->upper, upper, sizeof upper);
}
