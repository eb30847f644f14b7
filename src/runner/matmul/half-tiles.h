/*
 * Matmuls with matrices of 16-bit floats, in F32. Activations are not quantized: `struct quantized` has them as F32. A tile:
 *
 *   weights [inputs][16]   16 bits
 *
 * One fused multiply-add per weight, inputs in ascending order. A kernel includes half-rows.h first, and defines load_weights,
 * of LANES weights; value_of, of one weight; small_number, which makes a small weight of random bits.
 */
#define BLOCK 16
#define VECTORS (TILE_OUTPUTS / LANES)

struct packed {
  uint16_t values[BLOCK];
};
INLINE void set_test_scales(struct packed *p) {
  for (int i = 0; i < BLOCK; i++) p->values[i] = small_number(p->values[i]);
}
struct quantized {
  float values[BLOCK];
};
INLINE void quantize_block(const float *x, struct quantized *y) { memcpy(y->values, x, sizeof *y); }

INLINE void tile_matmul(const uint8_t *tile, const struct quantized *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
  const uint16_t *weights = (const uint16_t *)tile;
  vec sum[ROWS_AT_ONCE][VECTORS];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < VECTORS; v++) sum[r][v] = splat(0);
  for (int64_t b = 0; b < blocks; b++) {
    prefetch(weights + b * BLOCK * TILE_OUTPUTS, BLOCK * TILE_OUTPUTS * sizeof(uint16_t), rows);
    UNROLL for (int i = 0; i < BLOCK; i++) {
      vec w[VECTORS];
      UNROLL for (int v = 0; v < VECTORS; v++) w[v] = load_weights(weights + (b * BLOCK + i) * TILE_OUTPUTS + v * LANES);
      UNROLL for (int r = 0; r < rows; r++) {
        const vec input = splat(x[r * row_blocks(blocks) + b].values[i]);
        UNROLL for (int v = 0; v < VECTORS; v++) sum[r][v] = fma_(w[v], input, sum[r][v]);
      }
    }
  }
  UNROLL for (int r = 0; r < rows; r++) {
    UNROLL for (int v = 0; v < VECTORS; v++) store(out + r * out_stride + v * LANES, sum[r][v]);
  }
}

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tile) {
  for (int64_t b = 0; b < blocks; b++, rows++) {
    uint16_t weights[BLOCK][TILE_OUTPUTS];
    uint32_t pairs[BLOCK / 2][TILE_OUTPUTS];
    lay_out_words(rows->values, blocks * (int64_t)sizeof *rows, BLOCK / 2, pairs);
    for (int p = 0; p < BLOCK / 2; p++) {
      EACH_OUTPUT weights[2 * p][output] = (uint16_t)pairs[p][output];
      EACH_OUTPUT weights[2 * p + 1][output] = (uint16_t)(pairs[p][output] >> 16);
    }
    memcpy(tile + b * (int64_t)sizeof weights, weights, sizeof weights);
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  (void)blocks;
  const uint16_t *weights = (const uint16_t *)tile;
  for (int i = 0; i < BLOCK; i++) out[i] = value_of(weights[(b * BLOCK + i) * TILE_OUTPUTS + row]);
}

#include "tile-operations.h"
