/*
 * Matrices of which 32 inputs share a scale and each weight is a nibble. Before the include, a kernel defines scale_bits,
 * a stored scale; scale_of, its value; value_of, the value of a nibble. Weights of a block in a tile:
 *
 *   [4][TILE_OUTPUTS][4]      bytes: lower nibbles have the first 16 inputs, upper nibbles the others
 */
#define GROUPS 4 /* of four inputs, in half a block */
#define WEIGHT_BYTES (BLOCK / 2 * TILE_OUTPUTS)

#include "scale-groups.h"

struct packed {
  scale_bits scale;
  uint8_t nibbles[BLOCK / 2];
};

INLINE void set_test_scales(struct packed *p) { p->scale = (scale_bits)(0x2c7c ^ (p->scale & 3)); }

/* Weights that are entries of a table. */
INLINE void load_entries(const int8_t table[16], const uint8_t *nibbles, ivec w[2 * GROUPS]) {
  UNROLL for (int g = 0; g < GROUPS; g++) {
    const ivec two = load_ints(nibbles + g * TILE_OUTPUTS * 4);
    w[g] = look_up(table, two & splat_byte(15));
    w[GROUPS + g] = look_up(table, two >> 4 & splat_byte(15));
  }
}

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tile) {
  for (int64_t b = 0; b < blocks; b++) {
    scale_bits *scales = (scale_bits *)(tile + scales_at(b));
    uint8_t *nibbles = tile + weights_at(blocks, b);
    for (int row = 0; row < TILE_OUTPUTS; row++) {
      const struct packed *from = rows + row * blocks + b;
      scales[row] = from->scale;
      for (int g = 0; g < GROUPS; g++) {
        memcpy(nibbles + (g * TILE_OUTPUTS + row) * 4, from->nibbles + 4 * g, 4);
      }
    }
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  const uint8_t *nibbles = tile + weights_at(blocks, b);
  const float scale = scale_of(((const scale_bits *)(tile + scales_at(b)))[row]);
  for (int i = 0; i < BLOCK; i++) {
    const uint8_t two = nibbles[(i % 16 / 4 * TILE_OUTPUTS + row) * 4 + i % 4];
    out[i] = (float)value_of(i < 16 ? two & 15 : two >> 4) * scale;
  }
}
