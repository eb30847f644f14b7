/*
 * Matmuls with Q5_0 matrices. 32 inputs share a scale, and a weight is scale * (five bits - 16). Weights of a block
 * in a tile:
 *
 *   [5][TILE_OUTPUTS][4]   bytes: four times nibbles, of which the lower ones have the first 16 inputs; then fifth
 *                          bits: bit g of byte i belongs to input 4 g + i
 *
 * Eight times a weight is multiplied like a weight of Q8_0, and scales are an eighth: both are exact. Fifth bits are
 * flipped where weights are signed.
 */
#define PREFETCH_ROWS_MIN 1 /* more computing per byte than other types */
#include "tiles.h"
#include "q8-rows.h"

#define GROUPS 4 /* of four inputs, in half a block */
#define WEIGHT_BYTES (BLOCK / 8 * 5 * TILE_OUTPUTS)
#define FLIPPED (SIGN_BITS == 0)

struct packed {
  f16 scale;
  uint8_t fifth_bits[4];
  uint8_t nibbles[BLOCK / 2];
};

INLINE void set_test_scales(struct packed *p) { p->scale = 0x2c7c ^ (p->scale & 3); }

typedef f16 scale_bits;
#include "scale-groups.h"

INLINE vec load_scales(const f16 *scales) { return load_f16(scales) * splat(0.125f); }

INLINE void load_weights(const uint8_t *weights, ivec w[2 * GROUPS]) {
  const ivec fifth = load_ints(weights + GROUPS * TILE_OUTPUTS * 4), nibble = splat_byte(15 << 3);
  UNROLL for (int g = 0; g < GROUPS; g++) {
    const ivec two = load_ints(weights + g * TILE_OUTPUTS * 4);
    w[g] = select_bits(nibble, two << 3, fifth << (7 - g) & splat_byte(-128));
    w[GROUPS + g] = select_bits(nibble, two >> 1, fifth << (3 - g) & splat_byte(-128));
  }
}

INLINE ivec dot_start(const struct quantized *y) { return signed_start(y->correction); }
INLINE ivec dot(const ivec w[2 * GROUPS], const struct quantized *y) {
  ivec products = dot_start(y);
  UNROLL for (int g = 0; g < 2 * GROUPS; g++) {
    products = add_signed_products(products, w[g], y->values + 4 * g);
  }
  return products;
}

#include "q8-matmul.h"

/* The four inputs of a group have a byte each. */
INLINE void lay_out_fifth_bits(const uint8_t from[4], uint8_t to[4]) {
  for (int i = 0; i < 4; i++) to[i] = FLIPPED ? 255 : 0;
  for (int input = 0; input < BLOCK; input++) to[input % 4] ^= (from[input / 8] >> input % 8 & 1) << input / 4;
}

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tile) {
  for (int64_t b = 0; b < blocks; b++) {
    f16 *scales = (f16 *)(tile + scales_at(b));
    uint8_t *weights = tile + weights_at(blocks, b);
    for (int row = 0; row < TILE_OUTPUTS; row++) {
      const struct packed *from = rows + row * blocks + b;
      uint8_t *to = weights + row * 4;
      scales[row] = from->scale;
      for (int g = 0; g < GROUPS; g++) memcpy(to + g * TILE_OUTPUTS * 4, from->nibbles + 4 * g, 4);
      lay_out_fifth_bits(from->fifth_bits, to + GROUPS * TILE_OUTPUTS * 4);
    }
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  const uint8_t *weights = tile + weights_at(blocks, b) + row * 4;
  const float scale = float_of(((const f16 *)(tile + scales_at(b)))[row]);
  const uint8_t *fifth = weights + GROUPS * TILE_OUTPUTS * 4;
  for (int i = 0; i < BLOCK; i++) {
    const uint8_t two = weights[i % 16 / 4 * TILE_OUTPUTS * 4 + i % 4];
    const int bit = (fifth[i % 4] >> i / 4 & 1) ^ FLIPPED;
    out[i] = (float)((i < 16 ? two & 15 : two >> 4) + 16 * bit - 16) * scale;
  }
}

#include "tile-operations.h"
