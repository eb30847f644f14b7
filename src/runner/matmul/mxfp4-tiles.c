/*
 * Matmuls with MXFP4 matrices. 32 inputs share a scale, a power of two of which the exponent is stored. A weight is an
 * entry of a table, which has twice its value, times half the scale, as in ggml. Weights of a tile:
 *
 *   [inputs / 32][4][TILE_OUTPUTS][4]      bytes: lower nibbles have the first 16 inputs, upper nibbles the others
 */
#include "tiles.h"
#include "q8-rows.h"

#define GROUPS 4 /* of four inputs, in half a block */
#define WEIGHT_BYTES (BLOCK / 2 * TILE_OUTPUTS)

struct packed {
  uint8_t exponent;
  uint8_t nibbles[BLOCK / 2];
};

#define EACH_VALUE(f) \
  f(0), f(1), f(2), f(3), f(4), f(6), f(8), f(12), f(0), f(-1), f(-2), f(-3), f(-4), f(-6), f(-8), f(-12)
#define ADDED(value) (int8_t)((value) + SMALL_ADDED)
#define SAME(value) (value)
static const int8_t values_added[16] = {EACH_VALUE(ADDED)};
static const int8_t values[16] = {EACH_VALUE(SAME)};

typedef uint8_t scale_bits;
/* Half of 2^(e - 127) as the bits of a float: the exponent e - 1. For an e of 0 or 1 it is subnormal: 2^-128, 2^-127. */
INLINE vec load_scales(const uint8_t *exponents) {
  const ivec e = widen_unsigned(exponents);
  const ivec normal = (e - 1) << 23, subnormal = 0x00200000 << (e & 1);
  return (vec)select_bits(e > 1, normal, subnormal);
}
INLINE float half_scale(uint8_t e) {
  const int32_t bits = e > 1 ? (e - 1) << 23 : 0x00200000 << e;
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return scale;
}

INLINE void load_weights(const uint8_t *nibbles, ivec w[2 * GROUPS]) {
  UNROLL for (int g = 0; g < GROUPS; g++) {
    const ivec two = load_ints(nibbles + g * TILE_OUTPUTS * 4);
    w[g] = look_up(values_added, two & splat_byte(15));
    w[GROUPS + g] = look_up(values_added, two >> 4 & splat_byte(15));
  }
}

INLINE ivec dot(const ivec w[2 * GROUPS], const struct quantized *y) {
  ivec products = small_start(y->correction);
  UNROLL for (int g = 0; g < 2 * GROUPS; g++) products = add_products(products, w[g], splat_four(y->values + 4 * g));
  return integers(products);
}

#include "q8-matmul.h"

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tile) {
  uint8_t *nibbles = tile + blocks * TILE_OUTPUTS;
  for (int64_t b = 0; b < blocks; b++) {
    for (int row = 0; row < TILE_OUTPUTS; row++) {
      const struct packed *from = rows + row * blocks + b;
      tile[b * TILE_OUTPUTS + row] = from->exponent;
      for (int g = 0; g < GROUPS; g++) {
        memcpy(nibbles + ((b * GROUPS + g) * TILE_OUTPUTS + row) * 4, from->nibbles + 4 * g, 4);
      }
    }
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  const uint8_t *nibbles = tile + blocks * TILE_OUTPUTS;
  const float scale = half_scale(tile[b * TILE_OUTPUTS + row]);
  for (int i = 0; i < BLOCK; i++) {
    const uint8_t two = nibbles[((b * GROUPS + i % 16 / 4) * TILE_OUTPUTS + row) * 4 + i % 4];
    out[i] = (float)values[i < 16 ? two & 15 : two >> 4] * scale;
  }
}

#include "tile-operations.h"
