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

/* Four weights of each output, as `six_bits` gives them. In ggml's layout, 64 bytes of 128 inputs hold the lower four bits and 32 bytes
 * the upper two. */
INLINE words packed_six_bits(const words lower[32], const words upper[16], int chunk, int s, int g) {
  const words four = lower[chunk / 2 * 16 + s * 4 + g] >> chunk % 2 * 4 & 0x0f0f0f0f;
  return four | (upper[chunk / 2 * 8 + s % 2 * 4 + g] >> (chunk % 2 * 4 + s / 2 * 2) & 0x03030303) << 4;
}

INLINE void lay_out_block(const struct packed *from, int64_t blocks, uint8_t *factors, struct block *t) {
  const int64_t row_bytes = blocks * (int64_t)sizeof *from;
  EACH_OUTPUT store_scale(factors, output, from[output * blocks].d);
  lay_out_bytes(from->scales, row_bytes, 16, (uint8_t(*)[TILE_OUTPUTS])t->scales);
  words lower[32], upper[16];
  lay_out_words(from->lower, row_bytes, 32, lower);
  lay_out_words(from->upper, row_bytes, 16, upper);
  UNROLL for (int chunk = 0; chunk < 4; chunk++) {
    for (int g = 0; g < 4; g++) {
      const words last = packed_six_bits(lower, upper, chunk, 3, g);
      UNROLL for (int s = 0; s < 3; s++) {
        const words own = packed_six_bits(lower, upper, chunk, s, g) | (last >> 2 * s & 0x03030303) << 6;
        memcpy(t->weights[chunk][s][g], &own, sizeof own);
      }
    }
  }
}
