/*
 * Products with F16 matrices, in F32: rows are not rounded. A tile:
 *
 *   weights [inputs][16]   halves
 *
 * One fused multiply-add per weight, inputs in ascending order.
 */
#include "tiles.h"

#define BLOCK 16

struct packed {
  half values[BLOCK];
};
struct rounded {
  float values[BLOCK];
};
INLINE void round_block(const float *x, struct rounded *y) { _mm512_storeu_ps(y->values, _mm512_loadu_ps(x)); }

INLINE void tile_product(const uint8_t *tile, const struct rounded *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
  const half *weights = (const half *)tile;
  __m512 sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; b++) {
    prefetch(weights + b * BLOCK * TILE_OUTPUTS, BLOCK * TILE_OUTPUTS * sizeof(half));
    UNROLL for (int i = 0; i < BLOCK; i++) {
      const __m512 w = load_halves(weights + (b * BLOCK + i) * TILE_OUTPUTS);
      UNROLL for (int r = 0; r < rows; r++) {
        sum[r] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[r * blocks + b].values[i]), sum[r]);
      }
    }
  }
  UNROLL for (int r = 0; r < rows; r++) _mm512_storeu_ps(out + r * out_stride, sum[r]);
}

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tile) {
  half *weights = (half *)tile;
  for (int row = 0; row < TILE_OUTPUTS; row++) {
    const half *from = rows[row * blocks].values;
    for (int64_t i = 0; i < blocks * BLOCK; i++) weights[i * TILE_OUTPUTS + row] = from[i];
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  (void)blocks;
  const half *weights = (const half *)tile;
  for (int i = 0; i < BLOCK; i++) out[i] = float_of(weights[(b * BLOCK + i) * TILE_OUTPUTS + row]);
}

#include "tile-operations.h"
