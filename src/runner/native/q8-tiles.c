/*
 * Products with Q8_0 matrices. A tile:
 *
 *   scales  [inputs / 32][16]              halves
 *   weights [inputs / 32][8][16][4]        bytes, each 128 more than the weight: the instruction wants one side unsigned
 */
#include "tiles.h"
#include "q8-rows.h"

#define GROUPS 8 /* of four inputs, in a block */

struct packed {
  half scale;
  int8_t values[BLOCK];
};
INLINE void tile_product(const uint8_t *tile, const struct rounded *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
  const half *scales = (const half *)tile;
  const uint8_t *weights = tile + blocks * TILE_OUTPUTS * sizeof(half);
  __m512 sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; b++) {
    prefetch(weights + b * GROUPS * 64, GROUPS * 64);
    __m512i w[GROUPS];
    UNROLL for (int g = 0; g < GROUPS; g++) w[g] = _mm512_loadu_si512(weights + (b * GROUPS + g) * 64);
    const __m512 scale = load_halves(scales + b * TILE_OUTPUTS);
    UNROLL for (int r = 0; r < rows; r++) {
      const struct rounded *y = x + r * blocks + b;
      __m512i products = _mm512_set1_epi32(y->correction);
      UNROLL for (int g = 0; g < GROUPS; g++) {
        products = _mm512_dpbusd_epi32(products, w[g], splat_bytes(y->values + 4 * g));
      }
      sum[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), _mm512_mul_ps(scale, _mm512_set1_ps(y->scale)), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) _mm512_storeu_ps(out + r * out_stride, sum[r]);
}

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tile) {
  half *scales = (half *)tile;
  uint8_t *weights = tile + blocks * TILE_OUTPUTS * (int64_t)sizeof(half);
  for (int64_t b = 0; b < blocks; b++) {
    for (int row = 0; row < TILE_OUTPUTS; row++) {
      const struct packed *from = rows + row * blocks + b;
      scales[b * TILE_OUTPUTS + row] = from->scale;
      for (int g = 0; g < GROUPS; g++) {
        uint32_t four;
        memcpy(&four, from->values + 4 * g, 4);
        four ^= 0x80808080u;
        memcpy(weights + ((b * GROUPS + g) * TILE_OUTPUTS + row) * 4, &four, 4);
      }
    }
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  const uint8_t *weights = tile + blocks * TILE_OUTPUTS * (int64_t)sizeof(half);
  const float scale = float_of(((const half *)tile)[b * TILE_OUTPUTS + row]);
  for (int i = 0; i < BLOCK; i++) {
    const int weight = weights[((b * GROUPS + i / 4) * TILE_OUTPUTS + row) * 4 + i % 4] - 128;
    out[i] = (float)weight * scale;
  }
}

#include "tile-operations.h"
