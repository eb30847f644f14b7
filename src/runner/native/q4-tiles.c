/*
 * Products with Q4_0 matrices. Of each 32 inputs a weight is scale * (nibble - 8).
 *
 * Nibbles count sixteen times, the upper ones where they are and the lower ones shifted up; so the 8 is 128, as in Q8_0,
 * and the scale is made sixteen times as small: both exact. A tile:
 *
 *   scales  [inputs / 32][16]              halves
 *   nibbles [inputs / 32][4][16][4]        bytes: in the lower halves the first 16 inputs, in the upper ones the others
 */
#include "tiles.h"
#include "q8-rows.h"

#define GROUPS 4 /* of four inputs, in half a block */

struct packed {
  half scale;
  uint8_t nibbles[BLOCK / 2];
};

INLINE void tile_product(const uint8_t *tile, const struct rounded *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
  const half *scales = (const half *)tile;
  const uint8_t *nibbles = tile + blocks * TILE_OUTPUTS * sizeof(half);
  const __m512i mask = _mm512_set1_epi8(-16);
  __m512 sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; b++) {
    prefetch(nibbles + b * GROUPS * 64, GROUPS * 64);
    __m512i w[2 * GROUPS];
    UNROLL for (int g = 0; g < GROUPS; g++) {
      const __m512i two = _mm512_loadu_si512(nibbles + (b * GROUPS + g) * 64);
      w[g] = _mm512_and_si512(_mm512_slli_epi16(two, 4), mask);
      w[GROUPS + g] = _mm512_and_si512(two, mask);
    }
    const __m512 scale = _mm512_mul_ps(load_halves(scales + b * TILE_OUTPUTS), _mm512_set1_ps(0x1p-4f));
    UNROLL for (int r = 0; r < rows; r++) {
      const struct rounded *y = x + r * blocks + b;
      __m512i products = _mm512_set1_epi32(y->correction);
      UNROLL for (int g = 0; g < 2 * GROUPS; g++) {
        products = _mm512_dpbusd_epi32(products, w[g], splat_bytes(y->values + 4 * g));
      }
      sum[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), _mm512_mul_ps(scale, _mm512_set1_ps(y->scale)), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) _mm512_storeu_ps(out + r * out_stride, sum[r]);
}

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tile) {
  half *scales = (half *)tile;
  uint8_t *nibbles = tile + blocks * TILE_OUTPUTS * (int64_t)sizeof(half);
  for (int64_t b = 0; b < blocks; b++) {
    for (int row = 0; row < TILE_OUTPUTS; row++) {
      const struct packed *from = rows + row * blocks + b;
      scales[b * TILE_OUTPUTS + row] = from->scale;
      for (int g = 0; g < GROUPS; g++) {
        memcpy(nibbles + ((b * GROUPS + g) * TILE_OUTPUTS + row) * 4, from->nibbles + 4 * g, 4);
      }
    }
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  const uint8_t *nibbles = tile + blocks * TILE_OUTPUTS * (int64_t)sizeof(half);
  const float scale = float_of(((const half *)tile)[b * TILE_OUTPUTS + row]);
  for (int i = 0; i < BLOCK; i++) {
    const uint8_t two = nibbles[((b * GROUPS + i % 16 / 4) * TILE_OUTPUTS + row) * 4 + i % 4];
    out[i] = (float)((i < 16 ? two & 15 : two >> 4) - 8) * scale;
  }
}

#include "tile-operations.h"
