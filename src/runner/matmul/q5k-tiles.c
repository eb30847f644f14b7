/*
 * Matmuls with Q5_K matrices. A weight is d * scale * q - dmin * minimum. q has five bits; 32 inputs share a scale and a minimum
 * of six bits. A block in a tile has for each 64 inputs:
 *
 *   nibbles [8][TILE_OUTPUTS][4]   the lower ones have the first 32 inputs
 *   fifth   [2][TILE_OUTPUTS][4]   fifth bits of 32 inputs (bits-of-32.h)
 */
#define ROW_BY_ROW_MIN 2 /* also faster with GCC */
#define WITH_MINIMA
#include "tiles.h"
#include "k-rows.h"
#include "bits-of-32.h"

#define SCALE_INPUTS 32
#define ADDED 0
#define UNITS 1

struct packed {
  f16 d, dmin;
  uint8_t scales[12], fifth[32];
  uint8_t nibbles[128]; /* of each 64 inputs 32 bytes: the first 32 are the lower nibbles */
};

INLINE void set_test_scales(struct packed *p) {
  p->d = 0x2c7c ^ (p->d & 3);
  p->dmin = 0x2c7c ^ (p->dmin & 3);
}

struct block {
  struct {
    uint8_t nibbles[8][TILE_OUTPUTS][4], fifth[2][TILE_OUTPUTS][4];
  } weights[4];
  uint8_t scales[12][TILE_OUTPUTS];
};

#include "integer-scales.h"
#include "six-bit-scales.h"

INLINE void load_weights(const struct block *t, int thirty_two, ivec w[8]) {
  const ivec fifth = load_ints(t->weights[thirty_two / 2].fifth[thirty_two % 2]);
  UNROLL for (int g = 0; g < 8; g++) {
    w[g] = five_bits(load_ints(t->weights[thirty_two / 2].nibbles[g]) >> (thirty_two % 2 * 4), fifth, g);
  }
}

INLINE const struct block_scales *scales_in(const uint8_t *factors, const struct block *t, struct block_scales *space) {
  (void)factors;
  unpack_scales(t->scales, space);
  return space;
}

INLINE void lay_out_block(const struct packed *from, int64_t blocks, uint8_t *factors, struct block *t) {
  const int64_t row_bytes = blocks * (int64_t)sizeof *from;
  EACH_OUTPUT store_scale(factors, output, (scale_bits){from[output * blocks].d, from[output * blocks].dmin});
  lay_out_bytes(from->scales, row_bytes, 12, t->scales);
  for (int i = 0; i < 4; i++) lay_out_words(from->nibbles + 32 * i, row_bytes, 8, t->weights[i].nibbles);
  words packed[8], fifth[8];
  lay_out_words(from->fifth, row_bytes, 8, packed);
  lay_out_bits(packed, fifth);
  for (int i = 0; i < 8; i++) memcpy(t->weights[i / 2].fifth[i % 2], fifth + i, sizeof *fifth);
}
