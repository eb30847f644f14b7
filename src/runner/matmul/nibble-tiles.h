/*
 * Matrices of which 32 inputs share a scale and each weight is a nibble. Before the include, a kernel defines scale_bits,
 * a stored scale, and scale_of, its value, unless it is WITH_MINIMA; value_of, the value of a nibble. Weights of a block in
 * a tile:
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

#if defined(WITH_MINIMA)
INLINE void set_test_scales(struct packed *p) { p->scale = (scale_bits){0x2c7c ^ (p->scale.scale & 3), 0x2c7c}; }
#else
INLINE void set_test_scales(struct packed *p) { p->scale = (scale_bits)(0x2c7c ^ (p->scale & 3)); }
#endif

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tile) {
  for (int64_t b = 0; b < blocks; b++, rows++) {
    EACH_OUTPUT store_scale(tile + scales_at(b), output, rows[output * blocks].scale);
    lay_out_words(rows->nibbles, blocks * (int64_t)sizeof *rows, GROUPS, tile + weights_at(blocks, b));
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  const uint8_t *nibbles = tile + weights_at(blocks, b);
  const scale_bits scale = stored_scale(tile + scales_at(b), row);
  for (int i = 0; i < BLOCK; i++) {
    const uint8_t two = nibbles[(i % 16 / 4 * TILE_OUTPUTS + row) * 4 + i % 4];
    const float value = (float)value_of(i < 16 ? two & 15 : two >> 4);
#if defined(WITH_MINIMA)
    out[i] = value * float_of(scale.scale) + float_of(scale.minimum);
#else
    out[i] = value * scale_of(scale);
#endif
  }
}
