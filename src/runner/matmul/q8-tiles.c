/*
 * Matmuls with Q8_0 matrices. Weights of a block in a tile:
 *
 *   [8][TILE_OUTPUTS][4]      bytes, whose upper bit is flipped where SIGN_BITS has it set
 */
#include "tiles.h"
#include "q8-rows.h"

#define GROUPS 8 /* of four inputs, in a block */
#define WEIGHT_BYTES (BLOCK * TILE_OUTPUTS)

struct packed {
  f16 scale;
  int8_t values[BLOCK];
};

INLINE void set_test_scales(struct packed *p) { p->scale = 0x2c7c ^ (p->scale & 3); }

typedef f16 scale_bits;
#include "scale-groups.h"

INLINE vec load_scales(const uint8_t *scales) { return load_f16((const f16 *)scales); }

INLINE void load_weights(const uint8_t *weights, ivec w[GROUPS]) {
  UNROLL for (int g = 0; g < GROUPS; g++) w[g] = load_ints(weights + g * TILE_OUTPUTS * 4);
}

INLINE ivec dot_start(const struct quantized *y) { return signed_start(y->correction); }
INLINE ivec dot(const ivec w[GROUPS], const struct quantized *y) {
  ivec products = dot_start(y);
  UNROLL for (int g = 0; g < GROUPS; g++) products = add_signed_products(products, w[g], y->values + 4 * g);
  return products;
}

#include "q8-matmul.h"

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tile) {
  for (int64_t b = 0; b < blocks; b++, rows++) {
    words weights[GROUPS];
    lay_out_words(rows->values, blocks * (int64_t)sizeof *rows, GROUPS, weights);
    for (int g = 0; g < GROUPS; g++) weights[g] ^= (uint32_t)SIGN_BITS;
    memcpy(tile + weights_at(blocks, b), weights, sizeof weights);
    EACH_OUTPUT store_scale(tile + scales_at(b), output, rows[output * blocks].scale);
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  const uint8_t *weights = tile + weights_at(blocks, b);
  const float scale = float_of(((const f16 *)(tile + scales_at(b)))[row]);
  for (int i = 0; i < BLOCK; i++) {
    const uint8_t weight = weights[(i / 4 * TILE_OUTPUTS + row) * 4 + i % 4];
    out[i] = (float)(int8_t)(weight ^ (uint8_t)SIGN_BITS) * scale;
  }
}

#include "tile-operations.h"
