/*
 * Products with Q6_K matrices. Of each 16 inputs a weight is d * scale * (q - 32), with q of six bits and a scale of eight.
 *
 * Of 64 inputs the first three times 16 lie in the lower six bits of three bytes, and the last 16 in the upper two bits of
 * the same three. A tile:
 *
 *   weights [inputs / 256][4][3][4][16][4]  bytes: of 64 inputs, three sixteens, four groups of four, 16 outputs
 *   scales  [inputs / 256][16][16]          signed bytes
 *   d       [inputs / 256][16]              halves
 */
#include "tiles.h"
#include "k-rows.h"

struct packed {
  uint8_t lower[128], upper[64];
  int8_t scales[16];
  half d;
};

#define WEIGHT_BYTES (192 * TILE_OUTPUTS) /* of 256 inputs */
struct tile {
  uint8_t (*weights)[4][3][4][TILE_OUTPUTS][4];
  int8_t (*scales)[16][TILE_OUTPUTS];
  half (*d)[TILE_OUTPUTS];
};

INLINE struct tile parts_of(const uint8_t *tile, int64_t blocks) {
  const uint8_t *scales = tile + blocks * WEIGHT_BYTES, *d = scales + blocks * 16 * TILE_OUTPUTS;
  return (struct tile){(void *)tile, (void *)scales, (void *)d};
}

INLINE __m512i select_bits(__m512i mask, __m512i yes, __m512i no) { return _mm512_ternarylogic_epi32(mask, yes, no, 0xca); }

/* Four inputs of 16 outputs, of sixteen s. */
INLINE __m512i six_bits(const uint8_t bytes[3][4][TILE_OUTPUTS][4], int s, int g) {
  const __m512i six = _mm512_set1_epi8(63);
  if (s < 3) return _mm512_and_si512(_mm512_loadu_si512(bytes[s][g]), six);
  const __m512i a = _mm512_srli_epi16(_mm512_loadu_si512(bytes[0][g]), 6);
  const __m512i b = _mm512_srli_epi16(_mm512_loadu_si512(bytes[1][g]), 4);
  const __m512i c = _mm512_srli_epi16(_mm512_loadu_si512(bytes[2][g]), 2);
  const __m512i two = select_bits(_mm512_set1_epi8(3), a, b);
  return _mm512_and_si512(select_bits(_mm512_set1_epi8(15), two, c), six);
}

INLINE void tile_product(const uint8_t *tile, const struct rounded *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
  const struct tile t = parts_of(tile, blocks);
  __m512 sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; b++) {
    __m512 part[ROWS_AT_ONCE];
    UNROLL for (int r = 0; r < rows; r++) part[r] = _mm512_setzero_ps();
    for (int chunk = 0; chunk < 4; chunk++) {
      prefetch(t.weights[b][chunk], WEIGHT_BYTES / 4);
      UNROLL for (int s = 0; s < 4; s++) {
        __m512i w[4];
        UNROLL for (int g = 0; g < 4; g++) w[g] = six_bits(t.weights[b][chunk], s, g);
        const __m128i scales = _mm_loadu_si128((const __m128i *)t.scales[b][chunk * 4 + s]);
        const __m512 scale = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales));
        UNROLL for (int r = 0; r < rows; r++) {
          const struct rounded *y = x + r * blocks + b;
          const int8_t *values = y->values + chunk * 64 + s * 16;
          __m512i products = _mm512_set1_epi32(y->corrections[chunk * 4 + s]);
          UNROLL for (int g = 0; g < 4; g++) products = _mm512_dpbusd_epi32(products, w[g], splat_bytes(values + 4 * g));
          part[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), scale, part[r]);
        }
      }
    }
    const __m512 d = load_halves(t.d[b]);
    UNROLL for (int r = 0; r < rows; r++) {
      sum[r] = _mm512_fmadd_ps(part[r], _mm512_mul_ps(d, _mm512_set1_ps(x[r * blocks + b].scale)), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) _mm512_storeu_ps(out + r * out_stride, sum[r]);
}

/* Of each 128 inputs 64 bytes hold the lower four bits and 32 bytes the upper two. */
INLINE void unpack(const struct packed *p, uint8_t *weights) {
  for (int half_block = 0; half_block < 2; half_block++) {
    const uint8_t *lower = p->lower + half_block * 64, *upper = p->upper + half_block * 32;
    for (int quarter = 0; quarter < 4; quarter++) {
      for (int i = 0; i < 32; i++) {
        const int four = lower[quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
        *weights++ = (uint8_t)(four | (upper[i] >> (2 * quarter) & 3) << 4);
      }
    }
  }
}

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tile) {
  const struct tile t = parts_of(tile, blocks);
  for (int64_t b = 0; b < blocks; b++) {
    for (int row = 0; row < TILE_OUTPUTS; row++) {
      const struct packed *from = rows + row * blocks + b;
      t.d[b][row] = from->d;
      for (int s = 0; s < 16; s++) t.scales[b][s][row] = from->scales[s];
      uint8_t weights[BLOCK];
      unpack(from, weights);
      for (int chunk = 0; chunk < 4; chunk++) {
        for (int g = 0; g < 4; g++) {
          uint32_t own, last;
          memcpy(&last, weights + chunk * 64 + 48 + g * 4, 4);
          for (int s = 0; s < 3; s++) {
            memcpy(&own, weights + chunk * 64 + s * 16 + g * 4, 4);
            own |= (last >> (2 * s) & 0x03030303u) << 6;
            memcpy(t.weights[b][chunk][s][g][row], &own, 4);
          }
        }
      }
    }
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  const struct tile t = parts_of(tile, blocks);
  const float d = float_of(t.d[b][row]);
  for (int i = 0; i < BLOCK; i++) {
    const int s = i % 64 / 16, g = i % 16 / 4;
    int weight = -32;
    for (int k = 0; k < 3; k++) {
      const uint8_t byte = t.weights[b][i / 64][k][g][row][i % 4];
      weight += s == 3 ? (byte >> 6) << (2 * k) : s == k ? byte & 63 : 0;
    }
    out[i] = d * (float)t.scales[b][i / 16][row] * (float)weight;
  }
}

#include "tile-operations.h"
