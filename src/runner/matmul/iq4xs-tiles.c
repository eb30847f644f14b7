/*
 * Matmuls with IQ4_XS matrices. A weight is d * (scale - 32) * the nibble's entry of a table. 32 inputs share a scale of six
 * bits. With the factors d come the upper two bits of eight scales, in two rows of bytes. A block in a tile:
 *
 *   nibbles [8][4][TILE_OUTPUTS][4]   of 32 inputs, the lower ones have the first 16
 *   scales  [4][TILE_OUTPUTS]         four bits of scales i and i + 4
 */
#define ROW_BY_ROW_MIN 2 /* also faster with GCC */
#include "tiles.h"
#include "k-rows.h"
#include "iq4-values.h"

#define SCALE_INPUTS 32
#define SIGNED_WEIGHTS
#define UNITS 1

struct packed {
  f16 d;
  uint8_t scales_upper[2], scales[4];
  uint8_t nibbles[128];
};

INLINE void set_test_scales(struct packed *p) { p->d = 0x2c7c ^ (p->d & 3); }

struct block {
  uint8_t nibbles[8][4][TILE_OUTPUTS][4];
  uint8_t scales[4][TILE_OUTPUTS];
};
typedef struct {
  f16 d;
  uint8_t scales_upper[2];
} scale_bits;

#include "integer-scales.h"

INLINE void load_weights(const struct block *t, int thirty_two, ivec w[8]) {
  load_entries(weights_of, t->nibbles[thirty_two], w);
}

INLINE const struct block_scales *scales_in(const uint8_t *factors, const struct block *t, struct block_scales *space) {
  const uint8_t *upper = factors + TILE_OUTPUTS * sizeof(f16);
  UNROLL for (int s = 0; s < 8; s++) {
    const ivec four = widen_unsigned(t->scales[s % 4]) >> (s / 4 * 4) & splat_int(15);
    const ivec two = widen_unsigned(upper + s / 4 * TILE_OUTPUTS) >> (s % 4 * 2) & splat_int(3);
    store_bytes(space->of[s], (four | two << 4) - 32);
  }
  return space;
}

INLINE void lay_out_block(const struct packed *from, int64_t blocks, uint8_t *factors, struct block *t) {
  for (int row = 0; row < TILE_OUTPUTS; row++) {
    const struct packed *p = from + row * blocks;
    ((f16 *)factors)[row] = p->d;
    for (int i = 0; i < 2; i++) factors[(2 + i) * TILE_OUTPUTS + row] = p->scales_upper[i];
    for (int s = 0; s < 4; s++) {
      const int even_or_odd = s % 2 * 4; /* in the file, a byte has two neighbours */
      t->scales[s][row] = (uint8_t)((p->scales[s / 2] >> even_or_odd & 15) | (p->scales[2 + s / 2] >> even_or_odd & 15) << 4);
    }
  }
  lay_out_words(from->nibbles, blocks * (int64_t)sizeof *from, 32, t->nibbles);
}
