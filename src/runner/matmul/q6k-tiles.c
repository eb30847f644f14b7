/*
 * Matmuls with Q6_K matrices. A weight is d * scale * (q - 32). q has six bits; 16 inputs share a scale of eight bits.
 *
 * Three bytes have the weights of four inputs: three in the lower six bits, and the fourth in the upper two bits of all
 * three. These inputs are 16 apart. A block in a tile:
 *
 *   weights [4][3][4][TILE_OUTPUTS][4]  bytes: of 64 inputs, three sixteens, four groups of four
 *   scales  [16][TILE_OUTPUTS]          signed bytes
 */
#define PREFETCH_ROWS_MIN 1 /* more computing per byte than other types */
#define ROW_BY_ROW_MIN 2    /* also faster with GCC */
#include "tiles.h"
#include "k-rows.h"

#define SCALE_INPUTS 16
#define ADDED 32
#define UNITS 1

struct packed {
  uint8_t lower[128], upper[64];
  int8_t scales[16];
  f16 d;
};

INLINE void set_test_scales(struct packed *p) { p->d = 0x2c7c ^ (p->d & 3); }

struct block {
  uint8_t weights[4][3][4][TILE_OUTPUTS][4];
  int8_t scales[16][TILE_OUTPUTS];
};
typedef f16 scale_bits;

#include "integer-scales.h"

/* Four weights of each output, group g of the s-th sixteen of 64 inputs. */
INLINE ivec six_bits(const uint8_t bytes[3][4][TILE_OUTPUTS][4], int s, int g) {
  const ivec six = splat_byte(63);
  if (s < 3) return load_ints(bytes[s][g]) & six;
  const ivec a = load_ints(bytes[0][g]) >> 6, b = load_ints(bytes[1][g]) >> 4, c = load_ints(bytes[2][g]) >> 2;
  return select_bits(splat_byte(15), select_bits(splat_byte(3), a, b), c) & six;
}

INLINE void load_weights(const struct block *t, int thirty_two, ivec w[8]) {
  UNROLL for (int g = 0; g < 8; g++) w[g] = six_bits(t->weights[thirty_two / 2], thirty_two % 2 * 2 + g / 4, g % 4);
}

INLINE const struct block_scales *scales_in(const uint8_t *factors, const struct block *t, struct block_scales *space) {
  (void)factors;
  (void)space;
  return (const struct block_scales *)t->scales;
}

/* For 128 inputs, 64 bytes hold the lower four bits and 32 bytes the upper two. */
INLINE void unpack(const struct packed *p, uint8_t *weights) {
  for (int half_block = 0; half_block < 2; half_block++) {
    const uint8_t *lower = p->lower + half_block * 64, *upper = p->upper + half_block * 32;
    for (int quarter = 0; quarter < 4; quarter++) {
      for (int i = 0; i < 32; i++) {
        const int four = lower[quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
        *weights++ = (uint8_t)(four | (upper[i] >> (2 * quarter) & 3) << 4);
      }
    }
  }
}

INLINE void lay_out_row(const struct packed *from, uint8_t *factors, struct block *t, int row) {
  store_scale(factors, row, from->d);
  for (int s = 0; s < 16; s++) t->scales[s][row] = from->scales[s];
  uint8_t weights[BLOCK];
  unpack(from, weights);
  for (int chunk = 0; chunk < 4; chunk++) {
    for (int g = 0; g < 4; g++) {
      uint32_t own, last;
      memcpy(&last, weights + chunk * 64 + 48 + g * 4, 4);
      for (int s = 0; s < 3; s++) {
        memcpy(&own, weights + chunk * 64 + s * 16 + g * 4, 4);
        own |= (last >> (2 * s) & 0x03030303u) << 6;
        memcpy(t->weights[chunk][s][g][row], &own, 4);
      }
    }
  }
}
