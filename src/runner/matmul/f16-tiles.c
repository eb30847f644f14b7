/*
 * Matmuls with F16 matrices, in F32. Activations are not quantized: `struct quantized` has them as F32. A tile:
 *
 *   weights [inputs][16]   f16
 *
 * One fused multiply-add per weight, inputs in ascending order.
 */
#define TILE_OUTPUTS 16
/* The sums of so many rows fill the registers. */
#if defined(__AVX512F__)
#define ROWS_AT_ONCE 8
#else
#define ROWS_AT_ONCE 6
#endif
#include "tiles.h"

#define BLOCK 16
#define VECTORS (TILE_OUTPUTS / LANES)

struct packed {
  f16 values[BLOCK];
};
/* Halves below 2. */
INLINE void set_test_scales(struct packed *p) {
  for (int i = 0; i < BLOCK; i++) p->values[i] &= 0xbfff;
}
struct quantized {
  float values[BLOCK];
};
INLINE void quantize_block(const float *x, struct quantized *y) { memcpy(y->values, x, sizeof *y); }

INLINE void tile_matmul(const uint8_t *tile, const struct quantized *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
  const f16 *weights = (const f16 *)tile;
  vec sum[ROWS_AT_ONCE][VECTORS];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < VECTORS; v++) sum[r][v] = splat(0);
  for (int64_t b = 0; b < blocks; b++) {
    prefetch(weights + b * BLOCK * TILE_OUTPUTS, BLOCK * TILE_OUTPUTS * sizeof(f16), rows);
    UNROLL for (int i = 0; i < BLOCK; i++) {
      vec w[VECTORS];
      UNROLL for (int v = 0; v < VECTORS; v++) w[v] = load_f16(weights + (b * BLOCK + i) * TILE_OUTPUTS + v * LANES);
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
  f16 *weights = (f16 *)tile;
  for (int row = 0; row < TILE_OUTPUTS; row++) {
    const f16 *from = rows[row * blocks].values;
    for (int64_t i = 0; i < blocks * BLOCK; i++) weights[i * TILE_OUTPUTS + row] = from[i];
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  (void)blocks;
  const f16 *weights = (const f16 *)tile;
  for (int i = 0; i < BLOCK; i++) out[i] = float_of(weights[(b * BLOCK + i) * TILE_OUTPUTS + row]);
}

#include "tile-operations.h"
